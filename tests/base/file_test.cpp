#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>

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
  const Result<std::string> endless = read_file_or_pipe("/dev/zero", 100'000);
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

// Opening a pipe without a writer would wait for ever.
TEST_F(FileTest, APipeInPlaceOfAFileIsRefused) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& name : {path("pipe"), std::string("/dev/zero")}) {
    const Result<std::string> read = read_file(name, 100);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().kind, ErrorKind::bad_input);
    EXPECT_NE(to_string(read.error()).find("not a regular file"), std::string::npos) << to_string(read.error());
  }
}

TEST_F(FileTest, AUsersPipeIsRead) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::thread writer([&] { EXPECT_TRUE(write_file(path("pipe"), "through a pipe")); });
  const Result<std::string> read = read_file_or_pipe(path("pipe"), 100);
  writer.join();
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(*read, "through a pipe");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, ADeviceIsWrittenAndStays) {
  fs::create_symlink("/dev/null", path("null"));
  ASSERT_TRUE(write_file(path("null"), "x"));
  EXPECT_TRUE(fs::is_symlink(path("null")));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  if (mknod(path("device").c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) GTEST_SKIP() << "cannot make a device";
  ASSERT_TRUE(write_file(path("device"), "x"));
  EXPECT_TRUE(fs::is_character_file(path("device")));
  EXPECT_EQ(entries(), 2);
}

TEST_F(FileTest, ALinkStaysAndItsTargetIsReplaced) {
  fs::create_directories(folder_ / "far");
  ASSERT_TRUE(write_file(path("far/f"), "old"));
  fs::create_symlink("far/f", path("link"));
  ASSERT_TRUE(write_file(path("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(*read_file(path("far/f"), 100), "new");
  fs::create_symlink("far/not_yet", path("dangling"));
  ASSERT_TRUE(write_file(path("dangling"), "made"));
  EXPECT_EQ(*read_file(path("far/not_yet"), 100), "made");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "far"), fs::directory_iterator()), 2);
  fs::create_symlink("absent/f", path("nowhere"));
  EXPECT_FALSE(write_file(path("nowhere"), "lost"));
  EXPECT_TRUE(fs::is_symlink(path("nowhere")));
}

// A folder from elsewhere may have them in place of a file that we are about to write.
TEST_F(FileTest, LinksAndPipesInPlaceOfOurOwnFilesAreReplaced) {
  ASSERT_TRUE(write_file(path("victim"), "precious"));
  fs::create_symlink("victim", path("link"));
  fs::create_symlink("absent/f", path("dangling"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  for (const char* const name : {"link", "dangling", "pipe", "new"}) {
    ASSERT_TRUE(write_own_file(path(name), "ours"));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path(name))));
    EXPECT_EQ(*read_file(path(name), 100), "ours");
  }
  EXPECT_EQ(*read_file(path("victim"), 100), "precious");
  EXPECT_EQ(entries(), 5);
}

TEST_F(FileTest, APrivateFileStaysPrivate) {
  const auto mode_of = [&](const std::string& name) {
    struct stat status {};
    EXPECT_EQ(stat(path(name).c_str(), &status), 0);
    return status.st_mode & 0777U;
  };
  const mode_t before = umask(0022);
  ASSERT_TRUE(write_file(path("f"), "old"));
  EXPECT_EQ(mode_of("f"), 0644U);
  fs::create_symlink("f", path("link"));
  for (const auto& [mode, wanted] : {std::pair{0600U, 0600U}, {0640U, 0640U}, {0666U, 0644U}, {0777U, 0644U}}) {
    for (const char* const name : {"f", "link"}) {
      ASSERT_EQ(chmod(path("f").c_str(), mode), 0);
      ASSERT_TRUE(write_file(path(name), "new"));
      EXPECT_EQ(mode_of("f"), wanted);
    }
  }
  umask(before);
}

// A temporary file whose name can be guessed could be a link that another user put there.
TEST_F(FileTest, NobodyCanPutALinkInPlaceOfTheTemporaryFile) {
  ASSERT_TRUE(write_file(path("victim"), "precious"));
  for (int count = 0; count < 100; ++count)
    fs::create_symlink(path("victim"), path(concat("f.", getpid(), ".", count, ".tmp")));
  ASSERT_TRUE(write_file(path("f"), "x"));
  EXPECT_EQ(*read_file(path("victim"), 100), "precious");
}

}  // namespace
}  // namespace millrace
