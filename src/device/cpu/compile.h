// One call of the compiler: named kernels in, one shared object out.
// Test: tests/device/cpu/kernel_cache_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/temporary_directory.h"
#include "device/cpu/compiler.h"
#include "millrace/result.h"

namespace millrace {

inline constexpr int64_t kLargestObject = int64_t{1} << 30;  // bytes

struct NamedKernel {
  std::string name;
  std::string text;
};

// The .cpp file of these kernels: the prelude, then each kernel in its own namespace.
std::string translation_unit(const std::string& prelude, const std::vector<NamedKernel>& kernels);

// A text that one process compiles.
struct TranslationUnit {
  std::string text;
  std::vector<std::string> flags;  // after the compiler's own
};

// An object that the compiler made, in a folder that this owns.
struct FreshObject {
  TemporaryDirectory folder;
  std::string path;
  std::string bytes;
  std::string sha256;
};

struct CompileFailure {
  bool by_text = false;  // otherwise the machine failed: no space, no compiler
  Error error;
};

struct CompileOutcome {
  std::optional<FreshObject> object;
  CompileFailure failure;  // if there is no object
};

// One object of all units, which are compiled at the same time. Works in a new folder in `directory`.
CompileOutcome compile(const Compiler& compiler, const std::vector<TranslationUnit>& units,
                       const std::string& directory, double seconds);

}  // namespace millrace
