// Module-level sizes, and the user's --size options.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

std::string argument_line(std::string_view text, std::vector<std::string> sizes = {}) {
  return split(printed(text, with_sizes(std::move(sizes))), '\n').at(1);
}

constexpr std::string_view kProgram = R"(
SIZES = {"tiny": {"A": 2, "B": 3}, "wide": {"B": 50}}
A = 4
B = A * 2
C = A + B
def f(x: float32[A, B, C]):
    return -x
)";

TEST(Sizes, AreIntegersAndExpressionsOfThem) {
  EXPECT_EQ(argument_line(kProgram), "argument x: float32[A=4, B=8, C=12]");
  EXPECT_EQ(argument_line("A = 7 // 2 + 2 ** 3 - (-1)\nB = 1_000\ndef f(x: float32[A, B, A * 2, 5]):\n    return -x\n"),
            "argument x: float32[A=12, B=1000, 24, 5]");
}

TEST(Sizes, AnOptionOverridesASizeAndThoseComputedFromIt) {
  EXPECT_EQ(argument_line(kProgram, {"A=5"}), "argument x: float32[A=5, B=10, C=15]");
  EXPECT_EQ(argument_line(kProgram, {"B=5"}), "argument x: float32[A=4, B=5, C=9]");
}

TEST(Sizes, ASetSetsSeveralSizesAndLaterOptionsWin) {
  EXPECT_EQ(argument_line(kProgram, {"tiny"}), "argument x: float32[A=2, B=3, C=5]");
  EXPECT_EQ(argument_line(kProgram, {"tiny", "A=7"}), "argument x: float32[A=7, B=3, C=10]");
  EXPECT_EQ(argument_line(kProgram, {"A=7", "tiny"}), "argument x: float32[A=2, B=3, C=5]");
  EXPECT_EQ(argument_line(kProgram, {"tiny", "wide"}), "argument x: float32[A=2, B=50, C=52]");
}

TEST(Sizes, ChainedNamesAreSetSeparately) {
  constexpr std::string_view program = "P = W = 64\ndef f(x: float32[P, W]):\n    return -x\n";
  EXPECT_EQ(argument_line(program), "argument x: float32[P=64, W=64]");
  EXPECT_EQ(argument_line(program, {"W=3"}), "argument x: float32[P=64, W=3]");
}

TEST(Sizes, ASetMayBeComputedFromSizesAboveIt) {
  constexpr std::string_view program =
      "A = 4\nSIZES = {\"tiny\": {\"B\": A * 3}}\nB = 2\ndef f(x: float32[A, B]):\n    return -x\n";
  EXPECT_EQ(argument_line(program), "argument x: float32[A=4, B=2]");
  EXPECT_EQ(argument_line(program, {"tiny"}), "argument x: float32[A=4, B=12]");
}

TEST(Sizes, OtherNumbersAreConstants) {
  EXPECT_EQ(operators_of("P = 64\nscaler = 1 / np.sqrt(P)\ndef f(x: float32[P]):\n    return scaler * x\n"),
            "result[P] = multiply(0.125, x[P])\n");
}

}  // namespace
}  // namespace millrace
