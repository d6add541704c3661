// Rows in and out of the database, merging, and several processes at once.
#include "measure/database.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "base/text.h"
#include "measure/database_fixture.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

TEST(Sqlite, AMissingLibraryIsReported) {
  const Result<const SqliteLibrary*> missing = load_sqlite("libnot_there.so.0");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::unavailable);
  EXPECT_NE(to_string(missing.error()).find("apt-get install libsqlite3-0"), std::string::npos);
  const Result<const SqliteLibrary*> another = load_sqlite("libm.so.6");
  ASSERT_FALSE(another);
  EXPECT_EQ(another.error().kind, ErrorKind::unavailable);
}

// ---- Rows ----

TEST_F(DatabaseTest, RowsComeBackExactly) {
  MeasurementRow awkward = row_of("d", "p '); DROP TABLE text; --", "c\n\"±\"");
  awkward.seconds = awkward.low = 0.1 + 0.2;
  awkward.high = 1e300;
  awkward.samples = INT64_MAX;
  awkward.detail = "d_x[17] is 0.3, expected 0.5 ± 1e-06";
  MeasurementRow refused = row_of("d", "p", "c");
  refused.outcome = Outcome::out_of_memory;
  refused.seconds = refused.low = refused.high = 0;
  refused.samples = 0;
  {
    Database database = opened(path());
    ASSERT_TRUE(database.put(awkward));
    ASSERT_TRUE(database.put(refused));
  }
  const Database database = opened(path(), DatabaseAccess::read);
  for (const MeasurementRow& row : {awkward, refused}) {
    const Result<std::optional<MeasurementRow>> found = database.find(row.key);
    ASSERT_TRUE(found) << to_string(found.error());
    EXPECT_EQ(*found, row);
  }
  EXPECT_EQ(*database.find({"d", "p", "other"}), std::nullopt);
  EXPECT_EQ(*database.find({"other", "p", "c"}), std::nullopt);
}

TEST_F(DatabaseTest, ANewMeasurementReplacesTheOld) {
  Database database = opened(path());
  MeasurementRow row = numbered(1);
  ASSERT_TRUE(database.put(row));
  row.outcome = Outcome::crashed;
  row.detail = "signal 11";
  ASSERT_TRUE(database.put(row));
  EXPECT_EQ(**database.find(row.key), row);
  EXPECT_EQ(database.all()->size(), 1U);
}

TEST_F(DatabaseTest, PartitionsAreFetchedTogether) {
  std::vector<MeasurementRow> rows;
  for (int partition = 0; partition < 1200; ++partition)
    for (const char* const candidate : {"a", "b"})
      rows.push_back(row_of("H200", concat("partition ", partition), candidate));
  rows.push_back(row_of("another", "partition 1", "a"));
  Database database = opened(path());
  put(database, rows);
  EXPECT_EQ(database.all_of("H200", "partition 7")->size(), 2U);
  EXPECT_EQ(database.all_of("another", "partition 7")->size(), 0U);
  std::vector<std::string> partitions = {"absent", "partition 1", "partition 1"};
  EXPECT_EQ(*database.all_of("H200", partitions),
            (std::vector<MeasurementRow>{row_of("H200", "partition 1", "a"), row_of("H200", "partition 1", "b")}));
  for (int partition = 0; partition < 1100; ++partition) partitions.push_back(concat("partition ", partition));
  EXPECT_EQ(database.all_of("H200", partitions)->size(), 2200U);
  EXPECT_EQ(database.all_of("H200", std::vector<std::string>())->size(), 0U);
}

TEST_F(DatabaseTest, OfManyRowsAllOrNoneAreWritten) {
  std::vector<MeasurementRow> rows = numbered_rows(5);
  rows.push_back(numbered(9));
  rows.back().seconds = -1;
  Database database = opened(path());
  const Result<Done> refused = database.put(rows);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::bad_input);
  EXPECT_EQ(database.all()->size(), 0U);
  ASSERT_TRUE(database.put(numbered(1)));  // the database is still usable
}

TEST_F(DatabaseTest, ListsDevices) {
  std::vector<MeasurementRow> rows = {row_of("b", "p1", "1"), row_of("b", "p1", "2"), row_of("b", "p2", "1"),
                                      row_of("a", "p2", "1")};
  rows[1].outcome = Outcome::wrong;
  rows[1].when = "2024-05-30T12:00:00Z";
  Database database = opened(path());
  put(database, rows);
  const Result<std::vector<DeviceSummary>> devices = database.list();
  ASSERT_TRUE(devices) << to_string(devices.error());
  ASSERT_EQ(devices->size(), 2U);
  EXPECT_EQ((*devices)[0].device, "a");
  const DeviceSummary& b = (*devices)[1];
  EXPECT_EQ(b.rows, 3);
  EXPECT_EQ(b.partitions, 2);
  EXPECT_EQ(b.outcomes, (std::map<Outcome, int64_t>{{Outcome::measured, 2}, {Outcome::wrong, 1}}));
  EXPECT_EQ(b.first, "2024-05-30T12:00:00Z");
  EXPECT_EQ(b.last, "2024-05-31T12:00:00Z");
}

// ---- Merging ----

TEST_F(DatabaseTest, TheLaterRowWinsAndMergingAgainChangesNothing) {
  MeasurementRow older = numbered(1);
  older.when = "2024-01-01T00:00:00Z";
  MeasurementRow newer = numbered(2);
  newer.when = "2025-01-01T00:00:00Z";
  made({numbered(0), numbered(1), numbered(2), numbered(3)}, "other.db");
  Database database = opened(path());
  put(database, {numbered(0), older, newer, numbered(4)});
  const Result<Merged> merged = database.merge_from(path("other.db"));
  ASSERT_TRUE(merged) << to_string(merged.error());
  EXPECT_EQ(*merged, (Merged{1, 1, 1, 1}));
  const std::string after = *database.export_lines();
  EXPECT_EQ(*database.merge_from(path("other.db")), (Merged{0, 0, 1, 3}));
  EXPECT_EQ(*database.export_lines(), after);
  EXPECT_EQ(**database.find(newer.key), newer);
  EXPECT_EQ(**database.find(older.key), numbered(1));
}

TEST_F(DatabaseTest, TheOrderOfMergingDoesNotMatter) {
  MeasurementRow tie = numbered(1);
  tie.samples = 99;
  made({numbered(1), numbered(2)}, "a.db");
  made({tie, numbered(3)}, "b.db");
  Database one = opened(path("one.db"));
  Database two = opened(path("two.db"));
  for (const char* const name : {"a.db", "b.db"}) ASSERT_TRUE(one.merge_from(path(name)));
  for (const char* const name : {"b.db", "a.db"}) ASSERT_TRUE(two.merge_from(path(name)));
  EXPECT_EQ(*one.export_lines(), *two.export_lines());
}

TEST_F(DatabaseTest, MergingFromItselfChangesNothing) {
  Database database = opened(path());
  put(database, numbered_rows(10));
  const Result<Merged> merged = database.merge_from(path());
  ASSERT_TRUE(merged) << to_string(merged.error());
  EXPECT_EQ(*merged, (Merged{0, 0, 0, 10}));
}

TEST_F(DatabaseTest, ExportedLinesImportIntoTheSame) {
  Database database = opened(path());
  put(database, numbered_rows(50));
  const std::string lines = *database.export_lines();
  Database copy = opened(path("copy.db"));
  EXPECT_EQ(*copy.import_lines(lines), (Merged{50, 0, 0, 0}));
  EXPECT_EQ(*copy.import_lines(lines), (Merged{0, 0, 0, 50}));
  EXPECT_EQ(*copy.export_lines(), lines);
  const Result<Merged> bad = copy.import_lines(concat(to_lines({numbered(99)}), "nonsense\n"));
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().diagnostics.front().line, 2);
  EXPECT_EQ(*copy.export_lines(), lines);
}

// ---- Several processes ----

TEST_F(DatabaseTest, TwoProcessesWriteAtOnce) {
  constexpr int kRows = 1000;
  const auto write = [&](int first) {
    Result<Database> database = Database::open(path());
    if (!database) return false;
    for (int k = first; k < first + kRows; ++k)
      if (!database->put(numbered(k))) return false;
    return true;
  };
  // Both find no file.
  const pid_t one = start_process([&] { return write(0); });
  const pid_t two = start_process([&] { return write(kRows); });
  EXPECT_TRUE(succeeded(one));
  EXPECT_TRUE(succeeded(two));
  EXPECT_EQ(all(path()), numbered_rows(2 * kRows));
}

TEST_F(DatabaseTest, ManyProcessesMakeTheFileAtOnce) {
  for (int round = 0; round < 5; ++round) {
    const std::string file = path(concat(round, ".db"));
    std::vector<pid_t> children;
    for (int k = 0; k < 6; ++k) {
      children.push_back(start_process([&, k] {
        Result<Database> database = Database::open(file);
        return database && database->put(numbered(k));
      }));
    }
    for (const pid_t child : children) EXPECT_TRUE(succeeded(child));
    EXPECT_EQ(all(file), numbered_rows(6));
  }
}

TEST_F(DatabaseTest, AKilledWriterLosesAtMostTheRowInFlight) {
  int written = 0;
  for (int round = 0; round < 15; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = start_process([&] {
      Result<Database> database = Database::open(path());
      for (int k = written; database && database->put(numbered(k)); ++k)
        if (write(pipe_ends[1], "x", 1) != 1) break;  // the row is stored
      return false;
    });
    close(pipe_ends[1]);
    // Kill it in the middle of its next action, which differs from round to round.
    char byte = 0;
    for (int k = 0; k < 1 + 3 * round; ++k) ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1);
    kill(child, SIGKILL);
    int promised = 1 + 3 * round;
    while (read(pipe_ends[0], &byte, 1) == 1) ++promised;
    close(pipe_ends[0]);
    EXPECT_FALSE(succeeded(child));
    const auto there = static_cast<int>(all(path()).size());
    EXPECT_GE(there, written + promised);
    EXPECT_LE(there, written + promised + 1);
    EXPECT_EQ(all(path()), numbered_rows(there));
    written = there;
  }
}

TEST_F(DatabaseTest, ReadersDoNotWaitForAWriterAndWritersGiveUp) {
  Database database = opened(path());
  put(database, numbered_rows(3));
  const Result<SqliteConnection> other = SqliteConnection::open(path(), SqliteMode::write, 0);
  ASSERT_TRUE(other);
  ASSERT_TRUE(other->run("BEGIN IMMEDIATE"));
  Result<Database> impatient = Database::open(path(), DatabaseAccess::write, {20, 0});
  ASSERT_TRUE(impatient) << to_string(impatient.error());
  EXPECT_EQ(*impatient->all(), numbered_rows(3));
  const Result<Done> refused = impatient->put(numbered(9));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::failed);
  EXPECT_NE(to_string(refused.error()).find("another process has locked"), std::string::npos);
  ASSERT_TRUE(other->run("ROLLBACK"));
  EXPECT_TRUE(impatient->put(numbered(9)));
}

TEST_F(DatabaseTest, AFileLockedWholeIsAnError) {
  made(numbered_rows(3));
  const Result<SqliteConnection> other = SqliteConnection::open(path(), SqliteMode::write, 0);
  ASSERT_TRUE(other);
  ASSERT_TRUE(other->run("PRAGMA locking_mode = EXCLUSIVE"));
  ASSERT_TRUE(other->run("BEGIN EXCLUSIVE"));
  for (const DatabaseAccess access : {DatabaseAccess::write, DatabaseAccess::read, DatabaseAccess::merge})
    expect_error(Database::open(path(), access, {20, 0}), ErrorKind::failed, "another process has locked");
}

TEST_F(DatabaseTest, ReadsFromAMediumThatCannotBeWritten) {
  made(numbered_rows(3), "a ?#%.db");
  const auto read = [&](bool writing) {
    Result<Database> database =
        Database::open(path("a ?#%.db"), writing ? DatabaseAccess::write : DatabaseAccess::merge);
    if (!database) return false;
    return writing ? static_cast<bool>(database->put(numbered(7))) : *database->all() == numbered_rows(3);
  };
  fs::permissions(path("a ?#%.db"), fs::perms(0444));
  fs::permissions(folder_, fs::perms(0555));
  const auto as_user = [&](bool writing) {
    return succeeded(start_process([&] { return (geteuid() != 0 || setuid(65534) == 0) && read(writing); }));
  };
  const bool reads = as_user(false);
  const bool writes = as_user(true);
  fs::permissions(folder_, fs::perms(0755));
  EXPECT_TRUE(reads);
  EXPECT_FALSE(writes);
}

TEST_F(DatabaseTest, ManyRowsStaySmall) {
  std::vector<MeasurementRow> rows;
  const std::string device(500, 'd');
  const std::string partition(500, 'p');
  for (int k = 0; k < 5000; ++k) rows.push_back(row_of(device, partition, concat("candidate ", k)));
  made(rows);
  EXPECT_LT(fs::file_size(path()) / rows.size(), 250U);
}

}  // namespace
}  // namespace millrace
