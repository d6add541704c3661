// The database of measurements: what every candidate took on every device, kept between runs in one SQLite file.
//
// What it promises:
// - Several processes may write at once; readers never wait. What put() has written survives a kill at any moment.
//   (A loss of power may take the last rows with it, and damages nothing.)
// - A row that comes out is one that was put in: each carries a check of all its values and its key, and the file's
//   structure is verified when it is opened. A file that fails either gives an error that says how to go on.
// - A file of a later schema, of another program or of another user is refused and left as it is.
//
// The long texts are stored once, under the hash of the text; a row refers to its three by those.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure/measurement_row.h"
#include "measure/sqlite.h"
#include "millrace/result.h"

namespace millrace {

enum class DatabaseAccess {
  write,  // our own; made when there is none
  read,   // our own
  merge,  // read, and anybody's
};

struct DatabaseLimits {
  int busy_milliseconds = 10'000;  // how long to wait for another process that writes
  int64_t pages = 0;               // of 4 KiB, that the file may grow to; 0: as its disk allows
};

// What became of another database's rows.
struct Merged {
  int64_t added = 0;
  int64_t replaced = 0;  // ours were older
  int64_t kept = 0;      // ours are newer
  int64_t known = 0;     // the same in both

  bool operator==(const Merged&) const = default;
};

struct DeviceSummary {
  std::string device;
  int64_t rows = 0;
  int64_t partitions = 0;
  std::map<Outcome, int64_t> outcomes;
  std::string first;  // times of its oldest and newest row
  std::string last;
};

class Database {
 public:
  static Result<Database> open(const std::string& path, DatabaseAccess access = DatabaseAccess::write,
                               const DatabaseLimits& limits = {});

  // Rows replace those with the same key. Of many, all or none are written.
  Result<Done> put(const MeasurementRow& row);
  Result<Done> put(const std::vector<MeasurementRow>& rows);

  Result<std::optional<MeasurementRow>> find(const MeasurementKey& key) const;
  // In the order of the keys.
  Result<std::vector<MeasurementRow>> all_of(const std::string& device, const std::string& partition) const;
  Result<std::vector<MeasurementRow>> all_of(const std::string& device,
                                             const std::vector<std::string>& partitions) const;
  Result<std::vector<MeasurementRow>> all() const;
  Result<std::vector<DeviceSummary>> list() const;

  // The later of two rows with the same key wins. All or nothing.
  Result<Merged> merge(const std::vector<MeasurementRow>& rows);
  Result<Merged> merge_from(const std::string& path);
  Result<std::string> export_lines() const;
  Result<Merged> import_lines(std::string_view text);

 private:
  explicit Database(SqliteConnection connection) : connection_(std::move(connection)) {}

  SqliteConnection connection_;
};

// The rows that can still be read of a damaged database: those that are as they were written.
Result<std::vector<MeasurementRow>> salvage_database(const std::string& path);

}  // namespace millrace
