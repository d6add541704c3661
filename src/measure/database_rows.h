// Reads and writes rows of the database's tables. Test: tests/measure/database_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "measure/measurement_row.h"
#include "measure/sqlite.h"
#include "millrace/result.h"

namespace millrace {

// The key of a text in the table of texts.
int64_t text_id(std::string_view text);

// Selects rows in the form that row_at() reads; callers append a WHERE clause.
// Outer joins, so that a missing text shows as NULL and not as a missing row.
inline constexpr std::string_view kSelect =
    "SELECT d.text, p.text, c.text, m.outcome, m.seconds, m.low, m.high, m.samples, m.detail, m.taken, m.hash "
    "FROM measurement m LEFT JOIN text d ON d.id = m.device LEFT JOIN text p ON p.id = m.partition "
    "LEFT JOIN text c ON c.id = m.candidate ";

// The current row of a kSelect statement; nothing if it is not intact.
std::optional<MeasurementRow> row_at(const SqliteStatement& statement);

// The statement's remaining rows, sorted by key.
Result<std::vector<MeasurementRow>> read_rows(SqliteStatement& statement, const std::string& path);

// A statement for find_row(), which may be used many times.
Result<SqliteStatement> prepare_find(const SqliteConnection& connection);
Result<std::optional<MeasurementRow>> find_row(SqliteStatement& statement, const MeasurementKey& key,
                                               const std::string& path);

// Runs `work` in a transaction and rolls back if it fails. Fails if somebody removed the file: SQLite would go on to
// write where nobody can read.
template <class Work>
auto in_transaction(const SqliteConnection& connection, Work work) -> decltype(work()) {
  if (!connection.is_in_place()) return displaced_database(connection.path());
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
  // The connection must outlive it.
  static Result<RowWriter> make(const SqliteConnection& connection);

  Result<Done> write(MeasurementRow row);

 private:
  RowWriter(const SqliteConnection& connection, SqliteStatement find_text, SqliteStatement add_text,
            SqliteStatement add_row)
      : connection_(connection),
        find_text_(std::move(find_text)),
        add_text_(std::move(add_text)),
        add_row_(std::move(add_row)) {}

  Result<Done> write_text(int64_t id, const std::string& text);

  const SqliteConnection& connection_;
  SqliteStatement find_text_;
  SqliteStatement add_text_;
  SqliteStatement add_row_;
  std::set<int64_t> written_;  // ids of texts
};

}  // namespace millrace
