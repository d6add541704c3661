// The names of the programs that were explored, and the deletion of rows.
#include "base/text.h"
#include "measure/database.h"
#include "measure/database_rows.h"

namespace millrace {
namespace {

constexpr const char* kAddProgram = "INSERT OR IGNORE INTO program(name, device, partition) VALUES (?, ?, ?)";

// A database that was last written by a version without program names has no table for them.
Result<bool> has_programs(const SqliteConnection& connection) {
  const Result<int64_t> tables = connection.integer("SELECT count(*) FROM sqlite_master WHERE name = 'program'");
  if (!tables) return tables.error();
  return *tables > 0;
}

Result<Done> add_program(SqliteStatement& statement, const std::string& name, int64_t device, int64_t partition) {
  statement.reset();
  statement.bind_text(1, name);
  statement.bind_integer(2, device);
  statement.bind_integer(3, partition);
  const Result<bool> added = statement.step();
  return added ? Result<Done>(Done{}) : Result<Done>(added.error());
}

// The ids of the devices whose text does not contain `text`. An error if none does: all rows would be deleted.
Result<std::vector<std::string>> devices_without(const SqliteConnection& connection, const std::string& text) {
  Result<SqliteStatement> statement =
      connection.prepare("SELECT DISTINCT m.device, d.text FROM measurement m LEFT JOIN text d ON d.id = m.device");
  if (!statement) return statement.error();
  std::vector<std::string> ids;
  size_t devices = 0;
  for (Result<bool> row = statement->step(); !row || *row; row = statement->step()) {
    if (!row) return row.error();
    ++devices;
    if (statement->text(1).value_or("").find(text) == std::string::npos)
      ids.push_back(concat(statement->integer(0).value_or(0)));
  }
  if (devices > 0 && ids.size() == devices)
    return Error::make(ErrorKind::bad_input,
                       concat("no device's text contains '", text, "', so all rows would be deleted"),
                       "see millrace db list for the devices, or delete the file if you mean all");
  return ids;
}

// The conditions as SQL. `?1` is the day.
Result<std::string> condition_of(const SqliteConnection& connection, const PrunedRows& rows) {
  std::string condition = "?1 = ?1";
  if (!rows.before.empty()) condition += " AND taken < ?1";
  if (rows.refused) condition += concat(" AND outcome <> ", static_cast<int>(Outcome::measured));
  if (!rows.other_than.empty()) {
    const Result<std::vector<std::string>> ids = devices_without(connection, rows.other_than);
    if (!ids) return ids.error();
    condition += concat(" AND device IN (", join(*ids, ", "), ")");
  }
  return condition;
}

Result<int64_t> count_where(const SqliteConnection& connection, const std::string& condition, const std::string& day) {
  Result<SqliteStatement> statement = connection.prepare(concat("SELECT count(*) FROM measurement WHERE ", condition));
  if (!statement) return statement.error();
  statement->bind_text(1, day);
  const Result<bool> row = statement->step();
  if (!row) return row.error();
  return statement->integer(0).value_or(0);
}

}  // namespace

Result<Done> Database::name_program(const std::string& name, const std::string& device,
                                    const std::vector<std::string>& partitions) {
  return in_transaction(connection_, [&]() -> Result<Done> {
    Result<SqliteStatement> statement = connection_.prepare(kAddProgram);
    if (!statement) return statement.error();
    for (const std::string& partition : partitions) {
      if (Result<Done> added = add_program(*statement, name, text_id(device), text_id(partition)); !added) return added;
    }
    return Done{};
  });
}

Result<std::vector<ProgramSummary>> Database::programs() const {
  std::vector<ProgramSummary> programs;
  const Result<bool> there = has_programs(connection_);
  if (!there) return there.error();
  if (!*there) return programs;
  Result<SqliteStatement> statement = connection_.prepare(
      "SELECT p.name, d.text, count(DISTINCT p.partition), count(m.id) FROM program p "
      "JOIN measurement m ON m.device = p.device AND m.partition = p.partition "
      "JOIN text d ON d.id = p.device GROUP BY p.name, p.device ORDER BY p.name, d.text");
  if (!statement) return statement.error();
  while (true) {
    const Result<bool> row = statement->step();
    if (!row) return row.error();
    if (!*row) return programs;
    programs.push_back({statement->text(0).value_or(""), statement->text(1).value_or(""),
                        statement->integer(2).value_or(0), statement->integer(3).value_or(0)});
  }
}

Result<Done> Database::merge_programs(const Database& other) {
  const Result<bool> there = has_programs(other.connection_);
  if (!there) return there.error();
  if (!*there) return Done{};
  Result<SqliteStatement> theirs = other.connection_.prepare("SELECT name, device, partition FROM program");
  if (!theirs) return theirs.error();
  return in_transaction(connection_, [&]() -> Result<Done> {
    Result<SqliteStatement> statement = connection_.prepare(kAddProgram);
    if (!statement) return statement.error();
    while (true) {
      const Result<bool> row = theirs->step();
      if (!row) return row.error();
      if (!*row) return Done{};
      if (Result<Done> added = add_program(*statement, theirs->text(0).value_or(""), theirs->integer(1).value_or(0),
                                           theirs->integer(2).value_or(0));
          !added)
        return added;
    }
  });
}

Result<int64_t> Database::count(const PrunedRows& rows) const {
  const Result<std::string> condition = condition_of(connection_, rows);
  if (!condition) return condition.error();
  return count_where(connection_, *condition, rows.before);
}

Result<int64_t> Database::prune(const PrunedRows& rows) {
  Result<int64_t> deleted = in_transaction(connection_, [&]() -> Result<int64_t> {
    const Result<std::string> condition = condition_of(connection_, rows);
    if (!condition) return condition.error();
    const Result<int64_t> found = count_where(connection_, *condition, rows.before);
    if (!found) return found;
    Result<SqliteStatement> statement = connection_.prepare(concat("DELETE FROM measurement WHERE ", *condition));
    if (!statement) return statement.error();
    statement->bind_text(1, rows.before);
    if (const Result<bool> done = statement->step(); !done) return done.error();
    for (const char* const sql :
         {"DELETE FROM program WHERE NOT EXISTS (SELECT 1 FROM measurement m WHERE m.device = program.device AND "
          "m.partition = program.partition)",
          "DELETE FROM text WHERE id NOT IN (SELECT device FROM measurement UNION SELECT partition FROM measurement "
          "UNION SELECT candidate FROM measurement)"}) {
      if (Result<Done> cleaned = connection_.run(sql); !cleaned) return cleaned.error();
    }
    return found;
  });
  if (!deleted) return deleted;
  // Returns the space to the disk. While another process uses the file, it stays for later rows.
  static_cast<void>(connection_.run("VACUUM"));
  return deleted;
}

}  // namespace millrace
