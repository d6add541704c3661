#include "measure/database.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>
#include <string>

#include "base/text.h"

namespace millrace {

// What GoogleTest prints of a row.
void PrintTo(const MeasurementRow& row, std::ostream* stream) { *stream << to_lines({row}); }

namespace {

namespace fs = std::filesystem;

MeasurementRow row_of(const std::string& device, const std::string& partition, const std::string& candidate) {
  return {{device, partition, candidate}, Outcome::measured, 1e-3, 0.9e-3, 1.1e-3, 30, "", "2024-05-31T12:00:00Z"};
}

MeasurementRow numbered(int k) { return row_of("H200", concat("partition ", k % 7), concat("candidate ", k)); }

std::vector<MeasurementRow> numbered_rows(int count) {
  std::vector<MeasurementRow> rows;
  for (int k = 0; k < count; ++k) rows.push_back(numbered(k));
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

// Runs `work` in a process of its own, without the test framework's end.
pid_t start_process(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work() ? 0 : 1);
  return child;
}

bool succeeded(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class DatabaseTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    // In memory if possible: thousands of small files are slow on a busy disk.
    const fs::path memory = "/dev/shm";
    const bool writable = access(memory.c_str(), W_OK | X_OK) == 0;
    folder_ = (writable ? memory : fs::path(testing::TempDir())) /
              concat("millrace_database_test_", getpid(), "_", info->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "m.db") const { return (folder_ / name).string(); }

  static Database opened(const std::string& file, DatabaseAccess access = DatabaseAccess::write) {
    Result<Database> database = Database::open(file, access);
    EXPECT_TRUE(database) << to_string(database.error());
    return std::move(*database);
  }

  static void put(Database& database, const std::vector<MeasurementRow>& rows) {
    const Result<Done> done = database.put(rows);
    ASSERT_TRUE(done) << to_string(done.error());
  }

  static std::vector<MeasurementRow> all(const std::string& file) {
    const Database database = opened(file);
    const Result<std::vector<MeasurementRow>> rows = database.all();
    EXPECT_TRUE(rows) << to_string(rows.error());
    return rows ? *rows : std::vector<MeasurementRow>();
  }

  // A closed database of these rows, in one file.
  std::string made(const std::vector<MeasurementRow>& rows, const std::string& name = "m.db") const {
    Database database = opened(path(name));
    put(database, rows);
    return path(name);
  }

  static void expect_error(const Result<Database>& result, ErrorKind kind, const std::string& partition) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, kind) << to_string(result.error());
    EXPECT_NE(to_string(result.error()).find(partition), std::string::npos) << to_string(result.error());
  }

  fs::path folder_;
};

TEST(Sqlite, AMissingLibraryIsReported) {
  const Result<const SqliteLibrary*> missing = load_sqlite("libnot_there.so.0");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::unavailable);
  EXPECT_NE(to_string(missing.error()).find("apt-get install libsqlite3-0"), std::string::npos);
  const Result<const SqliteLibrary*> another = load_sqlite("libm.so.6");
  ASSERT_FALSE(another);
  EXPECT_EQ(another.error().kind, ErrorKind::unavailable);
}

// ---- What is put in comes out ----

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
    // Killed in the middle of what it does next, which differs from round to round.
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

// ---- Files that are not as they should be ----

TEST_F(DatabaseTest, OnlyWeMayReadIt) {
  Database database = opened(path());
  ASSERT_TRUE(database.put(numbered(1)));
  for (const char* const suffix : {"", "-wal", "-shm"}) {
    struct stat status {};
    ASSERT_EQ(stat((path() + suffix).c_str(), &status), 0) << suffix;
    EXPECT_EQ(status.st_mode & 0777U, 0600U) << suffix;
  }
}

TEST_F(DatabaseTest, AFileThatOthersMayWriteIsNotTrusted) {
  made(numbered_rows(3));
  fs::permissions(path(), fs::perms(0620));
  expect_error(Database::open(path()), ErrorKind::bad_input, "chmod 600");
  fs::permissions(path(), fs::perms(0602));
  expect_error(Database::open(path(), DatabaseAccess::read), ErrorKind::bad_input, "is writable by other users");
  Database ours = opened(path("ours.db"));
  EXPECT_EQ(ours.merge_from(path())->added, 3);  // but its rows may be taken over
}

TEST_F(DatabaseTest, AnotherUsersFileIsNotTrusted) {
  made(numbered_rows(3));
  if (geteuid() != 0 || chown(path().c_str(), 65534, 65534) != 0) GTEST_SKIP() << "only root can give files away";
  expect_error(Database::open(path()), ErrorKind::bad_input, "belongs to another user");
}

TEST_F(DatabaseTest, ThingsThatAreNotDatabases) {
  expect_error(Database::open(folder_.string()), ErrorKind::bad_input, "is a directory");
  expect_error(Database::open(path("absent.db"), DatabaseAccess::read), ErrorKind::bad_input, "No such file");
  expect_error(Database::open(path("absent/m.db")), ErrorKind::bad_input, "No such file");
  expect_error(Database::open("/dev/null"), ErrorKind::bad_input, "not a plain file");
  expect_error(Database::open(""), ErrorKind::bad_input, "No such file");
  write_bytes(path("text.db"), std::string(5000, 'x'));
  expect_error(Database::open(path("text.db")), ErrorKind::failed, "is not a database");
  EXPECT_EQ(bytes_of(path("text.db")), std::string(5000, 'x'));
  EXPECT_FALSE(fs::exists(path("absent.db")));
}

TEST_F(DatabaseTest, AnotherProgramsDatabaseIsLeftAlone) {
  write_bytes(path(), "");
  ASSERT_TRUE(SqliteConnection::open(path(), SqliteMode::write, 0)->run("CREATE TABLE theirs(x)"));
  const std::string before = bytes_of(path());
  expect_error(Database::open(path()), ErrorKind::bad_input, "not one of Millrace's");
  EXPECT_EQ(bytes_of(path()), before);
}

TEST_F(DatabaseTest, ALaterSchemaIsRefused) {
  made(numbered_rows(3));
  ASSERT_TRUE(SqliteConnection::open(path(), SqliteMode::write, 0)->run("PRAGMA user_version = 3"));
  expect_error(Database::open(path()), ErrorKind::bad_input, "schema version 3");
  expect_error(Database::open(path(), DatabaseAccess::read), ErrorKind::bad_input, "update Millrace");
}

TEST_F(DatabaseTest, AnEarlierSchemaIsRefusedAndLeftAlone) {
  made(numbered_rows(3));
  ASSERT_TRUE(SqliteConnection::open(path(), SqliteMode::write, 0)->run("PRAGMA user_version = 1"));
  const std::string before = bytes_of(path());
  expect_error(Database::open(path()), ErrorKind::bad_input, "schema version 1, which is too old");
  expect_error(Database::open(path(), DatabaseAccess::read), ErrorKind::bad_input, "move the file elsewhere");
  EXPECT_EQ(bytes_of(path()), before);
}

TEST_F(DatabaseTest, AnEmptyFileIsANewDatabase) {
  write_bytes(path(), "");
  EXPECT_EQ(opened(path(), DatabaseAccess::read).all()->size(), 0U);
  EXPECT_TRUE(opened(path()).put(numbered(1)));
}

TEST_F(DatabaseTest, AFullDiskKeepsWhatWasWritten) {
  Result<Database> database = Database::open(path(), DatabaseAccess::write, {1000, 16});
  ASSERT_TRUE(database) << to_string(database.error());
  int written = 0;
  Result<Done> last = Done{};
  while ((last = database->put(numbered(written)))) ++written;
  EXPECT_GT(written, 50);
  EXPECT_EQ(last.error().kind, ErrorKind::failed);
  EXPECT_NE(to_string(last.error()).find("no space left"), std::string::npos) << to_string(last.error());
  EXPECT_FALSE(database->put(numbered_rows(10'000)));
  EXPECT_EQ(*database->all(), numbered_rows(written));
  EXPECT_EQ(all(path()), numbered_rows(written));
}

// Tampered rows are refused although the file's structure is intact.
TEST_F(DatabaseTest, TamperedRowsAreRefused) {
  for (const char* const change :
       {"UPDATE measurement SET seconds = 1e-9 WHERE id = 2", "UPDATE measurement SET seconds = -1 WHERE id = 2",
        "UPDATE measurement SET seconds = 'x' WHERE id = 2", "UPDATE measurement SET outcome = 77 WHERE id = 2",
        "UPDATE measurement SET samples = 1.5 WHERE id = 2", "UPDATE measurement SET partition = 5 WHERE id = 2",
        "UPDATE text SET text = 'y' WHERE text = 'H200'", "UPDATE text SET text = x'00ff' WHERE text = 'H200'",
        "DELETE FROM text WHERE text = 'H200'", "UPDATE measurement SET taken = 'now'"}) {
    fs::remove(path());
    made(numbered_rows(3));
    ASSERT_TRUE(SqliteConnection::open(path(), SqliteMode::write, 0)->run(change)) << change;
    const Database database = opened(path());
    const Result<std::vector<MeasurementRow>> rows = database.all();
    ASSERT_FALSE(rows) << change;
    EXPECT_NE(to_string(rows.error()).find("millrace db export"), std::string::npos) << to_string(rows.error());
  }
}

TEST_F(DatabaseTest, TriggersAndViewsInTheFileAreNotRun) {
  made(numbered_rows(3));
  ASSERT_TRUE(SqliteConnection::open(path(), SqliteMode::write, 0)
                  ->run("CREATE TRIGGER z AFTER INSERT ON measurement BEGIN DELETE FROM text; END"));
  expect_error(Database::open(path()), ErrorKind::failed, "objects that Millrace did not create");
}

// A damaged file gives an error or exactly the rows that were written.
void expect_error_or_right(const std::string& file, const std::vector<MeasurementRow>& rows, const std::string& what) {
  const Result<Database> database = Database::open(file, DatabaseAccess::read, {1000, 0});
  if (database) {
    const Result<std::vector<MeasurementRow>> all = database->all();
    if (all) {
      EXPECT_EQ(*all, rows) << what;
      for (const MeasurementRow& row : rows) EXPECT_EQ(*database->find(row.key), row) << what;
      return;
    }
  }
  const Result<std::vector<MeasurementRow>> salvaged = salvage_database(file);
  if (!salvaged) return;
  for (const MeasurementRow& row : *salvaged)
    EXPECT_TRUE(std::find(rows.begin(), rows.end(), row) != rows.end()) << what;
}

TEST_F(DatabaseTest, ABitFlippedAnywhereGivesAnErrorOrTheRightRows) {
  const std::vector<MeasurementRow> rows = numbered_rows(4);
  const std::string bytes = bytes_of(made(rows));
  const std::string file = path("flipped.db");
  for (size_t at = 0; at < bytes.size(); ++at) {
    // Most of a small file is empty space, of which a sample is enough.
    const bool empty = bytes.substr(at < 2 ? 0 : at - 2, 5).find_first_not_of('\0') == std::string::npos;
    if (empty && at % 97 != 0) continue;
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    write_bytes(file, flipped);
    expect_error_or_right(file, rows, concat("byte ", at));
    if (HasFailure()) return;
  }
}

TEST_F(DatabaseTest, ATruncatedFileGivesAnErrorOrTheRightRows) {
  const std::vector<MeasurementRow> rows = numbered_rows(100);
  const std::string bytes = bytes_of(made(rows));
  const std::string file = path("short.db");
  for (size_t length = 1; length < bytes.size(); length += 509) {
    write_bytes(file, bytes.substr(0, length));
    expect_error_or_right(file, rows, concat("length ", length));
    // To open it for writing must not make it a new database.
    EXPECT_FALSE(Database::open(file)) << length;
    if (HasFailure()) return;
  }
}

TEST_F(DatabaseTest, ADamagedLogLosesNoOlderRow) {
  const std::vector<MeasurementRow> rows = numbered_rows(6);
  const std::string before = bytes_of(made({rows.begin(), rows.begin() + 3}));
  std::string log;
  {
    Database database = opened(path());
    put(database, {rows.begin() + 3, rows.end()});
    const pid_t child = start_process([&] {  // its closing drops no locks of ours
      log = bytes_of(path("m.db-wal"));
      write_bytes(path("saved"), log);
      return true;
    });
    ASSERT_TRUE(succeeded(child));
  }
  log = bytes_of(path("saved"));
  ASSERT_GT(log.size(), 4096U);
  for (size_t at = 0; at < log.size(); at += 97) {
    std::string flipped = log;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    fs::remove(path("m.db-shm"));
    write_bytes(path(), before);
    write_bytes(path("m.db-wal"), flipped);
    const size_t there = all(path()).size();
    EXPECT_TRUE(there == 3 || there == 6) << at << ": " << there;
  }
}

TEST_F(DatabaseTest, SalvageSavesWhatIsNotDamaged) {
  const std::vector<MeasurementRow> rows = numbered_rows(2000);
  std::string bytes = bytes_of(made(rows));
  constexpr size_t kPage = 4096;
  // One page in the middle.
  const size_t at = bytes.size() / kPage / 2 * kPage;
  bytes.replace(at, kPage, std::string(kPage, '\xAA'));
  write_bytes(path(), bytes);
  expect_error(Database::open(path()), ErrorKind::failed, "millrace db export");
  const Result<std::vector<MeasurementRow>> salvaged = salvage_database(path());
  ASSERT_TRUE(salvaged) << to_string(salvaged.error());
  EXPECT_GT(salvaged->size(), 1500U);
  EXPECT_TRUE(std::includes(rows.begin(), rows.end(), salvaged->begin(), salvaged->end()));
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
