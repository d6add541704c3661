// The machine's C++ compiler, which makes the CPU kernels.
#pragma once

#include <string>
#include <vector>

#include "millrace/result.h"

namespace millrace {

struct Compiler {
  std::string path;
  std::string version;             // the first line that --version prints
  std::vector<std::string> flags;  // that make a shared object for this machine; a wrapper's own arguments come first
};

// $MILLRACE_CXX, else $CXX, else g++, c++ or clang++ in $PATH: the first that is there and takes the flags (tried once
// by compiling a small kernel). The variables may hold a wrapper and its arguments ("ccache g++").
Result<Compiler> find_compiler();

}  // namespace millrace
