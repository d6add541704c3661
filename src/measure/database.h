// The measurement database: the time of every candidate on every device, kept between runs in one SQLite file. Test:
// tests/measure/database_test.cpp
//
// Guarantees:
// - Several processes may write at once; readers never wait. Rows written by put() survive a kill at any moment.
//   (A power failure may lose the last rows, but damages nothing.)
// - Every row read is a row that was written: each has a checksum over its values and key, and opening a file verifies
//   its structure. If either check fails, the error says how to proceed.
// - A file of a later schema, of another program or of another user is refused and not modified.
//
// Long texts are stored once, keyed by their hash; a row refers to its three texts by these hashes.
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
  write,  // the user's own file; created if missing
  read,   // the user's own file
  merge,  // read-only, any user's file
};

struct DatabaseLimits {
  int busy_milliseconds = 10'000;  // how long to wait for another writer
  int64_t pages = 0;               // maximum file size in pages of 4 KiB; 0: no limit
};

// What merging did with the other database's rows.
struct Merged {
  int64_t added = 0;
  int64_t replaced = 0;  // ours were older
  int64_t kept = 0;      // ours are newer
  int64_t known = 0;     // identical in both

  bool operator==(const Merged&) const = default;
};

struct DeviceSummary {
  std::string device;
  int64_t rows = 0;
  int64_t partitions = 0;
  std::map<Outcome, int64_t> outcomes;
  std::string first;  // time of its oldest row
  std::string last;   // time of its newest row
};

// A program that was explored on a device.
struct ProgramSummary {
  std::string name;
  std::string device;
  int64_t partitions = 0;
  int64_t rows = 0;
};

// Selects the rows to delete: those that satisfy all conditions. A condition without a value is satisfied by all rows.
struct PrunedRows {
  std::string before;      // "2026-01-31": taken before this day
  std::string other_than;  // of devices whose text does not contain this
  bool refused = false;    // of candidates that were not measured
};

class Database {
 public:
  static Result<Database> open(const std::string& path, DatabaseAccess access = DatabaseAccess::write,
                               const DatabaseLimits& limits = {});

  // A row replaces the one with the same key. Writes all rows or none.
  Result<Done> put(const MeasurementRow& row);
  Result<Done> put(const std::vector<MeasurementRow>& rows);

  Result<std::optional<MeasurementRow>> find(const MeasurementKey& key) const;
  // Sorted by key.
  Result<std::vector<MeasurementRow>> all_of(const std::string& device, const std::string& partition) const;
  Result<std::vector<MeasurementRow>> all_of(const std::string& device,
                                             const std::vector<std::string>& partitions) const;
  // The latest rows of a device, at most this many; sorted by key.
  Result<std::vector<MeasurementRow>> latest_of(const std::string& device, int64_t most) const;
  Result<std::vector<MeasurementRow>> all() const;
  Result<std::vector<DeviceSummary>> list() const;

  // The names of programs are shown, never relied on: they have no checksum.
  Result<Done> name_program(const std::string& name, const std::string& device,
                            const std::vector<std::string>& partitions);
  Result<std::vector<ProgramSummary>> programs() const;

  // How many rows would be deleted.
  Result<int64_t> count(const PrunedRows& rows) const;
  // Deletes them and what only they need; returns how many.
  Result<int64_t> prune(const PrunedRows& rows);

  // The later of two rows with the same key wins. Merges all rows or none.
  Result<Merged> merge(const std::vector<MeasurementRow>& rows);
  Result<Merged> merge_from(const std::string& path);
  Result<std::string> export_lines() const;
  Result<Merged> import_lines(std::string_view text);

 private:
  explicit Database(SqliteConnection connection) : connection_(std::move(connection)) {}
  Result<Done> merge_programs(const Database& other);

  SqliteConnection connection_;
};

// The rows of a damaged database that are still intact.
Result<std::vector<MeasurementRow>> salvage_database(const std::string& path);

}  // namespace millrace
