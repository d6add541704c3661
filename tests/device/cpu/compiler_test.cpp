#include "device/cpu/compiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "device/cpu/kernels.h"

namespace millrace {
namespace {

class CompilerTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    set_variable("MILLRACE_CXX", std::nullopt);
    set_variable("CXX", std::nullopt);
  }
};

bool has(const Compiler& compiler, const std::string& flag) {
  return std::find(compiler.flags.begin(), compiler.flags.end(), flag) != compiler.flags.end();
}

TEST_F(CompilerTest, FindsTheMachinesCompiler) {
  const Result<Compiler> compiler = find_compiler();
  ASSERT_TRUE(compiler) << to_string(compiler.error());
  EXPECT_TRUE(compiler->path.starts_with("/"));
  EXPECT_FALSE(compiler->version.empty());
  EXPECT_EQ(compiler->version.find('\n'), std::string::npos);
  for (const char* flag : {"-std=c++20", "-O3", "-fopenmp", "-fPIC", "-shared", "-fno-math-errno", "-w"})
    EXPECT_TRUE(has(*compiler, flag)) << flag;
  const KernelSource source{
      "extern \"C\" int MILLRACE_KERNEL(int n) {\n  int sum = 0;\n"
      "#pragma omp parallel for reduction(+ : sum)\n"
      "  for (int k = 0; k < n; ++k) sum += k;\n  return sum;\n}"};
  for (int round = 0; round < 3; ++round)  // unloaded in between, while OpenMP's threads keep running
    EXPECT_EQ(call(cache_with(*compiler).get({source}, 1).front(), 1000), 499'500);
}

TEST_F(CompilerTest, TheVariablesInTheirOrder) {
  const Compiler first = pretended_compiler("echo '/first (with) 1.0'; echo more; [ $1 = --version ] || echo >$out");
  set_variable("CXX", first.path);
  Result<Compiler> found = find_compiler();
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_EQ(found->path, first.path);
  EXPECT_EQ(found->version, "/first (with) 1.0");
  set_variable("CXX", "false");
  set_variable("MILLRACE_CXX", concat(" env  ", first.path));
  found = find_compiler();
  ASSERT_TRUE(found) << to_string(found.error());
  EXPECT_EQ(found->path, *find_program("env"));
  EXPECT_EQ(found->flags.front(), first.path);
}

TEST_F(CompilerTest, AnExplicitCompilerIsNotReplaced) {
  set_variable("MILLRACE_CXX", "no-such-compiler");
  const Result<Compiler> compiler = find_compiler();
  ASSERT_FALSE(compiler);
  EXPECT_EQ(compiler.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(says(compiler.error(), "'no-such-compiler' does not exist")) << to_string(compiler.error());
}

TEST_F(CompilerTest, AMissingDefaultCompilerIsSkipped) {
  const std::string script = "echo 'other 2'; [ $1 = --version ] || echo >$out";
  const Compiler other = pretended_compiler(script);
  std::filesystem::rename(other.path, path("clang++"));
  set_variable("CXX", "no-such-compiler");
  set_variable("PATH", folder_.string());
  const Result<Compiler> compiler = find_compiler();
  ASSERT_TRUE(compiler) << to_string(compiler.error());
  EXPECT_EQ(compiler->path, path("clang++"));
}

TEST_F(CompilerTest, OneThatMakesNothingOrSaysNothingIsRefused) {
  set_variable("MILLRACE_CXX", pretended_compiler("echo 'nothing 1'").path);
  Result<Compiler> compiler = find_compiler();
  ASSERT_FALSE(compiler);
  EXPECT_TRUE(says(compiler.error(), "it made no file")) << to_string(compiler.error());
  set_variable("MILLRACE_CXX", pretended_compiler("echo 'no memory for a library' >&2; exit 127").path);
  compiler = find_compiler();
  ASSERT_FALSE(compiler);
  EXPECT_TRUE(says(compiler.error(), "does not print a version: no memory")) << to_string(compiler.error());
}

TEST_F(CompilerTest, NoCompilerIsAnErrorWithARemedy) {
  set_variable("PATH", folder_.string());
  const Result<Compiler> compiler = find_compiler();
  ASSERT_FALSE(compiler);
  EXPECT_EQ(compiler.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(says(compiler.error(), "install g++")) << to_string(compiler.error());
}

TEST_F(CompilerTest, AnUnsupportedMachineFlagIsDropped) {
  const Compiler old = pretended_compiler(
      "case \"$*\" in *=native*) echo 'unknown flag' >&2; exit 1;; esac; echo old; "
      "[ $1 = --version ] || echo >$out");
  set_variable("MILLRACE_CXX", old.path);
  const Result<Compiler> compiler = find_compiler();
  ASSERT_TRUE(compiler) << to_string(compiler.error());
  EXPECT_FALSE(has(*compiler, "-march=native") || has(*compiler, "-mcpu=native"));
  EXPECT_TRUE(has(*compiler, "-O3"));
}

TEST_F(CompilerTest, TheErrorOfABrokenCompilerIsQuoted) {
  const Compiler broken = pretended_compiler("[ $1 = --version ] && echo broken && exit; echo 'no omp.h' >&2; exit 1");
  set_variable("MILLRACE_CXX", broken.path);
  const Result<Compiler> compiler = find_compiler();
  ASSERT_FALSE(compiler);
  EXPECT_TRUE(says(compiler.error(), "no omp.h")) << to_string(compiler.error());
}

}  // namespace
}  // namespace millrace
