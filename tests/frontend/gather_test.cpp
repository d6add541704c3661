// Integers and booleans to graph text: gathers, losses, comparisons.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

std::string gathered(const std::string& expression) {
  return operators_of(concat(R"(
def f(table: float32[5, 4], x: float32[2, 3, 4], ids: int32[2, 3], row: int64[7], flags: bool_[4], a: float16[4]):
    return )",
                             expression, "\n"));
}

std::string message_of_gather(const std::string& expression) {
  const std::string message = error_of(concat(R"(
def f(table: float32[5, 4], x: float32[2, 3, 4], ids: int32[2, 3], row: int64[7], flags: bool_[4], y: float32[2, 3]):
    return )",
                                              expression, "\n"));
  const size_t begin = message.find("error: ");
  return begin == std::string::npos ? message : message.substr(begin + 7, message.find('\n', begin) - begin - 7);
}

TEST(Gather, AnIndexOfIntegersIsOneOperator) {
  EXPECT_EQ(gathered("table[ids]"), "result[2, 3, 4] = gather(table[at 0, 4], ids[2, 3]) axis=0\n");
  EXPECT_EQ(gathered("table[ids, :]"), gathered("table[ids]"));
  EXPECT_EQ(gathered("np.take(table, ids, axis=0)"), gathered("table[ids]"));
  EXPECT_EQ(gathered("table[:, row]"), "result[5, 7] = gather(table[5, at 0], row[7]) axis=1\n");
  EXPECT_EQ(gathered("x[..., row]"), "result[2, 3, 7] = gather(x[2, 3, at 0], row[7]) axis=2\n");
  EXPECT_EQ(gathered("x[:, row, None]"), "result[2, 7, 1, 4] = gather(x[2, at 0, 4], row[7]) axis=1\n");
}

TEST(Gather, OtherAxesMayBeSlicedAndIdsMayBeViews) {
  EXPECT_EQ(gathered("table[ids[0], ::2]"), "result[3, 2] = gather(table[at 0, 2·2], ids[at 0, 3]) axis=0\n");
  EXPECT_EQ(gathered("x.transpose(2, 0, 1)[row]"), "result[7, 2, 3] = gather(x[2, 3, at 0], row[7]) axis=2\n");
}

TEST(Gather, TheGatheredAxisOfASliceIsCopied) {
  EXPECT_EQ(gathered("table[1:4][row]"), R"(result.1[3, 4] = copy(table[3 + 1, 4])
result[7, 4] = gather(result.1[at 0, 4], row[7]) axis=0
)");
}

TEST(Gather, TakeAlongAxisKeepsTheOtherAxes) {
  EXPECT_EQ(gathered("np.take_along_axis(x, ids[..., None], axis=-1)"),
            "result[2, 3, 1] = gather(x[2, 3, at 0], ids[2, 3]) axis=2\n");
  EXPECT_EQ(gathered("np.take_along_axis(x, ids[:, :1, None], 1)"),
            "result[2, 1, 4] = gather(x[2, at 0, 4], ids[2, at 0]) axis=1\n");
}

TEST(Gather, PositionsOfArangeAreIds) {
  EXPECT_EQ(gathered("table[np.arange(5)[::-1]]"), R"(result.1[5] = index()
result[5, 4] = gather(table[at 0, 4], result.1[-5 + 4]) axis=0
)");
  EXPECT_EQ(gathered("table[np.arange(1, 5, 2)]").substr(0, 30), "result.1[2] = index()\nresult.1");
}

TEST(Gather, CrossEntropyIsMadeOfOthers) {
  EXPECT_EQ(gathered("cross_entropy(x, ids)"), R"(result.1[2, 3, 1] = log_sum_exp(x[2, 3, 4]) over 4
result.1.2[2, 3, 1] = gather(x[2, 3, at 0], ids[2, 3]) axis=2
result.1.3[2, 3, 1] = subtract(result.1[2, 3, 1], result.1.2[2, 3, 1])
result.1.4 = sum(result.1.3[2, 3, 1]) over 2, 3, 1
result = multiply(result.1.4, 0.16666666666666666)
)");
}

TEST(Gather, ComparisonsOfIntegersChooseInTheTypeOfTheArguments) {
  const Graph graph = graph_of(R"(
def f(x: float16[4], kinds: int64[4], flags: bool_[4]):
    return np.where(flags & (kinds == 2), 1.0, 0.0) * x + np.where(flags, 0.5, 0.25)
)");
  for (const Operator& op : graph.operators) {
    const DType dtype = graph.tensor(op.outputs[0].tensor).dtype;
    EXPECT_TRUE(dtype == DType::float16 || dtype == DType::boolean) << print(graph, op);
  }
}

// Of integers, and of whole numbers made of np.arange.
TEST(Gather, IdsMayBeChosen) {
  EXPECT_EQ(gathered("table[np.where(ids > 2, 0, ids)]"), R"(result.1[2, 3] = less(2, ids[2, 3])
result.1.2[2, 3] = where(result.1[2, 3], 0, ids[2, 3])
result[2, 3, 4] = gather(table[at 0, 4], result.1.2[2, 3]) axis=0
)");
  const Graph graph = graph_of(R"(
def f(x: float16[4, 2], i: int64[3]):
    a = np.where(i > 1, i, 1)
    return x[a], x[np.where(np.arange(3) > 1, np.arange(3), 0)]
)");
  size_t wide = 0;
  for (const Operator& op : graph.operators) {
    if (op.kind == OperatorKind::where && graph.tensor(op.outputs[0].tensor).dtype == DType::int64) ++wide;
  }
  EXPECT_EQ(wide, 1U);
  EXPECT_EQ(message_of_gather("table[np.where(ids > 2, 0.5, ids)]"), "an index must be a tensor of integers");
}

TEST(Gather, IntegersAndBooleansHaveNoGradientAndKeepTheirType) {
  ProgramOptions options;
  options.dtype = DType::float64;
  const Graph graph =
      graph_of("def f(t: float32[4], i: int32[3], b: bool_[3]):\n    return np.where(b, t[i], 0)\n", options);
  EXPECT_EQ(print(graph), R"(program f
argument t: float64[4]
argument i: int32[3] fixed
argument b: bool[3] fixed
forward
  result.1[3] = gather(t[at 0], i[3]) axis=0
  result[3] = where(b[3], result.1[3], 0)
result result
)");
}

TEST(Gather, MessagesSayWhatToWrite) {
  EXPECT_EQ(message_of_gather("table[y]"), "an index must be a tensor of integers");
  EXPECT_EQ(message_of_gather("ids + 1"), "integers are only compared, chosen by np.where and used as indices");
  EXPECT_EQ(message_of_gather("np.sum(ids)"), "integers are only compared, chosen by np.where and used as indices");
  EXPECT_EQ(message_of_gather("x[ids, row]"), "an index has at most one tensor");
  EXPECT_EQ(message_of_gather("x[0, :, row]"), "an index has an integer and a tensor");
  EXPECT_EQ(message_of_gather("table[flags]"), "the shape of x[condition] would depend on the data");
  EXPECT_EQ(message_of_gather("ids"), "a result cannot be a tensor of integers");
  EXPECT_EQ(message_of_gather("y.astype(int32)"), "a tensor of numbers cannot become integers or booleans");
  EXPECT_EQ(message_of_gather("cross_entropy(x, row)"), "labels of shape [7] do not fit logits of shape [2, 3, 4]");
  EXPECT_EQ(message_of_gather("np.take_along_axis(x, row, 0)"), "the indices have 1 axes, the tensor 3");
}

}  // namespace
}  // namespace millrace
