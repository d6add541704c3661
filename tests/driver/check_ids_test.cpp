#include "driver/check_ids.h"

#include <gtest/gtest.h>

#include <array>

#include "frontend/program_text.h"

namespace millrace {
namespace {

constexpr const char* kGatherProgram = R"(
V = 11
N = 4
def f(table: float32[V, 2], ids: int32[N], twice: int64[N], copied: int64[N], part: int64[N], plain: int64[N]):
    short = table[:7]
    some = table[np.concatenate([copied, copied])][:4] + table[part[:2]].sum(axis=0)
    return table[ids] + table[twice] * short[twice] + some, np.where(plain == 1, 1.0, 0.0)
)";

TEST(CheckIds, FindsArgumentsWhoseElementsAllSelectRows) {
  std::vector<std::string> found;
  for (const IdArgument& argument : id_arguments(graph_of(kGatherProgram))) {
    found.push_back(argument.name);
    EXPECT_EQ(argument.rows, argument.name == "ids" ? 11 : 7);
    EXPECT_EQ(argument.elements, 4);
  }
  EXPECT_EQ(found, (std::vector<std::string>{"ids", "twice"}));
}

TEST(CheckIds, RefusesIdsOutsideTheTable) {
  const std::vector<IdArgument> arguments = id_arguments(graph_of(kGatherProgram));
  ASSERT_EQ(arguments.size(), 2U);
  EXPECT_TRUE(check_ids(arguments[0], std::array<int32_t, 4>{0, 10, 3, 3}.data()));
  EXPECT_TRUE(check_ids(arguments[0], std::vector<double>{0, 10, 3, 3}));
  EXPECT_TRUE(check_ids(arguments[1], std::array<int64_t, 4>{0, 6, 3, 3}.data()));
  const Result<Done> large = check_ids(arguments[0], std::array<int32_t, 4>{0, 1, 11, 3}.data());
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().diagnostics.front().message, "argument 'ids' has the id 11, but selects from 11 rows");
  EXPECT_EQ(large.error().diagnostics.front().remedy, "the largest id is 10");
  const Result<Done> negative = check_ids(arguments[1], std::array<int64_t, 4>{0, 1, 2, -1}.data());
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().diagnostics.front().message, "argument 'twice' has the id -1, but selects from 7 rows");
  EXPECT_FALSE(check_ids(arguments[1], std::vector<double>{0, 1, 2, 1e9}));
}

}  // namespace
}  // namespace millrace
