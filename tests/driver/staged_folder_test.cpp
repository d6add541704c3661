#include "driver/staged_folder.h"

#include <algorithm>

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

}  // namespace
}  // namespace millrace
