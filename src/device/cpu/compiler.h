// The machine's C++ compiler, which compiles the CPU kernels.
// Test: tests/device/cpu/compiler_test.cpp
#pragma once

#include <string>
#include <vector>

#include "millrace/result.h"

namespace millrace {

struct Compiler {
  std::string path;
  std::string version;             // the first line of --version
  std::vector<std::string> flags;  // for a shared object for this machine; a wrapper's own arguments come first
};

// $MILLRACE_CXX, else $CXX, else g++, c++ or clang++ in $PATH: the first that exists and accepts the flags (checked
// once by compiling a small kernel). The variables may contain a wrapper and its arguments ("ccache g++").
Result<Compiler> find_compiler();

}  // namespace millrace
