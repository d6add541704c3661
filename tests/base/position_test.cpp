#include "base/position.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

TEST(Position, IsThatOfTheFirstEqualElement) {
  const std::vector<std::string> list = {"q", "k", "v", "k"};
  EXPECT_EQ(position_in(list, "k"), 1u);
  EXPECT_EQ(position_in(list, std::string("v")), 2u);
}

TEST(Position, IsTheSizeOfAListWithoutTheElement) {
  EXPECT_EQ(position_in(std::vector<int>{4, 5}, 6), 2u);
  EXPECT_EQ(position_in(std::vector<int>{}, 6), 0u);
}

}  // namespace
}  // namespace millrace
