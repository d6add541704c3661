#include "measure/database_setup.h"

#include <sys/stat.h>

#include <array>
#include <chrono>
#include <string_view>
#include <thread>

#include "base/text.h"
#include "measure/database_rows.h"

namespace millrace {
namespace {

constexpr int64_t kApplicationId = 0x4D72'6163;  // "Mrac", in the file's header: not another program's database
constexpr int64_t kDatabaseVersion = 3;
constexpr int64_t kWithoutPrograms = 2;  // a version that had no names of programs; still read, and upgraded to write

constexpr std::string_view kProgramTable = "program";

struct SchemaTable {
  std::string_view name;
  std::string_view sql;
};
constexpr std::array<SchemaTable, 3> kSchema = {{
    {"measurement",
     "CREATE TABLE measurement(id INTEGER PRIMARY KEY, device INTEGER NOT NULL, partition INTEGER NOT NULL, "
     "candidate INTEGER NOT NULL, outcome INTEGER NOT NULL, seconds REAL NOT NULL, low REAL NOT NULL, "
     "high REAL NOT NULL, samples INTEGER NOT NULL, detail TEXT NOT NULL, taken TEXT NOT NULL, "
     "hash INTEGER NOT NULL, UNIQUE(device, partition, candidate))"},
    {kProgramTable,
     "CREATE TABLE program(name TEXT NOT NULL, device INTEGER NOT NULL, partition INTEGER NOT NULL, "
     "UNIQUE(name, device, partition))"},
    {"text", "CREATE TABLE text(id INTEGER PRIMARY KEY, text TEXT NOT NULL)"},
}};

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

// Adds the names of programs to a database that has none.
Result<Done> upgrade(const SqliteConnection& connection) {
  const Result<int64_t> found = connection.integer("PRAGMA user_version");
  if (!found) return found.error();
  if (*found != kWithoutPrograms) return Done{};  // and no lock is needed
  return in_transaction(connection, [&]() -> Result<Done> {
    const Result<int64_t> version = connection.integer("PRAGMA user_version");
    if (!version) return version.error();
    if (*version != kWithoutPrograms) return Done{};
    for (const SchemaTable& table : kSchema) {
      if (table.name != kProgramTable) continue;
      if (Result<Done> made = connection.run(table.sql); !made) return made;
    }
    return connection.run(concat("PRAGMA user_version = ", kDatabaseVersion));
  });
}

Error foreign_database(const std::string& path) {
  return Error::make(ErrorKind::bad_input, concat("'", path, "' is an SQLite database, but not one of Millrace's"),
                     "pass the right file with --db");
}

Result<Done> check_tables(const SqliteConnection& connection, int64_t version) {
  Result<SqliteStatement> tables =
      connection.prepare("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1");
  if (!tables) return tables.error();
  for (const SchemaTable& expected : kSchema) {
    if (version == kWithoutPrograms && expected.name == kProgramTable) continue;
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
  if (*version != kDatabaseVersion && *version != kWithoutPrograms)
    return Error::make(ErrorKind::bad_input,
                       concat("'", connection.path(), "' has schema version ", *version,
                              ", which is too old; this Millrace reads version ", kDatabaseVersion),
                       "move the file elsewhere and measure again, or pass another database with --db");
  Result<Done> tables = check_tables(connection, *version);
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

}  // namespace

int64_t bytes_of_file(const std::string& file) {
  struct stat status {};
  return stat(file.c_str(), &status) == 0 ? status.st_size : 0;
}

Result<bool> is_fresh(const SqliteConnection& connection) {
  for (const char* const count : {"SELECT count(*) FROM sqlite_master", "PRAGMA application_id", "PRAGMA user_version",
                                  "SELECT max(page_count, 1) - 1 FROM pragma_page_count"}) {
    const Result<int64_t> value = connection.integer(count);
    if (!value) return value.error();
    if (*value != 0) return false;
  }
  // SQLite also treats a file of one byte as empty.
  constexpr int64_t kSmallestPage = 512;
  return bytes_of_file(connection.path()) % kSmallestPage == 0;
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
  if (!*fresh) return upgrade(connection);
  Result<Done> created = create_tables(connection);
  if (!created) return created;
  return check_database(connection);
}

Result<SqliteConnection> open_to_read(const std::string& file, int busy_milliseconds) {
  Result<SqliteConnection> connection = SqliteConnection::open(file, SqliteMode::read, busy_milliseconds);
  if (!connection) return connection;
  const Result<int64_t> works = connection->integer("SELECT count(*) FROM sqlite_master");
  if (works || connection->was_busy() || bytes_of_file(file + "-wal") > 0) return connection;
  return SqliteConnection::open(file, SqliteMode::read_immutable, busy_milliseconds);
}

}  // namespace millrace
