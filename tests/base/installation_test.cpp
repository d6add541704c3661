#include "base/installation.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace millrace {
namespace {

namespace fs = std::filesystem;

bool has(const std::vector<fs::path>& places, const char* wanted) {
  return std::find(places.begin(), places.end(), fs::path(wanted)) != places.end();
}

TEST(Installation, AFileBesideTheProgramComesFirst) {
  const std::vector<fs::path> places = places_near({"/p/bin", "/w/millrace/lib"}, "f", "lib", "/usr/local");
  ASSERT_GE(places.size(), 2U);
  EXPECT_EQ(places[0], "/p/bin/f");
  EXPECT_EQ(places[1], "/w/millrace/lib/f");
  EXPECT_EQ(places.back(), "/usr/local/lib/f");
}

TEST(Installation, AMovedPrefixIsFound) {
  EXPECT_TRUE(has(places_near({"/p/bin"}, "worker", "libexec/millrace", ""), "/p/libexec/millrace/worker"));
  EXPECT_TRUE(has(places_near({"/p/lib"}, "worker", "libexec/millrace", ""), "/p/libexec/millrace/worker"));
  EXPECT_TRUE(has(places_near({"/p/libexec/millrace"}, "f.so", "lib", ""), "/p/lib/f.so"));
  EXPECT_TRUE(has(places_near({"/usr/bin"}, "f.so", "lib/x86_64-linux-gnu", ""), "/usr/lib/x86_64-linux-gnu/f.so"));
}

// A wheel is built for no prefix: a folder that somebody else could create must not be searched.
TEST(Installation, WithoutAPrefixOnlyOwnFoldersAreSearched) {
  for (const fs::path& place : places_near({"/p/q/bin"}, "f", "lib", ""))
    EXPECT_TRUE(place.string().rfind("/p/", 0) == 0) << place;
}

TEST(Installation, TheseTestsFindTheirOwnFolder) {
  const fs::path own = fs::read_symlink("/proc/self/exe").parent_path();
  EXPECT_EQ(installed_places("f", InstalledIn::libexec).front(), own / "f");
}

}  // namespace
}  // namespace millrace
