// Statements as text: one of each kind, nested.
#include "codegen/statement.h"

#include <gtest/gtest.h>

namespace millrace::codegen {
namespace {

TEST(Statement, PrintsEveryKind) {
  const Statements statements = {
      {Declare{"F", "x[4]"}},
      {Declare{"const I", "q", "7 * lane"}},
      {Assign{"x[0]", "F(1)"}},
      {Call{"mr::begin()"}},
      {Load{"x0", "p0", "I(4 * i0)"}},
      {Store{"4, 1, 16", "p1", "I(4 * i0)", "x"}},
      {Barrier{}},
      {Barrier{"64, 2"}},
  };
  EXPECT_EQ(print_statements(statements, 1),
            "  F x[4];\n"
            "  const I q = 7 * lane;\n"
            "  x[0] = F(1);\n"
            "  mr::begin();\n"
            "  x0.load(p0, I(4 * i0));\n"
            "  mr::store<4, 1, 16>(p1, I(4 * i0), x);\n"
            "  mr::barrier();\n"
            "  mr::group_barrier<64, 2>();\n");
}

TEST(Statement, IndentsBodies) {
  const Statements inner = {{If{"q < 5", {{Assign{"x", "q"}}}}}, {If{"active", {{Assign{"y", "q"}}}, Braces::none}}};
  const Statements statements = {{Loop{Unroll::fully, "p", "2", inner}},
                                 {Loop{Unroll::never, "k", "64", {{Block{}}}, Braces::none, "thread", "32"}},
                                 assign_each("l", 4, "x[l]", "F(0)")};
  EXPECT_EQ(print_statements(statements, 0),
            "MR_UNROLL\n"
            "for (int p = 0; p < 2; ++p) {\n"
            "  if (q < 5) {\n"
            "    x = q;\n"
            "  }\n"
            "  if (active)\n"
            "    y = q;\n"
            "}\n"
            "MR_NO_UNROLL\n"
            "for (int k = thread; k < 64; k += 32)\n"
            "  {\n"
            "  }\n"
            "MR_UNROLL\n"
            "for (int l = 0; l < 4; ++l)\n"
            "  x[l] = F(0);\n");
}

TEST(Statement, PrintsWhatOnlyCpuKernelsHave) {
  const Statement call = {Call{"body(v)"}};
  const Statements statements = {
      {Lambda{"body", "long v", {{Assign{"x[v]", "F(0)"}}}, "__attribute__((always_inline))"}},
      {Pragma{"omp parallel"}},
      {Loop{Unroll::compiler_decides, "v", "", {call}, Braces::none, "0", "W", "long", "v + W <= 64"}}};
  EXPECT_EQ(print_statements(statements, 1),
            "  const auto body = [&](long v) __attribute__((always_inline)) {\n"
            "    x[v] = F(0);\n"
            "  };\n"
            "#pragma omp parallel\n"
            "  for (long v = 0; v + W <= 64; v += W)\n"
            "    body(v);\n");
}

TEST(Statement, AppendsInOrder) {
  Statements statements = {{Call{"a()"}}};
  append(statements, {{Call{"b()"}}, {Call{"c()"}}});
  EXPECT_EQ(print_statements(statements, 0), "a();\nb();\nc();\n");
}

}  // namespace
}  // namespace millrace::codegen
