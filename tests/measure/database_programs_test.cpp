// Names of programs, the upgrade of databases that have none, and pruning.
#include <gtest/gtest.h>

#include "base/text.h"
#include "measure/database.h"
#include "measure/database_fixture.h"

namespace millrace {
namespace {

MeasurementRow taken_on(const std::string& device, const std::string& partition, const std::string& day) {
  MeasurementRow row = row_of(device, partition, "c");
  row.when = day + "T00:00:00Z";
  return row;
}

TEST_F(DatabaseTest, ProgramsAreNamedAndMerged) {
  Database database = opened(path());
  ASSERT_TRUE(database.put({row_of("d", "p", "c1"), row_of("d", "p", "c2"), row_of("d", "q", "c")}));
  ASSERT_TRUE(database.name_program("bert.py --size tiny", "d", {"p", "q", "never measured"}));
  ASSERT_TRUE(database.name_program("bert.py --size tiny", "d", {"p"}));  // again
  ASSERT_TRUE(database.name_program("other.py", "d", {"never measured"}));
  const auto check = [](const Database& named) {
    const Result<std::vector<ProgramSummary>> programs = named.programs();
    ASSERT_TRUE(programs) << to_string(programs.error());
    ASSERT_EQ(programs->size(), 1U);
    EXPECT_EQ(programs->front().name, "bert.py --size tiny");
    EXPECT_EQ(programs->front().device, "d");
    EXPECT_EQ(programs->front().partitions, 2);
    EXPECT_EQ(programs->front().rows, 3);
  };
  check(database);
  Database other = opened(path() + ".other");
  ASSERT_TRUE(other.merge_from(path()));
  check(other);
}

TEST_F(DatabaseTest, ADatabaseWithoutNamesIsReadAndUpgraded) {
  {
    Database database = opened(path());
    ASSERT_TRUE(database.put(row_of("d", "p", "c")));
  }
  {
    Result<SqliteConnection> connection = SqliteConnection::open(path(), SqliteMode::write, 1000);
    ASSERT_TRUE(connection);
    ASSERT_TRUE(connection->run("DROP TABLE program"));
    ASSERT_TRUE(connection->run("PRAGMA user_version = 2"));
  }
  {
    const Database database = opened(path(), DatabaseAccess::read);
    EXPECT_EQ(database.programs()->size(), 0U);
    EXPECT_EQ(database.all()->size(), 1U);
  }
  Database database = opened(path());
  ASSERT_TRUE(database.name_program("layer.py", "d", {"p"}));
  EXPECT_EQ(database.programs()->size(), 1U);
}

TEST_F(DatabaseTest, PruningDeletesWhatAllConditionsSelect) {
  Database database = opened(path());
  MeasurementRow wrong = taken_on("old device", "wrong", "2024-01-01");
  wrong.outcome = Outcome::wrong;
  wrong.seconds = wrong.low = wrong.high = 0;
  wrong.samples = 0;
  ASSERT_TRUE(database.put({taken_on("old device", "p", "2024-01-01"), taken_on("old device", "q", "2024-06-01"),
                            taken_on("new device", "p", "2024-01-01"), wrong}));
  ASSERT_TRUE(database.name_program("layer.py", "old device", {"q"}));
  EXPECT_EQ(*database.count({"2024-02-01", "", false}), 3);
  EXPECT_EQ(*database.count({"2024-02-01", "new", false}), 2);
  EXPECT_EQ(*database.count({"", "", true}), 1);
  EXPECT_EQ(database.all()->size(), 4U);
  EXPECT_EQ(*database.prune({"", "", true}), 1);
  EXPECT_EQ(*database.prune({"", "new", false}), 2);
  const Result<std::vector<MeasurementRow>> left = database.all();
  ASSERT_TRUE(left);
  ASSERT_EQ(left->size(), 1U);
  EXPECT_EQ(left->front().key.device, "new device");
  EXPECT_TRUE(database.programs()->empty());
}

// A misspelt device must not delete everything.
TEST_F(DatabaseTest, PruningNeedsADeviceThatStays) {
  Database database = opened(path());
  ASSERT_TRUE(database.put(row_of("H200", "p", "c")));
  const Result<int64_t> deleted = database.prune({"", "H20O", false});
  ASSERT_FALSE(deleted);
  EXPECT_EQ(deleted.error().kind, ErrorKind::bad_input);
  EXPECT_EQ(database.all()->size(), 1U);
}

}  // namespace
}  // namespace millrace
