// Calls of the program's functions: each is inlined, with unique names.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

TEST(Inline, BindsByPositionByNameAndByDefault) {
  EXPECT_EQ(operators_of(R"(
def scale(x, factor=2, offset=1):
    return x * factor + offset

def f(x: float32[4], y: float32[4]):
    a = scale(x)
    b = scale(y, offset=a)
    return scale(offset=3, x=b, factor=4)
)"),
            "a.1[4] = multiply(x[4], 2)\n"
            "a[4] = add(a.1[4], 1)\n"
            "b.1[4] = multiply(y[4], 2)\n"
            "b[4] = add(b.1[4], a[4])\n"
            "result.1[4] = multiply(b[4], 4)\n"
            "result[4] = add(result.1[4], 3)\n");
}

TEST(Inline, SeveralResultsAreUnpacked) {
  EXPECT_EQ(printed(R"(
def both(x, y):
    total = x + y
    return total, x - y

def f(x: float32[4], y: float32[4]):
    a, b = both(x, y)
    return both(y=a, x=b)
)"),
            R"(program f
argument x: float32[4]
argument y: float32[4]
forward
  a/total[4] = add(x[4], y[4])
  a.1[4] = subtract(x[4], y[4])
  result/total[4] = add(a.1[4], a/total[4])
  result.1[4] = subtract(a.1[4], a/total[4])
result result_0 = result/total
result result_1 = result.1
)");
}

TEST(Inline, NamesInsideAreTheCalleesOwn) {
  EXPECT_EQ(operators_of(R"(
def inner(x):
    y = np.exp(x)
    return y * y

def outer(x):
    y = inner(x)
    return y + x

def f(x: float32[4]):
    y = np.tanh(x)
    z = outer(y)
    w = outer(z)
    return w + y
)"),
            "y[4] = tanh(x[4])\n"
            "z/y/y[4] = exp(y[4])\n"
            "z/y[4] = multiply(z/y/y[4], z/y/y[4])\n"
            "z[4] = add(z/y[4], y[4])\n"
            "w/y/y[4] = exp(z[4])\n"
            "w/y[4] = multiply(w/y/y[4], w/y/y[4])\n"
            "w[4] = add(w/y[4], z[4])\n"
            "result[4] = add(w[4], y[4])\n");
}

TEST(Inline, SizesAreSeenInsideLocalsOfTheCallerAreNot) {
  EXPECT_EQ(operators_of("C = 3\ndef g(x):\n    return x * C\ndef f(x: float32[C]):\n    return g(x)\n"),
            "result[C] = multiply(x[C], 3)\n");
  EXPECT_NE(error_of("def g(x):\n    return x * local\ndef f(x: float32[4]):\n    local = -x\n    return g(x)\n")
                .find("program.py:2:16: error: unknown name 'local'"),
            std::string::npos);
}

TEST(Inline, AnAnnotationIsCheckedAtTheCall) {
  constexpr std::string_view program =
      "A = 4\ndef g(x: float32[A]):\n    return -x\ndef f(x: float32[A], y: float32[5]):\n    return g(%)\n";
  const auto with = [&](const std::string& argument) {
    std::string text(program);
    return text.replace(text.find('%'), 1, argument);
  };
  EXPECT_EQ(operators_of(with("x")), "result[A] = negate(x[A])\n");
  EXPECT_NE(error_of(with("y")).find("parameter 'x' is [4], not [5]"), std::string::npos);
}

TEST(Inline, AFunctionOfTheFileHidesANamedOne) {
  constexpr std::string_view program =
      "def relu(x):\n    return np.maximum(x, 0)\ndef f(x: float32[4]):\n    return relu(x)\n";
  EXPECT_EQ(operators_of(program), "result[4] = maximum(x[4], 0)\n");
}

}  // namespace
}  // namespace millrace
