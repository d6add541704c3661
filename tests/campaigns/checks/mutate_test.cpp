#include "campaigns/checks/mutate.h"

#include <gtest/gtest.h>

#include <set>

namespace millrace::campaigns {
namespace {

constexpr const char* kKernel = R"(void MILLRACE_KERNEL(const mr::Arguments* args) {
  for (long r = 0; r < 24; ++r) {
    const E x0 = mr::exp(p0 + 4 * i0);
    mr::store(p1 + 4 * i0, x0);
  }
}
)";

// Everything that the seeds change.
std::set<std::string> changes() {
  std::set<std::string> found;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const Mutant mutant = mutated(kKernel, random);
    EXPECT_NE(mutant.text, kKernel);
    EXPECT_TRUE(mutant.text.starts_with("void MILLRACE_KERNEL(const mr::Arguments* args) {"));
    found.insert(mutant.change);
  }
  return found;
}

TEST(Mutate, PlantsFaultsOfEveryKind) {
  const std::set<std::string> found = changes();
  for (const char* const change :
       {"line 2: '24' becomes '25'", "line 2: '24' becomes '23'", "line 2: ' < ' becomes ' <= '",
        "line 3: 'exp(' becomes 'tanh('", "line 3: ' + ' becomes ' - '", "line 3: 'p0' becomes 'p1'",
        "line 4: '    mr::store(p1 + 4 * i0, x0);' becomes '  ;'"}) {
    const auto at = found.lower_bound(change);
    EXPECT_TRUE(at != found.end() && at->starts_with(change)) << change;
  }
}

TEST(Mutate, TheSameSeedPlantsTheSameFault) {
  std::mt19937_64 one(7);
  std::mt19937_64 two(7);
  EXPECT_EQ(mutated(kKernel, one).text, mutated(kKernel, two).text);
}

}  // namespace
}  // namespace millrace::campaigns
