#include "driver/staged_folder.h"

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "base/scratch.h"

namespace millrace {
namespace {

class StagedFolderTest : public ScratchTest {
 protected:
  // A new plan that is not kept yet.
  Result<StagedFolder> staged() const {
    Result<StagedFolder> made = StagedFolder::make(path("plan"));
    EXPECT_TRUE(made) << to_string(made.error());
    EXPECT_TRUE(write_file(made->path() + "/kernels.so", "new kernels"));
    EXPECT_TRUE(write_file(made->path() + "/plan.json", "new plan"));
    return made;
  }

  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path("plan")))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(StagedFolderTest, APlanThatIsNotKeptLeavesNothing) {
  { const Result<StagedFolder> dropped = staged(); }
  EXPECT_FALSE(std::filesystem::exists(path("plan")));
}

TEST_F(StagedFolderTest, APlanThatIsNotKeptLeavesTheEarlierOne) {
  std::filesystem::create_directory(path("plan"));
  ASSERT_TRUE(write_file(path("plan/plan.json"), "old plan"));
  ASSERT_TRUE(write_file(path("plan/report.html"), "a report"));
  { const Result<StagedFolder> dropped = staged(); }
  EXPECT_EQ(*read_file(path("plan/plan.json"), 100), "old plan");
  EXPECT_EQ(entries(), (std::vector<std::string>{"plan.json", "report.html"}));
}

TEST_F(StagedFolderTest, APlanThatIsKeptReplacesTheEarlierOne) {
  std::filesystem::create_directory(path("plan"));
  ASSERT_TRUE(write_file(path("plan/plan.json"), "old plan"));
  EXPECT_TRUE(staged()->keep());
  EXPECT_EQ(*read_file(path("plan/plan.json"), 100), "new plan");
  EXPECT_EQ(entries(), (std::vector<std::string>{"kernels.so", "plan.json"}));
}

// A folder of the user's may contain other temporary folders, such as those of `mktemp -d`.
TEST_F(StagedFolderTest, OnlyFoldersOfKilledRunsAreRemoved) {
  const std::vector<std::string> kept = {"millrace-tmp.abcdefg", "millrace-tmp.notes", "tmp.abc123", "tmp.abcdefghij"};
  std::vector<std::string> names = kept;
  names.emplace_back("millrace-tmp.aB3dEf");
  for (const std::string& name : names) {
    std::filesystem::create_directories(path("plan/" + name));
    ASSERT_TRUE(write_file(path("plan/" + name + "/file"), "text"));
    std::filesystem::last_write_time(path("plan/" + name),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  }
  { const Result<StagedFolder> dropped = staged(); }
  EXPECT_EQ(entries(), kept);
}

}  // namespace
}  // namespace millrace
