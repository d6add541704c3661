#include "measure/reference_cache.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

KnownReference known(const std::string& name, size_t elements) {
  KnownReference made;
  made.name = name;
  made.data.inputs = {std::vector<double>(elements)};
  return made;
}

constexpr int64_t kBytes = 10 * sizeof(double);

TEST(ReferenceCacheTest, FindsWhatWasAdded) {
  ReferenceCache cache(kBytes);
  EXPECT_EQ(cache.find("a"), nullptr);
  cache.add(known("a", 4));
  cache.add(known("b", 6));
  ASSERT_NE(cache.find("a"), nullptr);
  EXPECT_EQ(cache.find("a")->data.inputs[0].size(), 4U);
  EXPECT_NE(cache.find("b"), nullptr);
}

TEST(ReferenceCacheTest, ForgetsWhatWasUsedLongestAgo) {
  ReferenceCache cache(kBytes);
  cache.add(known("a", 4));
  cache.add(known("b", 4));
  EXPECT_NE(cache.find("a"), nullptr);
  cache.add(known("c", 4));
  EXPECT_NE(cache.find("a"), nullptr);
  EXPECT_EQ(cache.find("b"), nullptr);
}

TEST(ReferenceCacheTest, CountsWhatAnEntryGotLater) {
  ReferenceCache cache(kBytes);
  cache.add(known("a", 4)).data.outputs = {{std::vector<double>(10), std::vector<double>(10)}};
  cache.add(known("b", 4));
  EXPECT_EQ(cache.find("a"), nullptr);
}

TEST(ReferenceCacheTest, KeepsTheNewestHoweverLarge) {
  ReferenceCache cache(kBytes);
  cache.add(known("a", 4));
  EXPECT_EQ(cache.add(known("b", 100)).name, "b");
  EXPECT_NE(cache.find("b"), nullptr);
  EXPECT_EQ(cache.find("a"), nullptr);
}

}  // namespace
}  // namespace millrace
