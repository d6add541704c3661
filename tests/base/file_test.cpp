#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/text.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// Each test runs in its own folder, which is removed afterwards.
class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / concat("millrace_file_test_", getpid(), "_", info->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  int64_t entries() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  fs::path folder_;
};

TEST_F(FileTest, ReadsWhatWasWritten) {
  for (const std::string& bytes : {std::string(), std::string("a\0b\r\n\xFF", 6), std::string(200'000, 'x')}) {
    ASSERT_TRUE(write_file(path("f"), bytes));
    const Result<std::string> read = read_file(path("f"), 1 << 20);
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_EQ(*read, bytes);
  }
}

TEST_F(FileTest, TheLimitItselfIsAllowed) {
  ASSERT_TRUE(write_file(path("f"), "12345"));
  EXPECT_TRUE(read_file(path("f"), 5));
  const Result<std::string> over = read_file(path("f"), 4);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().kind, ErrorKind::bad_input);
  EXPECT_NE(to_string(over.error()).find("is larger than 4 bytes"), std::string::npos) << to_string(over.error());
}

TEST_F(FileTest, TheLimitHoldsForFilesThatHideTheirLength) {
  // /dev/zero has length zero and never ends.
  const Result<std::string> endless = read_file("/dev/zero", 100'000);
  ASSERT_FALSE(endless);
  EXPECT_EQ(endless.error().kind, ErrorKind::bad_input);
}

TEST_F(FileTest, AMissingFileIsTheUsersMistake) {
  const Result<std::string> missing = read_file(path("absent"), 10);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::bad_input);
  const std::string said = to_string(missing.error());
  EXPECT_NE(said.find(path("absent")), std::string::npos) << said;
  EXPECT_NE(said.find("No such file"), std::string::npos) << said;
}

TEST_F(FileTest, ADirectoryIsNotAFile) {
  const Result<std::string> read = read_file(folder_.string(), 10);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorKind::bad_input);
  EXPECT_NE(to_string(read.error()).find("is a directory, not a file"), std::string::npos);
}

TEST_F(FileTest, WritingReplacesTheWholeFileAndLeavesNoOther) {
  ASSERT_TRUE(write_file(path("f"), "a long first version"));
  ASSERT_TRUE(write_file(path("f"), "second"));
  EXPECT_EQ(*read_file(path("f"), 100), "second");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, AReaderOfTheOldFileKeepsIt) {
  ASSERT_TRUE(write_file(path("f"), "old"));
  // A second name of the old file: a write in place would show through it, a rename does not.
  fs::create_hard_link(path("f"), path("held"));
  ASSERT_TRUE(write_file(path("f"), "new"));
  EXPECT_EQ(*read_file(path("held"), 100), "old");
  EXPECT_EQ(*read_file(path("f"), 100), "new");
}

TEST_F(FileTest, AFailedWriteLeavesTheTargetAndNoTemporary) {
  // A file cannot be renamed over a folder that is not empty.
  fs::create_directories(folder_ / "full" / "inner");
  const Result<Done> written = write_file(path("full"), "x");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().kind, ErrorKind::failed);
  EXPECT_NE(to_string(written.error()).find(path("full")), std::string::npos);
  EXPECT_TRUE(fs::is_directory(folder_ / "full" / "inner"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, WritingIntoAMissingFolderFails) {
  const Result<Done> written = write_file(path("absent/f"), "x");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().kind, ErrorKind::failed);
  EXPECT_NE(to_string(written.error()).find("absent/f"), std::string::npos);
}

}  // namespace
}  // namespace millrace
