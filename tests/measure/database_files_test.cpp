// The database's files: those of others, damaged or malicious ones, and a full disk.
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
  EXPECT_EQ(ours.merge_from(path())->added, 3);  // but its rows may be merged
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
  expect_error(Database::open(path("text.db")), ErrorKind::bad_input, "is not a database");
  EXPECT_EQ(bytes_of(path("text.db")), std::string(5000, 'x'));
  EXPECT_FALSE(fs::exists(path("absent.db")));
}

// In a folder that others may write, somebody else could put a pipe there.
TEST_F(DatabaseTest, PipesInPlaceOfSqlitesFilesAreRefused) {
  made(numbered_rows(3));
  for (const char* const suffix : {"-journal", "-wal", "-shm"}) {
    fs::remove(path() + suffix);
    ASSERT_EQ(mkfifo((path() + suffix).c_str(), 0600), 0);
    for (const DatabaseAccess access : {DatabaseAccess::read, DatabaseAccess::merge, DatabaseAccess::write})
      expect_error(Database::open(path(), access), ErrorKind::bad_input, "not a plain file");
    fs::remove(path() + suffix);
  }
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
  ASSERT_TRUE(SqliteConnection::open(path(), SqliteMode::write, 0)->run("PRAGMA user_version = 4"));
  expect_error(Database::open(path()), ErrorKind::bad_input, "schema version 4");
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

TEST_F(DatabaseTest, AFileThatIsRemovedOrReplacedWhileItIsInUseIsNoticed) {
  for (const bool replaced : {false, true}) {
    Database database = opened(path());
    ASSERT_TRUE(database.put(numbered(1)));
    for (const char* const suffix : {"", "-wal", "-shm"}) fs::remove(path() + suffix);
    if (replaced) made(numbered_rows(3));
    const Result<Done> put = database.put(numbered(2));
    ASSERT_FALSE(put) << "written where nobody can read";
    EXPECT_NE(to_string(put.error()).find("was removed or replaced"), std::string::npos) << to_string(put.error());
    if (replaced) {
      EXPECT_EQ(all(path()), numbered_rows(3));
    }
  }
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
    // Opening it for writing must not turn it into a new database.
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
    const pid_t child = start_process([&] {  // another process, so that closing drops none of our locks
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

}  // namespace
}  // namespace millrace
