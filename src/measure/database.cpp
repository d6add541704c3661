#include "measure/database.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "measure/database_file.h"
#include "measure/database_rows.h"
#include "measure/database_setup.h"

namespace millrace {

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

Result<std::vector<MeasurementRow>> Database::latest_of(const std::string& device, int64_t most) const {
  Result<SqliteStatement> statement =
      connection_.prepare(concat(kSelect, "WHERE m.device = ? ORDER BY m.taken DESC LIMIT ?"));
  if (!statement) return statement.error();
  statement->bind_integer(1, text_id(device));
  statement->bind_integer(2, most);
  return read_rows(*statement, connection_.path());
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
  if (Result<Done> named = merge_programs(*other); !named) return named.error();
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

}  // namespace millrace
