#include "select/conversions.h"

#include <gtest/gtest.h>

#include "select/select.h"
#include "select/verify.h"

namespace millrace {
namespace {

// a → b → c is cheaper than a → c; there is no way back from c; d is reached directly and by a chain of equal cost.
Measurements chained() {
  Measurements measurements;
  measurements.tensors = {{"x", {"a", "b", "c", "d"}}};
  measurements.conversions = {{0, 0, 1, 1}, {0, 1, 2, 2}, {0, 0, 2, 5}, {0, 0, 3, 3}, {0, 2, 3, 0}};
  return measurements;
}

TEST(Conversions, TakesAChainWhereItIsCheaper) {
  const std::vector<CheapestConversions> cheapest = cheapest_conversions(chained());
  EXPECT_EQ(cheapest[0].between(0, 2), 3);
  EXPECT_EQ(cheapest[0].via(0, 2), std::vector<int>{1});
  EXPECT_TRUE(cheapest[0].via(0, 1).empty());
  EXPECT_EQ(cheapest[0].between(0, 3), 3);
  EXPECT_TRUE(cheapest[0].via(0, 3).empty());
  EXPECT_EQ(cheapest[0].between(1, 3), 2);
  EXPECT_EQ(cheapest[0].via(1, 3), std::vector<int>{2});
  EXPECT_EQ(cheapest[0].between(2, 2), 0);
  EXPECT_GT(cheapest[0].between(2, 0), 1e300);
}

// x is written as "a" and read as "c", with no direct conversion.
TEST(Conversions, AreSelectedAsChains) {
  Measurements measurements = chained();
  std::erase_if(measurements.conversions, [](const MeasuredConversion& c) { return c.from == 0 && c.to == 2; });
  measurements.partitions = {{"writer", false, {}, {0}, {{"0", {0}, 1, 1, 1}}},
                             {"reader", true, {0}, {}, {{"0", {2}, 1, 1, 1}}}};
  measurements.choice_points = {{{{0}}}, {{{1}}}};
  for (const SelectMethod method : {SelectMethod::exact, SelectMethod::sssp}) {
    const Result<Selection> selection = select(measurements, method);
    ASSERT_TRUE(selection);
    EXPECT_EQ(selection->cost, 5);
    ASSERT_EQ(selection->conversions.size(), 1U);
    EXPECT_EQ(selection->conversions[0].via, std::vector<int>{1});
    EXPECT_EQ(selection->conversions[0].chain(), (std::vector<std::pair<int, int>>{{0, 1}, {1, 2}}));
    if (const Result<Done> verified = verify(measurements, *selection); !verified)
      FAIL() << to_string(verified.error());
  }
}

}  // namespace
}  // namespace millrace
