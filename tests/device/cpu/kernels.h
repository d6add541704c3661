// Small kernels, and real and fake compilers, for the tests of the CPU device.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/process.h"
#include "base/scratch.h"
#include "base/text.h"
#include "device/cpu/kernel_cache.h"
#include "device/cpu/module.h"

namespace millrace {

using Kernel = int (*)(int);

class KernelTest : public ScratchTest {
 protected:
  // The machine's compiler, with flags that compile fast.
  static Compiler quick_compiler() {
    const std::optional<std::string> path = find_program("g++").has_value() ? find_program("g++") : find_program("c++");
    EXPECT_TRUE(path) << "no compiler found, but one built this test";
    return {path.value_or(""), "quick 1", {"-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-w"}};
  }

  // A script in place of a compiler: it writes the file $out and appends to the file $calls.
  Compiler pretended_compiler(const std::string& script) {
    const std::string file = path("compiler.sh");
    EXPECT_TRUE(
        write_file(file, concat("#!/bin/sh\nfor out; do :; done\ncalls='", path("calls"), "'\n", script, "\n")));
    EXPECT_EQ(chmod(file.c_str(), 0755), 0);
    return {file, "pretended 1", {"-shared"}};
  }
  Compiler counting_compiler() { return pretended_compiler("echo >>$calls; echo an object >$out"); }
  size_t calls() const {
    const Result<std::string> lines = read_file(path("calls"), 1 << 20);
    return lines ? lines->size() : 0;
  }

  // x → x + number
  static KernelSource adding(int number) {
    return {concat("static int helper(int x) { return x + number(", number, "); }\n",
                   "extern \"C\" int MILLRACE_KERNEL(int x) { return helper(x); }")};
  }
  static std::vector<KernelSource> adding_up_to(int count) {
    std::vector<KernelSource> sources;
    for (int k = 0; k < count; ++k) sources.push_back(adding(k));
    return sources;
  }
  static std::string prelude() { return "inline int number(int x) { return x; }"; }

  KernelCache cache_with(const Compiler& compiler, CompileLimits limits = {}) const {
    return {path("cache"), compiler, prelude(), "cpu", limits};
  }

  // The result of a compiled kernel for `x`; -1 if it cannot be loaded.
  static int call(const Result<CompiledKernel>& kernel, int x) {
    EXPECT_TRUE(kernel) << to_string(kernel.error());
    if (!kernel) return -1;
    const Result<KernelModule> loaded = KernelModule::load(kernel->path, kernel->sha256);
    EXPECT_TRUE(loaded) << to_string(loaded.error());
    if (!loaded) return -1;
    const Result<void*> function = loaded->function(kernel->name);
    EXPECT_TRUE(function) << to_string(function.error());
    return function ? reinterpret_cast<Kernel>(*function)(x) : -1;
  }

  static bool says(const Error& error, const std::string& words) {
    return to_string(error).find(words) != std::string::npos;
  }
};

}  // namespace millrace
