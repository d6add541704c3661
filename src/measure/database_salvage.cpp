// Rescues the intact rows of a damaged database.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "measure/database.h"
#include "measure/database_file.h"
#include "measure/database_rows.h"
#include "measure/database_setup.h"

namespace millrace {
namespace {

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
  salvage.range(1, 1 + (bytes_of_file(*file) + bytes_of_file(*file + "-wal")) / kFewestBytes);
  return salvage.take();
}

}  // namespace millrace
