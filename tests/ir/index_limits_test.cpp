#include "ir/index_limits.h"

#include <gtest/gtest.h>

#include <map>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(IndexLimits, FollowAnArgumentThroughViewsAndCopiesToItsGathers) {
  const Graph graph = graph_of(R"(
V = 11
M = 7
N = 4
def f(table: float32[V, 2], short: float32[M], ids: int32[N, 3], other: int32[N], plain: int64[N], flags: bool_[N],
      unread: int32[N]):
    dropped = table[unread]
    both = np.concatenate([ids[:, :2].reshape(8), other])
    near = np.where(flags, short[other], 0.5)
    return table[both], near * np.where(plain == 1, 1.0, 0.0)
)");
  const std::vector<int64_t> limits = index_limits(graph);
  std::map<std::string, int64_t> of_arguments;
  for (const TensorId argument : graph.arguments) of_arguments[graph.tensor(argument).name] = limits[argument.at()];
  EXPECT_EQ(of_arguments,
            (std::map<std::string, int64_t>{
                {"table", 0}, {"short", 0}, {"ids", 11}, {"other", 7}, {"plain", 0}, {"flags", 0}, {"unread", 1}}));
}

}  // namespace
}  // namespace millrace
