// Factors that a storage type cannot hold: a mask that is added to scores before a softmax is read with a warning, all
// others are errors at their place.
#include <gtest/gtest.h>

#include "frontend/program_text.h"
#include "reference/interpreter.h"

namespace millrace {
namespace {

struct Read {
  Result<Graph> graph;
  std::vector<Diagnostic> warnings;
};

Read read(const std::string& body, const std::string& results = "y") {
  std::vector<Diagnostic> warnings;
  ProgramOptions options;
  options.warn = [&](const Diagnostic& warning) { warnings.push_back(warning); };
  Result<Graph> graph = parse_program(concat("def layer(s: float16[2, 3], keep: float16[3], z: float16[2, 3]):\n    ",
                                             body, "\n    return ", results, "\n"),
                                      options);
  return {std::move(graph), std::move(warnings)};
}

void expect_warning(const Read& made, int column, const std::string& message) {
  ASSERT_TRUE(made.graph) << to_string(made.graph.error());
  ASSERT_EQ(made.warnings.size(), 1U);
  EXPECT_EQ(made.warnings[0].line, 2);
  EXPECT_EQ(made.warnings[0].column, column);
  EXPECT_EQ(made.warnings[0].message, message);
}

TEST(LargeFactors, OfMasksBeforeASoftmaxAreReadWithAWarning) {
  const std::string wanted =
      "1e+09 is beyond the largest float16, 65504; 32752 is taken, which hides as much from the softmax";
  expect_warning(read("y = softmax(s + (keep - 1) * 1e9)"), 32, wanted);
  expect_warning(read("y = softmax(s - 1e9 * (1 - keep))"), 25, wanted);
  expect_warning(read("m = (keep - 1.0)[None, :] * 1e9; y = softmax(np.where(z > 0, s + m, 0))"), 31, wanted);
  expect_warning(read("y = softmax(s + z + (1 - keep) * -1e9)"), 36,
                 "-1e+09 is beyond the largest float16, 65504; -32752 is taken, which hides as much from the softmax");
}

TEST(LargeFactors, OfOtherTensorsAreErrors) {
  for (const char* const body : {"y = s * 1e9", "y = softmax(s * 1e9)", "y = softmax(s + 1e9)",
                                 "y = s + (keep - 1) * 1e9", "m = (keep - 1) * 1e9; y = softmax(s + m) + m",
                                 "y = np.exp(s + (keep - 1) * 1e9)", "y = softmax((keep - 1) * 1e9 + 1.0) * s"}) {
    const Read made = read(body);
    ASSERT_FALSE(made.graph) << body;
    EXPECT_EQ(made.graph.error().diagnostics.size(), 1U) << body;
    EXPECT_EQ(made.graph.error().diagnostics[0].message, "1e+09 is beyond the largest float16, 65504") << body;
    EXPECT_TRUE(made.warnings.empty()) << body;
  }
  EXPECT_FALSE(read("m = (keep - 1) * 1e9; y = softmax(s + m)", "y, m").graph);
}

TEST(LargeFactors, ThatTheTypeHoldsNeedNoWarning) {
  EXPECT_TRUE(read("y = softmax(s + (keep - 1) * 1e4)").warnings.empty());
}

TEST(LargeFactors, HideWhatTheyHideInAWiderType) {
  const Read made = read("y = softmax(s + (keep - 1) * 1e9)");
  ASSERT_TRUE(made.graph);
  Values<double> values(made.graph->tensors.size());
  values[made.graph->arguments[0].at()] = {1, 2, 3, -4, 5, 600};
  values[made.graph->arguments[1].at()] = {1, 1, 0};
  values[made.graph->arguments[2].at()] = {0, 0, 0, 0, 0, 0};
  ASSERT_TRUE(interpret<double>(*made.graph, values, {}));
  const std::vector<double>& y = values[made.graph->results[0].tensor.at()];
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[5], 0);
  EXPECT_NEAR(y[0] + y[1], 1, 1e-12);
}

}  // namespace
}  // namespace millrace
