#include "base/directories.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/scratch.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

bool says(const Error& error, const std::string& words) { return to_string(error).find(words) != std::string::npos; }

mode_t mode_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777U;
}

class DirectoriesTest : public ScratchTest {};

TEST_F(DirectoriesTest, TheCacheIsWhereTheVariablesSay) {
  set_variable("MILLRACE_CACHE_DIR", path("own/cache"));
  set_variable("XDG_CACHE_HOME", path("xdg"));
  set_variable("HOME", path("home"));
  EXPECT_EQ(*cache_directory(), path("own/cache"));
  set_variable("MILLRACE_CACHE_DIR", "");
  EXPECT_EQ(*cache_directory(), path("xdg/millrace"));
  set_variable("XDG_CACHE_HOME", "relative/is/ignored");
  EXPECT_EQ(*cache_directory(), path("home/.cache/millrace"));
  set_variable("XDG_CACHE_HOME", std::nullopt);
  EXPECT_EQ(*cache_directory(), path("home/.cache/millrace"));
  for (const char* made : {"own", "own/cache", "xdg/millrace", "home/.cache", "home/.cache/millrace"})
    EXPECT_EQ(mode_of(path(made)), 0700U) << made;
}

TEST_F(DirectoriesTest, TheDataIsWhereTheVariablesSay) {
  set_variable("MILLRACE_DATA_DIR", path("own"));
  set_variable("XDG_DATA_HOME", path("xdg"));
  set_variable("HOME", path("home"));
  EXPECT_EQ(*data_directory(), path("own"));
  set_variable("MILLRACE_DATA_DIR", std::nullopt);
  EXPECT_EQ(*data_directory(), path("xdg/millrace"));
  set_variable("XDG_DATA_HOME", std::nullopt);
  EXPECT_EQ(*data_directory(), path("home/.local/share/millrace"));
}

TEST_F(DirectoriesTest, NoVariableAtAllIsAnErrorWithARemedy) {
  for (const char* name : {"MILLRACE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}) set_variable(name, std::nullopt);
  const Result<std::string> found = cache_directory();
  ASSERT_FALSE(found);
  EXPECT_TRUE(says(found.error(), "set MILLRACE_CACHE_DIR to a directory that you own")) << to_string(found.error());
}

TEST_F(DirectoriesTest, ARelativePathMeansTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  set_variable("MILLRACE_CACHE_DIR", "here");
  const Result<std::string> found = cache_directory();
  fs::current_path(before);
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_TRUE(fs::equivalent(*found, path("here")));
}

TEST_F(DirectoriesTest, CreatingTwiceIsAllowed) {
  EXPECT_TRUE(make_private_directory(path("a/b/c/")));
  EXPECT_TRUE(make_private_directory(path("a/b/c")));
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
}

TEST_F(DirectoriesTest, ADirectoryThatOthersMayWriteIsRejected) {
  ASSERT_TRUE(make_private_directory(path("shared")));
  for (const mode_t mode : {0720U, 0702U, 01777U}) {
    ASSERT_EQ(chmod(path("shared").c_str(), mode), 0);
    const Result<Done> made = make_private_directory(path("shared"));
    ASSERT_FALSE(made) << mode;
    EXPECT_TRUE(says(made.error(), "chmod go-w " + path("shared"))) << to_string(made.error());
  }
  ASSERT_EQ(chmod(path("shared").c_str(), 0755), 0);
  EXPECT_TRUE(make_private_directory(path("shared")));
  ASSERT_EQ(chmod(path("shared").c_str(), 0777), 0);
  set_variable("MILLRACE_CACHE_DIR", path("shared"));
  EXPECT_TRUE(says(cache_directory().error(), "or set MILLRACE_CACHE_DIR to another directory"));
}

TEST_F(DirectoriesTest, AnotherUsersDirectoryIsRejectedAlsoThroughALink) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot make another user's directory";
  ASSERT_TRUE(make_private_directory(path("theirs")));
  ASSERT_EQ(chown(path("theirs").c_str(), kNobody, kNobody), 0);
  fs::create_directory_symlink(path("theirs"), path("link"));
  for (const char* name : {"theirs", "link", "theirs/", "link/"}) {
    const Result<Done> made = make_private_directory(path(name));
    ASSERT_FALSE(made) << name;
    EXPECT_TRUE(says(made.error(), "belongs to user 65534, not to you")) << to_string(made.error());
  }
  fs::create_directory_symlink(folder_, path("own_link"));
  EXPECT_TRUE(make_private_directory(path("own_link")));
}

TEST_F(DirectoriesTest, AFileOrADanglingLinkAtThePathIsAnError) {
  ASSERT_TRUE(write_file(path("file"), ""));
  EXPECT_FALSE(make_private_directory(path("file")));
  EXPECT_FALSE(make_private_directory(path("file/inside")));
  fs::create_directory_symlink(path("nowhere"), path("dangling"));
  EXPECT_FALSE(make_private_directory(path("dangling")));
  EXPECT_FALSE(make_private_directory(""));
  const Result<Done> unwritable = make_private_directory("/proc/millrace");
  ASSERT_FALSE(unwritable);
  EXPECT_TRUE(says(unwritable.error(), "cannot create the directory '/proc/millrace'"))
      << to_string(unwritable.error());
}

TEST_F(DirectoriesTest, AFileIsOwnIfNoOtherUserCouldHaveWrittenIt) {
  ASSERT_TRUE(write_file(path("f"), "x"));
  EXPECT_TRUE(check_own_file(path("f")));
  for (const mode_t mode : {0620U, 0602U, 0666U}) {
    ASSERT_EQ(chmod(path("f").c_str(), mode), 0);
    EXPECT_TRUE(says(check_own_file(path("f")).error(), "other users may write")) << mode;
  }
}

TEST_F(DirectoriesTest, OnlyARegularFileIsAnOwnFile) {
  ASSERT_TRUE(write_file(path("f"), "x"));
  fs::create_symlink(path("f"), path("link"));
  EXPECT_TRUE(says(check_own_file(path("link")).error(), "is a link"));
  EXPECT_TRUE(says(check_own_file(folder_.string()).error(), "not a regular file"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(says(check_own_file(path("pipe")).error(), "not a regular file"));
  EXPECT_TRUE(says(check_own_file(path("absent")).error(), "No such file"));
}

TEST_F(DirectoriesTest, AnotherUsersFileIsNotOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: cannot make another user's file";
  ASSERT_TRUE(write_file(path("f"), "x"));
  ASSERT_EQ(chown(path("f").c_str(), kNobody, kNobody), 0);
  EXPECT_TRUE(says(check_own_file(path("f")).error(), "belongs to user 65534"));
}

}  // namespace
}  // namespace millrace
