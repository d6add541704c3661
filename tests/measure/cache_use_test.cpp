// In which caches trials find their tensors.
#include "measure/cache_use.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fusion/fusion_text.h"

namespace millrace {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kCache = 36 * kMiB;

CacheUse of(double mebibytes) { return cache_use(mebibytes * static_cast<double>(kMiB), kCache); }

TEST(CacheUse, FollowsTheSizeOfTheProgram) {
  EXPECT_EQ(print_cache_use(of(0.001)), "from cache");
  EXPECT_EQ(print_cache_use(of(1)), "from cache");
  EXPECT_EQ(print_cache_use(of(1.5)), "from cache, 2 MiB in turn");
  EXPECT_EQ(print_cache_use(of(16)), "from cache, 16 MiB in turn");
  EXPECT_EQ(print_cache_use(of(17)), "from cache, 32 MiB in turn");
  EXPECT_EQ(print_cache_use(of(35)), "from cache, 36 MiB in turn");
  EXPECT_EQ(print_cache_use(of(37)), "from memory");
}

TEST(CacheUse, CopiesTogetherAreAsLargeAsTheProgram) {
  const auto copies = [](const CacheUse& caches, double mebibytes) {
    return copies_in_turn(caches, mebibytes * static_cast<double>(kMiB));
  };
  EXPECT_EQ(copies(of(0.5), 0.1), 1);
  EXPECT_EQ(copies(of(16), 16), 1) << "a program of one launch";
  EXPECT_EQ(copies(of(16), 3), 6);
  EXPECT_EQ(copies(of(32), 0.01), 16) << "no more";
  EXPECT_EQ(copies(of(100), 3), 13) << "more than the cache holds";
  EXPECT_EQ(copies(of(100), 50), 2);
}

TEST(CacheUse, EveryTextOfTheMachineIsListedOnce) {
  for (const int64_t cache : {kCache, 32 * kMiB, kMiB, 300 * kMiB}) {
    std::vector<std::string> all = all_cache_uses(cache);
    for (double mebibytes = 0.25; mebibytes < 700; mebibytes *= 1.3) {
      const std::string text = print_cache_use(cache_use(mebibytes * static_cast<double>(kMiB), cache));
      EXPECT_EQ(std::count(all.begin(), all.end(), text), 1) << text;
    }
  }
}

TEST(CacheUse, CountsEveryStoredTensor) {
  const TrainingGraph training = training_of("B = 4\nI = 6\n\ndef f(x: float32[B, I]):\n    return relu(x)\n");
  EXPECT_GE(bytes_of_tensors(training.graph), 4.0 * 4 * (4 * 6)) << "x, y and their gradients";
}

}  // namespace
}  // namespace millrace
