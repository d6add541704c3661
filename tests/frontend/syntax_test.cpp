// Loops, branches, static values and methods: each program equals one that is written without them.
#include <gtest/gtest.h>

#include "frontend/program_text.h"

namespace millrace {
namespace {

// A function of x and y with the body's lines, each indented by four spaces.
std::string function_of(std::string_view body, std::string_view before = "") {
  std::string text = concat(before, "def f(x: float32[4, 6], y: float32[4, 6]):\n");
  for (const std::string& line : split(body, '\n')) text += concat("    ", line, "\n");
  return text;
}

// The operators, with their outputs named by order: only what is computed counts.
std::string computed_by(std::string_view text) {
  Graph graph = graph_of(text);
  size_t count = 0;
  std::string lines;
  for (const Operator& op : graph.operators) {
    for (const Access& output : op.outputs) graph.tensors[output.tensor.at()].name = concat("t", count++);
    lines += print(graph, op) + "\n";
  }
  for (const auto& result : graph.results) lines += graph.tensor(result.tensor).name + "\n";
  return lines;
}

void expect_same(std::string_view body, std::string_view plain, std::string_view before = "") {
  const std::string wanted = computed_by(function_of(plain));
  EXPECT_EQ(computed_by(function_of(body, before)), wanted) << body;
  EXPECT_NE(wanted, "");
}

// The number that an expression has.
std::string number_of(std::string_view expression, std::string_view before = "") {
  const std::string line = operators_of(function_of(concat("return x * (", expression, ")"), before));
  const std::string begin = "result[4, 6] = multiply(x[4, 6], ";
  return line.starts_with(begin) ? line.substr(begin.size(), line.find(")\n") - begin.size()) : line;
}

TEST(Syntax, AByteOrderMarkIsIgnored) {
  const std::string text = function_of("return x + y");
  EXPECT_EQ(computed_by("\xEF\xBB\xBF" + text), computed_by(text));
}

// --- Statements ---

TEST(Syntax, LoopsAreUnrolled) {
  expect_same("for k in range(3):\n    x = x * k\nreturn x", "x = x * 0\nx = x * 1\nx = x * 2\nreturn x");
  expect_same("for k in range(5, 0, -2):\n    x = x * k\nreturn x", "x = x * 5\nx = x * 3\nx = x * 1\nreturn x");
  expect_same("for k in range(2, 4): x = x * k; x = x + k\nreturn x",
              "x = x * 2\nx = x + 2\nx = x * 3\nx = x + 3\nreturn x");
  expect_same("for k in range(0):\n    x = wrong\nz = -x\nreturn z", "z = -x\nreturn z");
}

TEST(Syntax, LoopsRunOverTuplesAndLists) {
  expect_same("for a in (x, y):\n    z = -a\nreturn z", "z = -y\nreturn z");
  expect_same("for a, b in zip([x, y], (2, 3)):\n    x = a * b\nreturn x", "x = x * 2\nx = y * 3\nreturn x");
  expect_same("for k, (a, b) in enumerate([(x, y), (y, x)], 1):\n    x = (a - b) * k\nreturn x",
              "u = x\nx = (x - y) * 1\nx = (y - u) * 2\nreturn x");
  expect_same("for a in reversed((2, 3)):\n    x = x * a\nreturn x", "x = x * 3\nx = x * 2\nreturn x");
  expect_same("for k in range(2):\n    pass\nx = x * k\nreturn x", "x = x * 1\nreturn x");
}

TEST(Syntax, AReturnEndsALoop) {
  expect_same("for k in range(4):\n    x = x * k\n    if k == 1:\n        return x", "x = x * 0\nx = x * 1\nreturn x");
}

TEST(Syntax, BranchesAreStatic) {
  const std::string branches = "if n == 1:\n    z = -x\nelif n is None:\n    z = -y\nelse:\n    z = x * n\nreturn z";
  expect_same("n = 1\n" + branches, "z = -x\nreturn z");
  expect_same("n = None\n" + branches, "z = -y\nreturn z");
  expect_same("n = 7\n" + branches, "z = x * 7\nreturn z");
  expect_same("z = -x\nif not n and n != 0: z = wrong\nreturn z", "z = -x\nreturn z", "n = 0\n");
  expect_same("z = x if x.ndim == 2 and x.shape == (4, 6) else wrong\nreturn -z", "return -x");
  expect_same("z = wrong if x is None else x\nreturn -z", "return -x");
}

TEST(Syntax, StatementsThatComputeNothing) {
  expect_same("'''A docstring.'''\npass\nz: float32[4, 6] = -x\nassert x.shape[0] == 4, 'rows'\nreturn z",
              "z = -x\nreturn z");
  const std::string program =
      "A = 4\nassert A % 2 == 0\ndef f(x: float32[A]): y = -x; return y\nif __name__ == '__main__':\n    print(f(1))\n";
  EXPECT_EQ(operators_of(program), "y[A] = negate(x[A])\n");
}

TEST(Syntax, UpdatesOfNumbersAndLists) {
  expect_same("n = 1\nfor k in range(3):\n    n += 2\nn *= 3\nn //= 2\nreturn x * n", "return x * 10");
  expect_same("n = (1,)\nn += (2, 3)\nreturn x * n[2]", "return x * 3");
  expect_same("xs = [x]\nxs += [y]\nreturn -xs[1]", "return -y");
  expect_same("n = 2\nn += x\nreturn n", "n = 2 + x\nreturn n");
}

// --- Tuples and lists ---

TEST(Syntax, ListsGrow) {
  expect_same("xs = []\nfor k in range(3):\n    xs.append(x * k)\nreturn xs[0] + xs[-1]",
              "a = x * 0\nb = x * 2\nreturn a + b");
  expect_same("xs = [x * k for k in range(4) if k % 2 == 1]\nreturn xs[0] + xs[1]",
              "xs, u = x * 1, x * 3\nreturn xs + u");
  expect_same("k = 5\nxs = [k for k in (1, 2)] + [3]\nreturn x * (k + len(xs))", "return x * 8");
  expect_same("xs = [a + b for a, b in zip((x, y), (y, x))]\nreturn sum(xs)", "xs, u = x + y, y + x\nreturn xs + u");
}

TEST(Syntax, TuplesNest) {
  expect_same("a = (x, (y, [2, 3]))\nb, (c, d) = a\nreturn (b + c) * d[1]", "return (x + y) * 3");
  expect_same("[a, b], c = (x, y), 2\nreturn (a + b) * c", "return (x + y) * 2");
  const std::string text =
      "def g(x, y):\n    return x, (y, [x, y])\n"
      "def f(x: float32[4], y: float32[4]):\n    a, (b, c) = g(-x, -y)\n    return a, (c, b)\n";
  const Graph graph = graph_of(text);
  ASSERT_EQ(graph.results.size(), 4U);
  EXPECT_EQ(graph.results[0].name, "a");
}

TEST(Syntax, IndicesAndSlicesOfTuples) {
  EXPECT_EQ(number_of("(1, 2, 3, 4)[1]"), "2");
  EXPECT_EQ(number_of("(1, 2, 3, 4)[-1]"), "4");
  EXPECT_EQ(number_of("(1, 2, 3, 4)[1:][0]"), "2");
  EXPECT_EQ(number_of("(1, 2, 3, 4)[::-1][0]"), "4");
  EXPECT_EQ(number_of("(1, 2, 3, 4)[-3:-1][1]"), "3");
  EXPECT_EQ(number_of("(1, 2, 3, 4)[::2][1]"), "3");
  EXPECT_EQ(number_of("(1, 2, 3, 4)[-100:100:3][1]"), "4");
  EXPECT_EQ(number_of("len((1, 2, 3, 4)[3:1])"), "0");
  EXPECT_EQ(number_of("len((1, 2, 3, 4)[5:0:-9223372036854775807])"), "1");
  EXPECT_EQ(number_of("len([1, 2] + [3] * 4)"), "6");
}

// --- Shapes, attributes and methods ---

TEST(Syntax, ShapesAreNumbers) {
  EXPECT_EQ(number_of("x.shape[1]"), "6");
  EXPECT_EQ(number_of("x.shape[:-1][0]"), "4");
  EXPECT_EQ(number_of("x[:, None].shape[1]"), "1");
  EXPECT_EQ(number_of("x.ndim"), "2");
  EXPECT_EQ(number_of("x.size"), "24");
  EXPECT_EQ(number_of("len(x)"), "4");
  EXPECT_EQ(number_of("np.prod(x.shape)"), "24");
  EXPECT_EQ(number_of("math.prod(x.shape[:1])"), "4");
  expect_same("B, T = x.shape\nreturn x * (B * 10 + T)", "return x * 46");
}

TEST(Syntax, MethodsAreFunctions) {
  expect_same("return x.sum(axis=-1)", "return np.sum(x, axis=-1)");
  expect_same("return (x + y).mean(0, keepdims=True)", "return np.mean(x + y, 0, keepdims=True)");
  expect_same("return x.max(axis=(0, 1))", "return np.max(x, axis=(0, 1))");
  expect_same("z = -x\nreturn [z][0].sum()", "z = -x\nreturn np.sum(z)");
  expect_same("return -x.copy()", "return -x");
  // A local hides a module of the same name.
  expect_same("np = x\nreturn np.sum(axis=0)", "z = np.sum(x, axis=0)\nreturn z");
  expect_same("return [np.sum(axis=0) for np in (x,)][0]", "return np.sum(x, axis=0)");
}

TEST(Syntax, CastsChooseAType) {
  const auto type_of = [](std::string_view expression) {
    const Graph graph = graph_of(function_of(concat("return ", expression)));
    return std::string(name_of(graph.tensor(graph.results.at(0).tensor).dtype));
  };
  EXPECT_EQ(type_of("x.astype(float16)"), "float16");
  EXPECT_EQ(type_of("x.astype(np.float64)"), "float64");
  EXPECT_EQ(type_of("x.astype(dtype='bfloat16')"), "bfloat16");
  EXPECT_EQ(type_of("x.astype(float) + 1"), "float64");
  EXPECT_EQ(operators_of(function_of("return -x.astype(float32)")), "result[4, 6] = negate(x[4, 6])\n");
}

TEST(Syntax, ComparisonsCombine) {
  EXPECT_EQ(operators_of(function_of("return np.where((x < y) & ~(x > 0) | (y == 1), x, y)")),
            operators_of(function_of("return np.where(((x < y) & (~(x > 0))) | (y == 1), x, y)")));
  const std::string text = operators_of(function_of("return np.where((x < y) ^ (y < 1), x, y)"));
  EXPECT_NE(text.find("logical_or("), std::string::npos) << text;
  EXPECT_NE(text.find("logical_not("), std::string::npos) << text;
}

// --- Numbers ---

TEST(Syntax, ArithmeticOfNumbers) {
  EXPECT_EQ(number_of("7 % 3"), "1");
  EXPECT_EQ(number_of("-7 % 3"), "2");
  EXPECT_EQ(number_of("7 % -3"), "-2");
  EXPECT_EQ(number_of("-7 // 2"), "-4");
  EXPECT_EQ(number_of("5.5 % 2"), "1.5");
  EXPECT_EQ(number_of("6 & 3 | 8 ^ 1"), "11");
  EXPECT_EQ(number_of("1 + 1 < 3 and 5"), "5");
  EXPECT_EQ(number_of("0 or 3"), "3");
  EXPECT_EQ(number_of("not 1 == 2"), "1");
  EXPECT_EQ(number_of("2 if 1 > 2 else 3 if 0 else 4"), "4");
  EXPECT_EQ(number_of("int(7 / 2) + float(1)"), "4");
  EXPECT_EQ(number_of("max(2, 3) + min((5, 4)) + abs(-1)"), "8");
  EXPECT_EQ(number_of("math.sqrt(16) + math.floor(2.5) + math.ceil(2.5)"), "9");
  EXPECT_EQ(number_of("bool((1,)) + sum((1, 2))"), "4");
}

TEST(Syntax, NamedConstants) {
  EXPECT_EQ(number_of("np.pi").substr(0, 10), "3.14159265");
  EXPECT_EQ(number_of("math.e").substr(0, 10), "2.71828182");
  EXPECT_EQ(number_of("pi", "from math import sqrt, pi\n").substr(0, 10), "3.14159265");
  EXPECT_EQ(number_of("-np.inf"), "-inf");
  EXPECT_EQ(number_of("-np.inf"), number_of("float('-inf')"));
  EXPECT_EQ(number_of("1 / float('inf')"), "0");
  EXPECT_EQ(number_of("pi", "pi = 3\n"), "3");
  EXPECT_NE(error_of(function_of("return x * pi")).find("unknown name 'pi'"), std::string::npos);
  EXPECT_NE(error_of(function_of("return x * pi", "from math import pi as p\n")), "");
}

TEST(Syntax, SizesMayBeUnpacked) {
  const std::string program =
      "B, T = 2, 3\nS = (B, T + 1)\ndef f(x: float32[B, T], y: float32[S[1]]):\n    return -x\n";
  EXPECT_EQ(split(printed(program), '\n').at(1), "argument x: float32[B=2, T=3]");
  EXPECT_EQ(split(printed(program, with_sizes({"T=5"})), '\n').at(2), "argument y: float32[6]");
}

// --- Functions ---

TEST(Syntax, DefaultValues) {
  const std::string g =
      "def g(x, n=2, scale=None, causal=True, shape=(4, 6), *, eps: float = 1e-5):\n"
      "    if causal: x = x * n\n    if scale is not None: x = x * scale\n    return x * shape[1]\n";
  expect_same("return g(x)", "return x * 2 * 6", g);
  expect_same("return g(x, 3, causal=False)", "return x * 6", g);
  expect_same("return g(x, scale=5, n=7, shape=(1, 9), eps=4)", "return x * 7 * 5 * 9", g);
  expect_same("return g(n=7, x=x)", "return x * 7 * 6", g);
  EXPECT_EQ(operators_of("def f(x: float32[4], n: int = 3, m=(1, 2), w=None):\n    return x * n if w is None else x\n"),
            "result[4] = multiply(x[4], 3)\n");
}

TEST(Syntax, NoneIsAnArgument) {
  const std::string g = "def g(x, bias: float32[4, 6] = None):\n    return x if bias is None else x + bias\n";
  expect_same("return -g(x, None)", "return -x", g);
  expect_same("return g(x, y)", "return x + y", g);
}

// --- Words and names ---

TEST(Syntax, NamesInAnyScript) {
  EXPECT_EQ(
      operators_of("Größe = 4\ndef слой(x: float32[Größe], β: float32[Größe]):\n    重み2 = x * β\n    return 重み2\n"),
      "重み2[Größe] = multiply(x[Größe], β[Größe])\n");
}

TEST(Syntax, OptionsThatChangeNothing) {
  expect_same("return np.einsum('ij,ij->'\n    'i', x, y, optimize=True)", "return np.einsum('ij,ij->i', x, y)");
  expect_same("return np.einsum(r'ij,ij->i', x, y, optimize='greedy')", "return np.einsum('ij,ij->i', x, y)");
  expect_same("return x[None, np.newaxis] * y", "return x[None, None] * y");
  expect_same("axis = None\nreturn x[axis, ...] * y", "return x[None] * y");
  expect_same("return x[(None, None)] * y", "return x[None, None] * y");
}

}  // namespace
}  // namespace millrace
