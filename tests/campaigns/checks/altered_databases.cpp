// Altered databases: bytes of the file, rows whose hash was computed anew, and exported lines. Each is refused, or
// gives rows that a database may hold.
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <limits>
#include <memory>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "base/text.h"
#include "campaigns/checks/alter.h"
#include "campaigns/checks/slice.h"
#include "measure/database.h"
#include "measure/database_fixture.h"
#include "measure/database_rows.h"

namespace millrace::campaigns {
namespace {

constexpr int kRows = 25;

// The first row's values, each of which may be of any of SQLite's types. The hash is that of database_rows.cpp, as far
// as the values have one.
class RowHash {
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

int64_t hash_of_row(const MeasurementRow& row) {
  RowHash hash;
  for (const std::string* text : {&row.key.device, &row.key.partition, &row.key.candidate, &row.detail, &row.when})
    hash.add(*text);
  hash.add(static_cast<uint64_t>(row.outcome));
  for (const double value : {row.seconds, row.low, row.high}) hash.add(std::bit_cast<uint64_t>(value));
  hash.add(static_cast<uint64_t>(row.samples));
  return hash.value();
}

double hostile_number(std::mt19937_64& random) {
  using Limits = std::numeric_limits<double>;
  const std::array<double, 8> others = {0, -1, Limits::infinity(), -Limits::infinity(), Limits::max(), 1e-300, -0.0, 1};
  return others.at(random() % others.size());
}

std::string hostile_text(std::mt19937_64& random) {
  const std::array<std::string, 8> others = {"",          "\xff\xfe",
                                             "a\x1b[31m", std::string(100'000, 'x'),
                                             "null",      "2026-13-45T99:99:99Z",
                                             "'; DROP",   std::string("a\0b", 3)};
  return others.at(random() % others.size());
}

class AlteredDatabases {
 public:
  explicit AlteredDatabases(TemporaryDirectory folder) : folder_(std::move(folder)) {
    {
      Result<Database> database = Database::open(path("base.db"));
      EXPECT_TRUE(database && database->put(numbered_rows(kRows)));
      lines_ = *database->export_lines();
    }
    base_ = bytes_of(path("base.db"));
  }

  void check(uint64_t seed, Report& report) {
    std::mt19937_64 random(seed);
    for (const char* const suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path("m.db") + suffix);
    report.count("databases");
    switch (seed % 3) {
      case 0: write_bytes(path("m.db"), altered_bytes(random)); break;
      case 1: alter_rows(random); break;
      default: return import_altered(seed, random, report);
    }
    examine(seed, report);
  }

 private:
  std::string path(const std::string& name) const { return concat(folder_.path(), "/", name); }

  std::string altered_bytes(std::mt19937_64& random) const {
    std::string bytes = base_;
    for (uint64_t k = 1 + random() % 16; k > 0; --k) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    return bytes;
  }

  // Rows with other values and the right hash.
  void alter_rows(std::mt19937_64& random) const {
    write_bytes(path("m.db"), base_);
    const Result<SqliteConnection> connection = SqliteConnection::open(path("m.db"), SqliteMode::write, 1000);
    ASSERT_TRUE(connection);
    MeasurementRow row = numbered(static_cast<int>(random() % kRows));
    const std::array<int64_t, 3> key = {text_id(row.key.device), text_id(row.key.partition),
                                        text_id(row.key.candidate)};
    for (uint64_t k = 1 + random() % 3; k > 0; --k) {
      switch (random() % 6) {
        case 0: row.seconds = hostile_number(random); break;
        case 1: row.low = row.high = hostile_number(random); break;
        case 2: row.samples = static_cast<int64_t>(random()); break;
        case 3: row.outcome = static_cast<Outcome>(random() % 8); break;
        case 4: row.detail = hostile_text(random); break;
        default: row.when = hostile_text(random); break;
      }
    }
    Result<SqliteStatement> update = connection->prepare(
        "UPDATE measurement SET outcome = ?1, seconds = ?2, low = ?3, high = ?4, samples = ?5, detail = ?6, "
        "taken = ?7, hash = ?8 WHERE device = ?9 AND partition = ?10 AND candidate = ?11");
    ASSERT_TRUE(update);
    update->bind_integer(1, static_cast<int64_t>(row.outcome));
    update->bind_real(2, row.seconds);
    update->bind_real(3, row.low);
    update->bind_real(4, row.high);
    update->bind_integer(5, row.samples);
    update->bind_text(6, row.detail);
    update->bind_text(7, row.when);
    update->bind_integer(8, hash_of_row(row));
    for (int k = 0; k < 3; ++k) update->bind_integer(9 + k, key.at(static_cast<size_t>(k)));
    static_cast<void>(update->step());  // the schema may refuse it
  }

  void import_altered(uint64_t seed, std::mt19937_64& random, Report& report) const {
    std::string altered;
    const std::vector<std::string> lines = split(lines_, '\n');
    for (const std::string& line : lines) {
      Json row = line.empty() ? Json() : Json::parse(line);
      if (!line.empty() && random() % 8 == 0) alter(row, "candidate", random);
      altered += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    }
    Result<Database> database = Database::open(path("m.db"));
    ASSERT_TRUE(database) << to_string(database.error());
    const Result<Merged> merged = database->import_lines(altered);
    report.count(merged ? "accepted" : "refused");
    examine_rows(seed, database->all(), report);
  }

  void examine(uint64_t seed, Report& report) const {
    const Result<Database> database = Database::open(path("m.db"), DatabaseAccess::read);
    if (!database) return report.count("refused");
    const auto rows = database->all();
    report.count(rows ? "accepted" : "refused");
    examine_rows(seed, rows, report);
    static_cast<void>(database->list());
    static_cast<void>(database->programs());
    examine_rows(seed, salvage_database(path("m.db")), report);
  }

  static void examine_rows(uint64_t seed, const Result<std::vector<MeasurementRow>>& rows, Report& report) {
    if (!rows) {
      if (to_string(rows.error()).empty()) report.fail(seed, "an error without a message");
      return;
    }
    for (const MeasurementRow& row : *rows) {
      if (const std::string wrong = complaint_about(row); !wrong.empty()) report.fail(seed, wrong);
    }
  }

  TemporaryDirectory folder_;
  std::string base_;   // bytes
  std::string lines_;  // the same rows
};

}  // namespace

Check altered_databases() {
  // In memory if possible: thousands of small files are slow on a busy disk.
  Result<TemporaryDirectory> folder = TemporaryDirectory::make("/dev/shm");
  if (!folder) folder = TemporaryDirectory::make();
  const auto state = std::make_shared<AlteredDatabases>(std::move(*folder));
  return [state](uint64_t seed, Report& report) { state->check(seed, report); };
}

}  // namespace millrace::campaigns
