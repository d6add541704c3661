// Compiles CPU kernels from source text to shared objects, once, and keeps them on disk.
//
// Any number of threads and processes may use one directory at once: every file is made in its own folder and renamed
// into place, and no file is used before its owner and its hash have been checked. Files that are damaged, half written
// or another user's are compiled again.
// Test: tests/device/cpu/kernel_cache_test.cpp
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device/cpu/compile.h"
#include "device/cpu/compiler.h"
#include "device/kernel_store.h"
#include "millrace/result.h"

namespace millrace {

// The body of a .cpp file, without #include (the prelude has them), that defines one function
//   extern "C" void MILLRACE_KERNEL(...)
// The cache replaces the token MILLRACE_KERNEL by the kernel's name. Everything else that it defines is private to it.
struct KernelSource {
  std::string text;
};

struct CompiledKernel {
  std::string name;    // of the function
  std::string path;    // of the shared object that has it
  std::string sha256;  // of that file's content
};

struct CompileLimits {
  double seconds = 120;  // for one call of the compiler, which is killed after that
  size_t batch = 16;     // kernels per call
};

class KernelCache {
 public:
  // `cpu_model` names the machine that the kernels run on: one directory may serve several.
  KernelCache(std::string directory, Compiler compiler, std::string prelude, std::string cpu_model,
              CompileLimits limits = {});

  // k_ and 32 digits: a hash of everything that the machine code depends on.
  std::string name_of(const KernelSource& source) const;

  // Every kernel, or why it could not be compiled, in the order of `sources`; `jobs` compilers run at once. A kernel
  // that does not compile affects no other: its error has the kind bad_input. Any other error is the machine's: a full
  // disk, a cache that is not writable, a missing compiler.
  std::vector<Result<CompiledKernel>> get(const std::vector<KernelSource>& sources, int jobs,
                                          const CompileProgress& progress = {}) const;

  // Makes one shared object with exactly these kernels, and returns its sha256; `jobs` compilers run at once.
  Result<std::string> compile_together(const std::vector<KernelSource>& sources, const std::string& output_path,
                                       int jobs = 1) const;

 private:
  std::vector<TranslationUnit> shared_out(const std::map<std::string, std::string>& kernels, size_t jobs) const;

  std::string directory_;
  Compiler compiler_;
  std::string prelude_;
  std::string cpu_model_;
  CompileLimits limits_;
};

}  // namespace millrace
