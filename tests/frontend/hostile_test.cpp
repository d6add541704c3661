// Hostile text gives an error within seconds and 256 MB: never a crash, never a hang.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/text.h"
#include "frontend/frontend.h"
#include "frontend/limited.h"

namespace millrace {
namespace {

std::string repeated(std::string_view part, size_t times) {
  std::string text;
  text.reserve(part.size() * times);
  for (size_t k = 0; k < times; ++k) text += part;
  return text;
}

// make(0), make(1), … concatenated.
template <class Make>
std::string counted(size_t times, Make make) {
  std::string text;
  for (size_t k = 0; k < times; ++k) text += make(k);
  return text;
}

std::string function(const std::string& body) { return "def f(x: float32[4]):\n" + body; }
std::string returning(const std::string& expression) { return function("    return " + expression + "\n"); }

void expect_within_limits(const LimitedOutcome& outcome) {
  EXPECT_TRUE(outcome.exited) << "killed by signal " << outcome.code;
  EXPECT_LE(outcome.seconds, kSecondsAllowed);
  if (kSanitized) {
    std::cout << "[   NOTE   ] with a sanitizer, memory is not limited\n";
  } else {
    EXPECT_LE(outcome.megabytes, kMegabytesAllowed);
  }
}

constexpr int kTaken = 10;
constexpr int kRefused = 11;

LimitedOutcome parse_limited(const std::string& text) {
  return run_limited([&](int descriptor) {
    const Result<Graph> graph = parse_program(text, {});
    if (graph) return kTaken;
    const std::string error = to_string(graph.error());
    const bool written = write(descriptor, error.data(), error.size()) == static_cast<ssize_t>(error.size());
    return written ? kRefused : 1;
  });
}

// Rejected, within the limits, with an error that contains `message`.
void expect_refused(const std::string& text, const std::string& message) {
  const LimitedOutcome outcome = parse_limited(text);
  expect_within_limits(outcome);
  if (!outcome.exited) return;
  EXPECT_EQ(outcome.code, kRefused) << outcome.text.substr(0, 500);
  EXPECT_NE(outcome.text.find(message), std::string::npos) << outcome.text.substr(0, 500);
}

// Unusual, but possibly valid: may be accepted or rejected.
void expect_answered(const std::string& text) {
  const LimitedOutcome outcome = parse_limited(text);
  expect_within_limits(outcome);
  if (!outcome.exited) return;
  EXPECT_TRUE(outcome.code == kTaken || outcome.code == kRefused) << outcome.code;
}

// --- Sizes ---

TEST(Hostile, AMillionDimensions) {
  expect_refused("def f(x: float32[" + repeated("2,", 500'000) + "]):\n    return x\n", "items");
  expect_refused("def f(x: float32[" + repeated("1,", 4000) + "]):\n    return x\n", "this tensor has 4000 dimensions");
  expect_refused(returning("x[" + repeated("None,", 4000) + "]"), "this tensor has 4001 dimensions");
}

TEST(Hostile, SizesWhoseProductOverflows) {
  expect_refused("A = 9223372036854775807\nB = A * A\ndef f(x: float32[B]):\n    return x\n",
                 "does not fit into 64 bits");
  expect_refused("A = 4294967296\ndef f(x: float32[A, A, A]):\n    return x\n", "more than 2^50 elements");
  expect_refused("A = 2 ** 63 - 1\ndef f(x: float32[A]):\n    return x\n", "does not fit into 64 bits");
  expect_refused("A = 2 ** 999999999999999999\n" + returning("x"), "does not fit into 64 bits");
  expect_refused("A = -9223372036854775807 - 1\nB = A // -1\n" + returning("x"), "does not fit into 64 bits");
  expect_refused(
      "A = 33554432\ndef f(x: float32[A], y: float32[A], z: float32[A]):\n"
      "    return x[:, None, None] * y[:, None] * z\n",
      "this operator runs over more than 2^50 points");
}

TEST(Hostile, HugeNumbers) {
  expect_refused("A = " + repeated("9", 1'000'000) + "\n" + returning("x"), "is not a valid number");
  expect_refused("A = 1e999999999\n" + returning("x"), "is not a valid number");
  expect_refused("A = 0." + repeated("0", 500'000) + "1e+" + repeated("9", 100'000) + "\n" + returning("x"),
                 "is not a valid number");
  expect_refused(returning("x * 1e308 * (1e308 * 10)"), "not a finite number");
}

// --- Nesting ---

TEST(Hostile, NestingAThousandDeep) {
  constexpr size_t deep = 1000;
  const std::string message = "nested more than 100 deep";
  expect_refused(returning(repeated("(", deep) + "x" + repeated(")", deep)), message);
  expect_refused(returning("x" + repeated("[x", deep) + repeated("]", deep)), message);
  expect_refused(returning(repeated("-", deep) + "x"), message);
  expect_refused(returning(repeated("- +", deep) + "x"), message);
  expect_refused(returning(repeated("np.exp(", deep) + "x" + repeated(")", deep)), message);
  expect_refused(returning("x" + repeated(" ** 2", deep)), message);
  expect_refused(returning("x" + repeated("[:]", deep)), message);
  expect_refused("SIZES = " + repeated("{\"a\": ", deep) + "1" + repeated("}", deep) + "\n" + returning("x"), message);
  expect_refused("def f(x: float32" + repeated("[float32", deep) + repeated("]", deep) + "):\n    return x\n", message);
}

TEST(Hostile, NestingAHundredThousandDeep) {
  constexpr size_t deep = 100'000;
  const std::string message = "nested more than 100 deep";
  expect_refused(returning(repeated("(", deep)), message);
  expect_refused(returning(repeated("[", deep)), message);
  expect_refused(returning(repeated("{", deep)), message);
  expect_refused(returning(repeated("x[", deep)), message);
  expect_refused(returning(repeated("x(", deep)), message);
  expect_refused(returning(repeated("-", deep)), message);
  expect_refused(returning(repeated("x ** ", deep) + "x"), message);
  expect_refused(returning(repeated(")", deep)), "expected an expression");
  expect_refused(returning(repeated("not ", deep)), message);
  expect_refused(returning(repeated("~", deep) + "x"), message);
  expect_refused(returning(repeated("[x for x in ", deep / 2)), message);
  expect_refused(returning(repeated("x if ", deep)), "expected 'else'");
  expect_refused(returning(repeated("1 if 0 else ", deep / 2) + "x"), message);
  expect_refused(returning(repeated("lambda:", deep)), "'lambda' is not supported");
}

TEST(Hostile, AChainOfAHundredThousandAdditions) {
  expect_refused(returning("x" + repeated(" + x", 100'000)), "this expression is nested more than 100 deep");
  expect_refused(returning("x" + repeated("*x", 100'000)), "this expression is nested more than 100 deep");
  expect_refused("A = 1" + repeated("+1", 100'000) + "\n" + returning("x"), "nested more than 100 deep");
}

TEST(Hostile, DeepIndentation) {
  expect_refused(counted(1000, [](size_t k) { return std::string(k, ' ') + "if x:\n"; }),
                 "this line is indented too deeply");
  expect_answered("def f(x: float32[4]):\n" + std::string(900'000, ' ') + "return x\n");
  expect_refused(counted(1000, [](size_t k) { return std::string(1000 - k, ' ') + "x\n"; }), "error");
}

// --- Lengths ---

TEST(Hostile, ALineOf100Megabytes) { expect_refused(repeated("x", 100'000'000), "the program has 100000000 bytes"); }

TEST(Hostile, AMillionArguments) {
  expect_refused("def f(" + repeated("a,", 500'000) + "):\n    return a\n", "the function has too many parameters");
  expect_refused(returning("np.maximum(" + repeated("x,", 500'000) + ")"), "this list has more than 4096 items");
  expect_refused(returning("np.einsum(\"i->i\"," + repeated("x,", 4000) + ")"), "4000 operands");
  expect_refused(returning(repeated("x,", 500'000)), "this list has more than 4096 items");
  expect_refused("SIZES = {" + repeated("\"a\":1,", 150'000) + "}\n" + returning("x"),
                 "this list has more than 4096 items");
}

TEST(Hostile, AsManyStatementsAsFit) {
  expect_answered(repeated("a=1\n", 250'000) + returning("x"));
  expect_refused(function(repeated(" a=1\n", 200'000)), "function 'f' returns nothing");
  expect_refused(function(repeated(" x=-x\n", 150'000) + " return x\n"), "the program has more than 50000 operators");
  expect_answered(function(repeated(" \"\"\n", 200'000) + " return x\n"));
  expect_answered(function(" " + repeated("a=", 500'000) + "x\n return x\n"));
  expect_answered(function(repeated(" a=" + repeated("1,", 8000) + "\n", 60) + " return x\n"));
  expect_answered(repeated(";", 1'000'000));
  expect_answered(repeated("@a\n", 300'000) + returning("x"));
  expect_answered(repeated("def g(x):return x\n", 55'000) + returning("x"));
}

TEST(Hostile, AMillionEmptyLinesCommentsAndContinuations) {
  expect_answered(repeated("\n", 1'000'000));
  expect_answered(repeated("#\n", 500'000));
  expect_answered(repeated("\\\n", 500'000));
  expect_answered(returning("(" + repeated("\n", 1'000'000) + "x)"));
}

TEST(Hostile, HundredsOfThousandsOfErrors) {
  expect_refused(repeated("?\n", 300'000), "this character is not part of the language");
  expect_refused(repeated("?", 300'000), "this character is not part of the language");
  expect_refused(repeated(")\n", 300'000), "is not allowed here");
  expect_refused(repeated("a=b\n", 250'000), "unknown size 'b'");
  expect_refused(function(repeated(" a=b\n", 200'000) + " return x\n"), "unknown name 'b'");
  expect_refused(function(repeated(" )\n", 300'000)), "is not allowed here");
  expect_refused("x = \"" + repeated("\\", 900'000), "this string does not end");
}

// Every error searches for the nearest known name.
TEST(Hostile, ManyUnknownNamesAndManyKnownOnes) {
  const std::string known = counted(50'000, [](size_t k) { return concat("a", k, "=1\n"); });
  expect_refused(known + repeated("b=zz\n", 80'000) + returning("x"), "unknown size 'zz'");
  expect_refused(known + returning(repeated("zz,", 8000)), "unknown name 'zz'");
  const std::string functions = counted(35'000, [](size_t k) { return concat("def g", k, "(x):return x\n"); });
  expect_refused(functions + returning(repeated("zz(x),", 8000)), "unknown function 'zz'");
  expect_refused(counted(16'000, [](size_t k) { return std::string(54, 'a') + concat(10'000 + k, "=1\n"); }) +
                     function(repeated("    a=" + std::string(60, 'b') + "\n", 20)),
                 "unknown name '");
}

TEST(Hostile, LimitsSayWhatToDo) {
  expect_refused(returning(repeated("(", 200)), "split it into statements");
  expect_refused(returning(repeated("x,", 10'000)), "split it into statements");
  expect_refused("def f(" + repeated("a,", 5000) + "):\n    return a\n", "split the function");
  expect_refused(counted(200, [](size_t k) { return std::string(k, ' ') + "if x:\n"; }),
                 "indent a function's body by one level");
  expect_refused(function(repeated(" x=-x\n", 60'000) + " return x\n"),
                 "calls are inlined: make fewer or less nested calls");
  expect_refused(std::string(2'000'000, ' '), "at most 1048576 are read");
}

// --- Bytes ---

TEST(Hostile, InvalidUtf8) {
  for (const std::string_view bytes : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\x80"}) {
    expect_refused(returning("x  # " + std::string(bytes)), "the text is not valid UTF-8 from here on");
  }
  expect_refused(repeated("\xFF", 1'000'000), "program.py:1:1: error: the text is not valid UTF-8 from here on");
}

TEST(Hostile, NullBytesAndLoneCarriageReturns) {
  expect_refused(std::string(1'000'000, '\0'), "this character is not part of the language");
  expect_refused(returning("x" + std::string(1, '\0') + " + x"), "this character is not part of the language");
  expect_refused(repeated("\r", 1'000'000), "the program has no function");
  expect_refused("def f(x: float32[4]):\r    y = x\r    return y\r", "error");
}

TEST(Hostile, StringsWithoutAnEnd) {
  expect_refused("\"" + repeated("x", 1'000'000), "this string does not end");
  expect_refused("'''" + repeated("x\n", 500'000), "this string does not end");
  expect_refused(repeated("\"\n", 300'000), "this string does not end");
  expect_refused("\"\\", "this string does not end");
  expect_refused(returning("np.einsum(\"" + repeated("i", 900'000) + "->i\", x)"), "operand 1 has 1 axes");
  expect_refused(returning("np.einsum(\"" + repeated(",", 900'000) + "->i\", x)"), "operands, but 1 were passed");
}

// Errors go to a terminal: they must contain neither control characters of the text nor half a character.
TEST(Hostile, ControlCharactersDoNotReachTheMessage) {
  for (const std::string& text : {returning("np.einsum(\"\x1B[31m->\", x)"), returning("x \"\x1B[31m\""),
                                  "SIZES = {\"\x1B[31m\": {\"A\": 1}}\nA = 1\n" + returning("x")}) {
    ProgramOptions options;
    options.sizes = {"A=1", "missing"};
    const Result<Graph> graph = parse_program(text, options);
    ASSERT_FALSE(graph);
    EXPECT_EQ(to_string(graph.error()).find('\x1B'), std::string::npos) << to_string(graph.error());
  }
  for (const std::string& text : {returning("y \"\u009B31m\""), returning("np.einsum(\"\u009B31m->\", x)"),
                                  "SIZES = {\"\u009B31m\": {\"A\": 1}}\nA = 1\n" + returning("x")}) {
    ProgramOptions options;
    options.sizes = {"A=1", "missing"};
    const Result<Graph> graph = parse_program(text, options);
    ASSERT_FALSE(graph);
    EXPECT_EQ(to_string(graph.error()).find("\u009B"), std::string::npos) << to_string(graph.error());
  }
  for (const std::string& text : {returning("np.einsum(\"i\u00E9\", x[None, :, None])"),
                                  returning("np.einsum(\"i" + repeated("\u20AC", 60) + "\", x)"),
                                  returning("x \"" + repeated("\u20AC", 60) + "\"")}) {
    const Result<Graph> graph = parse_program(text, {});
    ASSERT_FALSE(graph);
    const std::string error = to_string(graph.error());
    EXPECT_EQ(valid_utf8_prefix(error), error.size()) << error;
  }
}

TEST(Hostile, NamesThatWouldBeCode) {
  expect_refused(returning("__import__('os').system('x')"), "'__import__' is not covered");
  expect_refused(returning("eval('x')"), "'eval' is not covered");
  expect_refused("__import__('os')\n" + returning("x"), "'__import__' is not covered");
  expect_refused("import os; os.system('x')\n" + returning("x"), "this statement assigns nothing");
  expect_refused("def f(x: __import__('os').system('x')):\n    return x\n", "this is not a tensor's type");
  expect_refused("def f(x: float32[eval('4')]):\n    return x\n", "expected a number");
}

// --- Inlining ---

TEST(Hostile, ExponentialInlining) {
  const auto doubling = [](int levels, const std::string& bottom, const std::string& body) {
    std::string text = "def f0(x):\n    return " + bottom + "\n";
    for (int k = 1; k <= levels; ++k)
      text += concat("def f", k, "(x):\n    return f", k - 1, "(x) + f", k - 1, "(x)\n");
    return text + function(body);
  };
  expect_refused(doubling(40, "-x", "    return f40(x)\n"), "calls are nested more than 16 deep");
  expect_answered(doubling(14, "-x", "    return f14(x)\n"));
  expect_refused(doubling(14, "-x", "    return f14(x), f14(x), f14(x)\n"),
                 "the program has more than 50000 operators");
  expect_refused(doubling(14, "1", repeated("    y = f14(1)\n", 1000) + "    return x\n"),
                 "more than 1000000 expressions after inlining");
}

TEST(Hostile, Recursion) {
  expect_refused(returning("f(x)"), "'f' calls itself");
  expect_refused("def g(x):\n    return h(x)\ndef h(x):\n    return g(x)\n" + returning("g(x)"), "'g' calls itself");
}

TEST(Hostile, CallsThatCostMoreThanTheirText) {
  const std::string defaults =
      "def g(" + counted(4000, [](size_t k) { return concat("a", k, "=1,"); }) + "):\n    return 1\n";
  expect_answered(defaults + function(repeated("    y = g()\n", 70'000) + "    return x\n"));
  const std::string names = counted(2000, [](size_t k) { return concat("a", k, ","); });
  const std::string by_name = counted(2000, [](size_t k) { return concat("a", k, "=1,"); });
  expect_answered("def g(" + names + "):\n    return 1\ndef h(x):\n    y = g(" + by_name + ")\n    return x\n" +
                  function(repeated("    y = h(x)\n", 490) + "    return x\n"));
}

TEST(Hostile, TuplesOfTuples) {
  expect_answered(function("    a = x, x\n" + repeated("    a = a, a\n", 40) + "    return x\n"));
  expect_answered(
      function("    a = " + repeated("x,", 8000) + "\n" + repeated("    b = a\n", 90'000) + "    return x\n"));
}

TEST(Hostile, ValuesNestedDeep) {
  expect_refused(function("    a = x,\n" + repeated("    a = a,\n", 90'000) + "    return x\n"),
                 "nested more than 16 deep");
  expect_refused(function("    a = []\n    a.append(a)\n    return x\n"), "has another name too");
  const std::string chain =
      counted(60'000, [](size_t k) { return concat("    b", k + 1, "=[]\n    b", k, ".append(b", k + 1, ")\n"); });
  expect_answered(function("    b0 = []\n" + chain.substr(0, 900'000) + "\n    return x\n"));
  expect_refused(function("    a = " + repeated("1,", 4000) + "\n    b = " + repeated("a,", 4000) +
                          "\n    c = b, b, b\n    return c\n"),
                 "more than 1000000 expressions");
}

TEST(Hostile, ListsGrowWithinLimits) {
  expect_refused(function("    a = [1]\n" + repeated("    a = a + a\n", 40) + "    return x\n"),
                 "more than 4096 items");
  expect_refused(
      function("    a = []\n    for k in range(4096):\n        a.append(k)\n    a.append(1)\n    return x\n"),
      "a list has at most 4096 items");
  expect_refused("a = (1,)\n" + repeated("a = a + a\n", 90'000) + returning("x"), "has at most 32 items");
  expect_answered("a = (1,) * 16\n" + repeated("b = a + a\n", 90'000) + returning("x"));
  expect_refused(returning("sum([x] * 9223372036854775807)"), "more than 4096 items");
  expect_refused(function("    a = [1] * 4096\n    for k in range(4096):\n        for m in range(4096):\n"
                          "            b = a == a\n    return x\n"),
                 "more than 1000000 expressions");
}

TEST(Hostile, LoopsRunWithinLimits) {
  const auto loops = [](size_t depth, const std::string& body) {
    std::string text;
    for (size_t k = 0; k < depth; ++k) text += std::string(4 + k, ' ') + "for k in range(4096):\n";
    return function(text + std::string(4 + depth, ' ') + body + "\n    return x\n");
  };
  expect_refused(loops(1, "x = -x\n    for k in range(4096): x = -x + -x * -x - -x / -x - -x - -x - -x - -x - -x"),
                 "more than 50000 operators");
  expect_refused(loops(2, "pass"), "more than 1000000 expressions after inlining");
  expect_refused(loops(2, "y = 1"), "more than 1000000 expressions after inlining");
  expect_refused(loops(40, "pass"), "more than 1000000 expressions after inlining");
  expect_refused(loops(2, "y = wrong"), "unknown name 'wrong'");
  expect_refused(returning(repeated("[", 20) + "1" + repeated(" for k in range(4096)]", 20)),
                 "expressions after inlining");
  expect_refused(function("    for k in range(9223372036854775807): pass\n    return x\n"), "more than 4096 items");
  expect_refused(
      function("    for k in range(-9223372036854775807, 9223372036854775807, 9223372036854775807): x = x + k\n"
               "    return y\n"),
      "unknown name 'y'");
  expect_refused(function(repeated("    if 0: pass\n    elif 0: pass\n", 25'000)), "returns nothing");
  expect_refused(function("    if 0: pass\n" + repeated("    elif 0: pass\n", 50'000)), "returns nothing");
}

TEST(Hostile, LongDottedNames) {
  expect_refused(returning("x" + repeated(".T", 1000)), "unknown name");
  expect_refused(returning("x" + repeated(".a", 400'000) + "(x)"), "unknown function 'a'");
  expect_refused(returning("(x)" + repeated(".T", 1000)), "nested more than 100 deep");
  expect_answered(function(repeated("    y = [x.a for x in (1, 2)]\n", 30'000) + "    return x\n"));
}

TEST(Hostile, TheSameResultThousandsOfTimes) { expect_answered(returning(repeated("x,", 8000))); }

TEST(Hostile, LongNamesInManyOperators) {
  expect_answered("def g(x):\n    " + repeated("a", 400'000) + " = " + repeated("x+", 90) + "x\n    return " +
                  repeated("a", 400'000) + "\n" + function(repeated("    y = g(x)\n", 500) + "    return y\n"));
}

TEST(Hostile, ManyEinsumsOfManyOperands) {
  const std::string letters = repeated("i,", 63) + "i";
  expect_answered(function(repeated("    y = np.einsum(\"" + letters + "\"," + repeated("x,", 64) + ")\n", 790) +
                           "    return y\n"));
}

// --- Through the program ---

class HostileFile : public testing::Test {
 protected:
  void SetUp() override { path_ = concat(testing::TempDir(), "millrace_hostile_", getpid(), ".py"); }
  void TearDown() override { std::filesystem::remove(path_); }

  void expect_exit_2(const std::string& text, const std::string& message) {
    std::ofstream(path_, std::ios::binary) << text;
    const LimitedOutcome outcome = run_limited({MILLRACE_BINARY, "analyze", path_});
    expect_within_limits(outcome);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.text.find(message), std::string::npos) << outcome.text.substr(0, 500);
  }

  std::string path_;
};

TEST_F(HostileFile, ALineOf100Megabytes) { expect_exit_2(repeated("x", 100'000'000), "is larger than 1048576 bytes"); }

TEST_F(HostileFile, NestingAHundredThousandDeep) {
  expect_exit_2(returning(repeated("(", 100'000)), "nested more than 100 deep");
}

TEST_F(HostileFile, ExponentialInlining) {
  std::string text = "def f0(x):\n    return -x\n";
  for (int k = 1; k <= 40; ++k) text += concat("def f", k, "(x):\n    return f", k - 1, "(x) + f", k - 1, "(x)\n");
  expect_exit_2(text + returning("f40(x)"), "calls are nested more than 16 deep");
}

TEST_F(HostileFile, InvalidUtf8) { expect_exit_2("\xFF\xFE", "the text is not valid UTF-8 from here on"); }

TEST_F(HostileFile, AnEndlessFile) {
  const LimitedOutcome outcome = run_limited({MILLRACE_BINARY, "analyze", "/dev/zero"});
  expect_within_limits(outcome);
  EXPECT_EQ(outcome.code, 2);
}

}  // namespace
}  // namespace millrace
