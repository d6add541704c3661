#include "measure/database.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <set>
#include <thread>

#include "base/text.h"
#include "measure/database_file.h"

namespace millrace {
namespace {

constexpr int64_t kApplicationId = 0x4D72'6163;  // "Mrac", in the file's header: not another program's database
constexpr int64_t kDatabaseVersion = 2;

struct SchemaTable {
  std::string_view name;
  std::string_view sql;
};
constexpr std::array<SchemaTable, 2> kSchema = {{
    {"measurement",
     "CREATE TABLE measurement(id INTEGER PRIMARY KEY, device INTEGER NOT NULL, partition INTEGER NOT NULL, "
     "candidate INTEGER NOT NULL, outcome INTEGER NOT NULL, seconds REAL NOT NULL, low REAL NOT NULL, "
     "high REAL NOT NULL, samples INTEGER NOT NULL, detail TEXT NOT NULL, taken TEXT NOT NULL, "
     "hash INTEGER NOT NULL, UNIQUE(device, partition, candidate))"},
    {"text", "CREATE TABLE text(id INTEGER PRIMARY KEY, text TEXT NOT NULL)"},
}};

// Outer joins, so that a missing text shows as NULL and not as a missing row.
constexpr std::string_view kSelect =
    "SELECT d.text, p.text, c.text, m.outcome, m.seconds, m.low, m.high, m.samples, m.detail, m.taken, m.hash "
    "FROM measurement m LEFT JOIN text d ON d.id = m.device LEFT JOIN text p ON p.id = m.partition "
    "LEFT JOIN text c ON c.id = m.candidate ";

// ---- Hashes: FNV-1a, so that changing any one byte changes the result ----

class Hash {
 public:
  void add(uint64_t word) {
    for (int k = 0; k < 64; k += 8) add_byte(word >> k & 0xFF);
  }
  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
  }
  int64_t value() const { return std::bit_cast<int64_t>(state_); }

 private:
  void add_byte(uint64_t byte) { state_ = (state_ ^ byte) * 0x0000'0100'0000'01B3; }
  uint64_t state_ = 0xCBF2'9CE4'8422'2325;
};

int64_t text_id(std::string_view text) {
  Hash hash;
  hash.add(text);
  return hash.value();
}

int64_t row_hash(const MeasurementRow& row) {
  Hash hash;
  for (const std::string* text : {&row.key.device, &row.key.partition, &row.key.candidate, &row.detail, &row.when})
    hash.add(*text);
  hash.add(static_cast<uint64_t>(row.outcome));
  for (const double value : {row.seconds, row.low, row.high}) hash.add(std::bit_cast<uint64_t>(value));
  hash.add(static_cast<uint64_t>(row.samples));
  return hash.value();
}

// ---- Reading ----

// The current row of a kSelect statement; nothing if it is not intact.
std::optional<MeasurementRow> row_at(const SqliteStatement& statement) {
  constexpr int kTaken = 9;
  std::array<std::optional<std::string>, 5> texts = {statement.text(0), statement.text(1), statement.text(2),
                                                     statement.text(kTaken - 1), statement.text(kTaken)};
  const std::array<std::optional<double>, 3> reals = {statement.real(4), statement.real(5), statement.real(6)};
  const std::optional<int64_t> outcome = statement.integer(3);
  const std::optional<int64_t> samples = statement.integer(7);
  const std::optional<int64_t> hash = statement.integer(kTaken + 1);
  const bool complete = std::all_of(texts.begin(), texts.end(), [](const auto& text) { return text.has_value(); }) &&
                        std::all_of(reals.begin(), reals.end(), [](const auto& real) { return real.has_value(); });
  if (!complete || !outcome || !samples || !hash) return std::nullopt;
  if (*outcome < 0 || *outcome >= static_cast<int64_t>(kOutcomeNames.size())) return std::nullopt;
  MeasurementRow row;
  row.key = {std::move(*texts[0]), std::move(*texts[1]), std::move(*texts[2])};
  row.outcome = static_cast<Outcome>(*outcome);
  row.seconds = *reals[0];
  row.low = *reals[1];
  row.high = *reals[2];
  row.samples = *samples;
  row.detail = std::move(*texts[3]);
  row.when = std::move(*texts[4]);
  if (row_hash(row) != *hash || !complaint_about(row).empty()) return std::nullopt;
  return row;
}

// The statement's remaining rows, sorted by key.
Result<std::vector<MeasurementRow>> read_rows(SqliteStatement& statement, const std::string& path) {
  std::vector<MeasurementRow> rows;
  while (true) {
    const Result<bool> more = statement.step();
    if (!more) return more.error();
    if (!*more) break;
    std::optional<MeasurementRow> row = row_at(statement);
    if (!row) return damaged_database(path, "a row differs from what was written");
    rows.push_back(std::move(*row));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

Result<SqliteStatement> prepare_find(const SqliteConnection& connection) {
  return connection.prepare(concat(kSelect, "WHERE m.device = ?1 AND m.partition = ?2 AND m.candidate = ?3"));
}

Result<std::optional<MeasurementRow>> find_row(SqliteStatement& statement, const MeasurementKey& key,
                                               const std::string& path) {
  statement.reset();
  statement.bind_integer(1, text_id(key.device));
  statement.bind_integer(2, text_id(key.partition));
  statement.bind_integer(3, text_id(key.candidate));
  Result<std::vector<MeasurementRow>> rows = read_rows(statement, path);
  if (!rows) return rows.error();
  if (rows->empty()) return std::optional<MeasurementRow>();
  if (rows->front().key != key) return damaged_database(path, "a row has the key of another row");
  return std::optional<MeasurementRow>(std::move(rows->front()));
}

// ---- Writing ----

// Runs `work` in a transaction and rolls back if it fails.
template <class Work>
auto in_transaction(const SqliteConnection& connection, Work work) -> decltype(work()) {
  const Result<Done> begun = connection.run("BEGIN IMMEDIATE");
  if (!begun) return begun.error();
  auto result = work();
  if (result) {
    const Result<Done> committed = connection.run("COMMIT");
    if (committed) return result;
    result = committed.error();
  }
  // Fails if SQLite has already rolled back.
  static_cast<void>(connection.run("ROLLBACK"));
  return result;
}

// Prepares its statements once, then writes any number of rows.
class RowWriter {
 public:
  static Result<RowWriter> make(const SqliteConnection& connection) {
    Result<SqliteStatement> find_text = connection.prepare("SELECT text FROM text WHERE id = ?1");
    if (!find_text) return find_text.error();
    Result<SqliteStatement> add_text = connection.prepare("INSERT INTO text(id, text) VALUES(?1, ?2)");
    if (!add_text) return add_text.error();
    Result<SqliteStatement> add_row = connection.prepare(
        "INSERT INTO measurement(device, partition, candidate, outcome, seconds, low, high, samples, detail, taken, "
        "hash) "
        "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT(device, partition, candidate) DO UPDATE SET "
        "outcome = ?4, seconds = ?5, low = ?6, high = ?7, samples = ?8, detail = ?9, taken = ?10, hash = ?11");
    if (!add_row) return add_row.error();
    return RowWriter(connection, std::move(*find_text), std::move(*add_text), std::move(*add_row));
  }

  Result<Done> write(MeasurementRow row) {
    row.detail = storable_detail(row.detail);
    const std::string wrong = complaint_about(row);
    if (!wrong.empty()) return Error::make(ErrorKind::bad_input, concat("cannot store a row: ", wrong));
    int parameter = 0;
    add_row_.reset();
    for (const std::string* text : {&row.key.device, &row.key.partition, &row.key.candidate}) {
      const int64_t id = text_id(*text);
      const Result<Done> written = write_text(id, *text);
      if (!written) return written.error();
      add_row_.bind_integer(++parameter, id);
    }
    add_row_.bind_integer(++parameter, static_cast<int64_t>(row.outcome));
    for (const double value : {row.seconds, row.low, row.high}) add_row_.bind_real(++parameter, value);
    add_row_.bind_integer(++parameter, row.samples);
    add_row_.bind_text(++parameter, row.detail);
    add_row_.bind_text(++parameter, row.when);
    add_row_.bind_integer(++parameter, row_hash(row));
    const Result<bool> stepped = add_row_.step();
    if (!stepped) return stepped.error();
    return Done{};
  }

 private:
  RowWriter(const SqliteConnection& connection, SqliteStatement find_text, SqliteStatement add_text,
            SqliteStatement add_row)
      : connection_(connection),
        find_text_(std::move(find_text)),
        add_text_(std::move(add_text)),
        add_row_(std::move(add_row)) {}

  Result<Done> write_text(int64_t id, const std::string& text) {
    if (written_.contains(id)) return Done{};
    find_text_.reset();
    find_text_.bind_integer(1, id);
    const Result<bool> there = find_text_.step();
    if (!there) return there.error();
    if (*there && find_text_.text(0) != text)
      return damaged_database(connection_.path(), "a text differs from what was written");
    if (!*there) {
      add_text_.reset();
      add_text_.bind_integer(1, id);
      add_text_.bind_text(2, text);
      const Result<bool> added = add_text_.step();
      if (!added) return added.error();
    }
    find_text_.reset();
    written_.insert(id);
    return Done{};
  }

  const SqliteConnection& connection_;
  SqliteStatement find_text_;
  SqliteStatement add_text_;
  SqliteStatement add_row_;
  std::set<int64_t> written_;
};

// ---- Opening ----

int64_t bytes_of(const std::string& file) {
  struct stat status {};
  return stat(file.c_str(), &status) == 0 ? status.st_size : 0;
}

// Creates the tables in an empty file. If two processes try at once, one of them does.
Result<Done> create_tables(const SqliteConnection& connection) {
  return in_transaction(connection, [&]() -> Result<Done> {
    const Result<int64_t> tables = connection.integer("SELECT count(*) FROM sqlite_master");
    if (!tables) return tables.error();
    if (*tables != 0) return Done{};
    for (const SchemaTable& table : kSchema) {
      Result<Done> made = connection.run(table.sql);
      if (!made) return made;
    }
    Result<Done> named = connection.run(concat("PRAGMA application_id = ", kApplicationId));
    if (!named) return named;
    return connection.run(concat("PRAGMA user_version = ", kDatabaseVersion));
  });
}

Error foreign_database(const std::string& path) {
  return Error::make(ErrorKind::bad_input, concat("'", path, "' is an SQLite database, but not one of Millrace's"),
                     "pass the right file with --db");
}

Result<Done> check_tables(const SqliteConnection& connection) {
  Result<SqliteStatement> tables =
      connection.prepare("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1");
  if (!tables) return tables.error();
  for (const SchemaTable& expected : kSchema) {
    const Result<bool> row = tables->step();
    if (!row) return row.error();
    if (!*row || tables->text(0) != expected.name || tables->text(1) != expected.sql)
      return damaged_database(connection.path(), "its tables do not match the schema");
  }
  const Result<bool> more = tables->step();
  if (!more) return more.error();
  if (*more) return damaged_database(connection.path(), "it contains objects that Millrace did not create");
  return Done{};
}

// Checks that the file is ours, has this version, and is intact.
Result<Done> check_database(const SqliteConnection& connection) {
  const Result<int64_t> application = connection.integer("PRAGMA application_id");
  if (!application) return application.error();
  if (*application != kApplicationId) return foreign_database(connection.path());
  const Result<int64_t> version = connection.integer("PRAGMA user_version");
  if (!version) return version.error();
  if (*version > kDatabaseVersion)
    return Error::make(ErrorKind::bad_input,
                       concat("'", connection.path(), "' has schema version ", *version,
                              "; this Millrace reads version ", kDatabaseVersion),
                       "update Millrace, or pass another database with --db");
  if (*version != kDatabaseVersion)
    return Error::make(ErrorKind::bad_input,
                       concat("'", connection.path(), "' has schema version ", *version,
                              ", which is too old; this Millrace reads version ", kDatabaseVersion),
                       "move the file elsewhere and measure again, or pass another database with --db");
  Result<Done> tables = check_tables(connection);
  if (!tables) return tables;
  const Result<std::string> integrity = connection.text("PRAGMA integrity_check(1)");
  if (!integrity) return integrity.error();
  if (*integrity != "ok") return damaged_database(connection.path(), *integrity);
  return Done{};
}

// Switches to a write-ahead log. If two processes switch a new file at once, SQLite refuses one immediately instead
// of letting it wait, so retry.
Result<Done> log_ahead(const SqliteConnection& connection, int busy_milliseconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(busy_milliseconds);
  while (true) {
    // On a file system without shared memory, the mode stays as it is, and readers wait for writers.
    const Result<std::string> mode = connection.text("PRAGMA journal_mode = WAL");
    if (mode) return Done{};
    if (!connection.was_busy() || std::chrono::steady_clock::now() >= end) return mode.error();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Whether nothing was ever written: we created the file just now, or a process was killed right after creating it.
Result<bool> is_fresh(const SqliteConnection& connection) {
  for (const char* const count : {"SELECT count(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version",
                                  "SELECT max(page_count, 1) - 1 FROM pragma_page_count"}) {
    const Result<int64_t> value = connection.integer(count);
    if (!value) return value.error();
    if (*value != 0) return false;
  }
  // SQLite also treats a file of one byte as empty.
  constexpr int64_t kSmallestPage = 512;
  return bytes_of(connection.path()) % kSmallestPage == 0;
}

Result<Done> set_up(const SqliteConnection& connection, DatabaseAccess access, const DatabaseLimits& limits) {
  // The file may be malicious: run nothing from its schema, and check its pages.
  for (const char* const pragma : {"PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON", "PRAGMA mmap_size = 0",
                                   "PRAGMA cache_size = -65536"}) {
    Result<Done> set = connection.run(pragma);
    if (!set) return set;
  }
  if (access != DatabaseAccess::write) return check_database(connection);
  const Result<bool> fresh = is_fresh(connection);
  if (!fresh) return fresh.error();
  if (!*fresh) {
    Result<Done> checked = check_database(connection);
    if (!checked) return checked;
  }
  Result<Done> logged = log_ahead(connection, limits.busy_milliseconds);
  if (!logged) return logged;
  Result<Done> synchronous = connection.run("PRAGMA synchronous = NORMAL");
  if (!synchronous) return synchronous;
  if (limits.pages > 0) {
    Result<Done> limited = connection.run(concat("PRAGMA max_page_count = ", limits.pages));
    if (!limited) return limited;
  }
  if (!*fresh) return Done{};
  Result<Done> created = create_tables(connection);
  if (!created) return created;
  return check_database(connection);
}

// A read-only connection. On a medium where SQLite cannot create its own files, the database is opened as immutable.
Result<SqliteConnection> open_to_read(const std::string& file, int busy_milliseconds) {
  Result<SqliteConnection> connection = SqliteConnection::open(file, SqliteMode::read, busy_milliseconds);
  if (!connection) return connection;
  const Result<int64_t> works = connection->integer("SELECT count(*) FROM sqlite_master");
  if (works || connection->was_busy() || bytes_of(file + "-wal") > 0) return connection;
  return SqliteConnection::open(file, SqliteMode::read_immutable, busy_milliseconds);
}

// ---- Salvaging ----

// Reads rows by id range. A range that cannot be read is split in halves, down to single rows.
class Salvage {
 public:
  explicit Salvage(SqliteStatement statement) : statement_(std::move(statement)) {}

  void range(int64_t first, int64_t last) {
    const size_t before = rows_.size();
    if (read(first, last)) return;
    rows_.resize(before);
    if (first == last) return;
    const int64_t middle = first + (last - first) / 2;
    range(first, middle);
    range(middle + 1, last);
  }

  std::vector<MeasurementRow> take() {
    // A damaged tree may contain a row twice.
    std::sort(rows_.begin(), rows_.end());
    const auto same_key = [](const MeasurementRow& a, const MeasurementRow& b) { return a.key == b.key; };
    rows_.erase(std::unique(rows_.begin(), rows_.end(), same_key), rows_.end());
    return std::move(rows_);
  }

 private:
  bool read(int64_t first, int64_t last) {
    statement_.reset();
    statement_.bind_integer(1, first);
    statement_.bind_integer(2, last);
    while (true) {
      const Result<bool> more = statement_.step();
      if (!more) return false;
      if (!*more) return true;
      std::optional<MeasurementRow> row = row_at(statement_);
      if (row) rows_.push_back(std::move(*row));
    }
  }

  SqliteStatement statement_;
  std::vector<MeasurementRow> rows_;
};

}  // namespace

Result<Database> Database::open(const std::string& path, DatabaseAccess access, const DatabaseLimits& limits) {
  if (access == DatabaseAccess::write) {
    const Result<Done> created = create_database_file(path);
    if (!created) return created.error();
  }
  const Result<std::string> file =
      access == DatabaseAccess::merge ? readable_database_file(path) : own_database_file(path);
  if (!file) return file.error();
  Result<SqliteConnection> connection = access == DatabaseAccess::write
                                            ? SqliteConnection::open(*file, SqliteMode::write, limits.busy_milliseconds)
                                            : open_to_read(*file, limits.busy_milliseconds);
  if (!connection) return connection.error();
  if (access == DatabaseAccess::read) {
    const Result<bool> fresh = is_fresh(*connection);
    if (!fresh) return fresh.error();
    if (*fresh) return open(path, DatabaseAccess::write, limits);
  }
  const Result<Done> ready = set_up(*connection, access, limits);
  if (!ready) return ready.error();
  return Database(std::move(*connection));
}

Result<Done> Database::put(const MeasurementRow& row) { return put(std::vector<MeasurementRow>{row}); }

Result<Done> Database::put(const std::vector<MeasurementRow>& rows) {
  return in_transaction(connection_, [&]() -> Result<Done> {
    Result<RowWriter> writer = RowWriter::make(connection_);
    if (!writer) return writer.error();
    for (const MeasurementRow& row : rows) {
      Result<Done> written = writer->write(row);
      if (!written) return written;
    }
    return Done{};
  });
}

Result<std::optional<MeasurementRow>> Database::find(const MeasurementKey& key) const {
  Result<SqliteStatement> statement = prepare_find(connection_);
  if (!statement) return statement.error();
  return find_row(*statement, key, connection_.path());
}

Result<std::vector<MeasurementRow>> Database::all_of(const std::string& device, const std::string& partition) const {
  return all_of(device, std::vector<std::string>{partition});
}

Result<std::vector<MeasurementRow>> Database::all_of(const std::string& device,
                                                     const std::vector<std::string>& partitions) const {
  constexpr size_t kParameters = 500;  // every SQLite build allows 999
  const std::set<std::string> different(partitions.begin(), partitions.end());
  std::vector<MeasurementRow> all;
  for (auto partition = different.begin(); partition != different.end();) {
    std::vector<int64_t> ids;
    for (; partition != different.end() && ids.size() < kParameters; ++partition) ids.push_back(text_id(*partition));
    const std::vector<std::string> marks(ids.size(), "?");
    Result<SqliteStatement> statement =
        connection_.prepare(concat(kSelect, "WHERE m.device = ? AND m.partition IN (", join(marks, ", "), ")"));
    if (!statement) return statement.error();
    int parameter = 0;
    statement->bind_integer(++parameter, text_id(device));
    for (const int64_t id : ids) statement->bind_integer(++parameter, id);
    Result<std::vector<MeasurementRow>> rows = read_rows(*statement, connection_.path());
    if (!rows) return rows;
    for (MeasurementRow& row : *rows) {
      if (row.key.device != device || !different.contains(row.key.partition))
        return damaged_database(connection_.path(), "a row has the key of another row");
      all.push_back(std::move(row));
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

Result<std::vector<MeasurementRow>> Database::all() const {
  Result<SqliteStatement> statement = connection_.prepare(kSelect);
  if (!statement) return statement.error();
  return read_rows(*statement, connection_.path());
}

Result<std::vector<DeviceSummary>> Database::list() const {
  const Result<std::vector<MeasurementRow>> rows = all();
  if (!rows) return rows.error();
  std::vector<DeviceSummary> devices;
  const MeasurementKey* previous = nullptr;
  for (const MeasurementRow& row : *rows) {
    const bool new_device = devices.empty() || devices.back().device != row.key.device;
    if (new_device) devices.push_back({row.key.device, 0, 0, {}, row.when, row.when});
    DeviceSummary& device = devices.back();
    ++device.rows;
    if (new_device || previous->partition != row.key.partition) ++device.partitions;
    ++device.outcomes[row.outcome];
    device.first = std::min(device.first, row.when);
    device.last = std::max(device.last, row.when);
    previous = &row.key;
  }
  return devices;
}

Result<Merged> Database::merge(const std::vector<MeasurementRow>& rows) {
  return in_transaction(connection_, [&]() -> Result<Merged> {
    Merged merged;
    Result<RowWriter> writer = RowWriter::make(connection_);
    if (!writer) return writer.error();
    Result<SqliteStatement> find = prepare_find(connection_);
    if (!find) return find.error();
    for (const MeasurementRow& row : rows) {
      const Result<std::optional<MeasurementRow>> ours = find_row(*find, row.key, connection_.path());
      if (!ours) return ours.error();
      const bool wins = !*ours || replaces(row, **ours);
      ++(!*ours ? merged.added : **ours == row ? merged.known : wins ? merged.replaced : merged.kept);
      if (!wins) continue;
      const Result<Done> written = writer->write(row);
      if (!written) return written.error();
    }
    return merged;
  });
}

Result<Merged> Database::merge_from(const std::string& path) {
  const Result<Database> other = Database::open(path, DatabaseAccess::merge);
  if (!other) return other.error();
  const Result<std::vector<MeasurementRow>> rows = other->all();
  if (!rows) return rows.error();
  return merge(*rows);
}

Result<std::string> Database::export_lines() const {
  Result<std::vector<MeasurementRow>> rows = all();
  if (!rows) return rows.error();
  return to_lines(std::move(*rows));
}

Result<Merged> Database::import_lines(std::string_view text) {
  const Result<std::vector<MeasurementRow>> rows = from_lines(text);
  if (!rows) return rows.error();
  return merge(*rows);
}

Result<std::vector<MeasurementRow>> salvage_database(const std::string& path) {
  const Result<std::string> file = own_database_file(path);
  if (!file) return file.error();
  const Result<SqliteConnection> connection = open_to_read(*file, DatabaseLimits().busy_milliseconds);
  if (!connection) return connection.error();
  // The second pragma makes SQLite accept a file that is shorter than its header says.
  for (const char* const pragma : {"PRAGMA trusted_schema = OFF", "PRAGMA writable_schema = ON"}) {
    const Result<Done> set = connection->run(pragma);
    if (!set) return set.error();
  }
  // By id: this reads the rows themselves and not their index, which may be damaged.
  Result<SqliteStatement> statement = connection->prepare(concat(kSelect, "WHERE m.id BETWEEN ?1 AND ?2"));
  if (!statement) return statement.error();
  // Ids are consecutive, and no row takes fewer bytes, so this bounds the largest id.
  constexpr int64_t kFewestBytes = 64;
  Salvage salvage(std::move(*statement));
  salvage.range(1, 1 + (bytes_of(*file) + bytes_of(*file + "-wal")) / kFewestBytes);
  return salvage.take();
}

}  // namespace millrace
