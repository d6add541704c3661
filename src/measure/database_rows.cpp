#include "measure/database_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/text.h"

namespace millrace {
namespace {

// FNV-1a, so that changing any one byte changes the result.
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

int64_t row_hash(const MeasurementRow& row) {
  Hash hash;
  for (const std::string* text : {&row.key.device, &row.key.partition, &row.key.candidate, &row.detail, &row.when})
    hash.add(*text);
  hash.add(static_cast<uint64_t>(row.outcome));
  for (const double value : {row.seconds, row.low, row.high}) hash.add(std::bit_cast<uint64_t>(value));
  hash.add(static_cast<uint64_t>(row.samples));
  return hash.value();
}

}  // namespace

int64_t text_id(std::string_view text) {
  Hash hash;
  hash.add(text);
  return hash.value();
}

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

Result<RowWriter> RowWriter::make(const SqliteConnection& connection) {
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

Result<Done> RowWriter::write(MeasurementRow row) {
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

Result<Done> RowWriter::write_text(int64_t id, const std::string& text) {
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

}  // namespace millrace
