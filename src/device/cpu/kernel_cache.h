// CPU kernels from source text to shared objects, compiled once and kept on disk.
//
// Any number of threads and processes may use one directory at once: every file is made in a folder of its own and
// renamed into place, and nothing that is found is used before its owner and its hash have been checked. What is
// damaged, half written or somebody else's is compiled again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/cpu/compiler.h"
#include "device/kernel_store.h"
#include "millrace/result.h"

namespace millrace {

// The body of a .cpp file, without #include (the prelude has them), that defines one function
//   extern "C" void MILLRACE_KERNEL(...)
// where the token MILLRACE_KERNEL stands for the name that the cache gives it. Whatever else it defines is its own.
struct KernelSource {
  std::string text;
};

struct CompiledKernel {
  std::string name;    // of the function
  std::string path;    // of the shared object that has it
  std::string sha256;  // of that file's content
};

struct CompileLimits {
  double seconds = 120;  // for one call of the compiler; then it is killed
  size_t batch = 16;     // kernels to one call
};

class KernelCache {
 public:
  // `cpu_model` names the machine that the kernels run on: one directory may serve several.
  KernelCache(std::string directory, Compiler compiler, std::string prelude, std::string cpu_model,
              CompileLimits limits = {});

  // k_ and 32 digits, which follow from all that the machine code does.
  std::string name_of(const KernelSource& source) const;

  // Every kernel, or why there is none, in the order of `sources`; `jobs` compilers run at once. One that does not
  // compile spoils no other: its error is of the kind bad_input. Any other error is the machine's: a full disk, a cache
  // that cannot be written, a compiler that has gone.
  std::vector<Result<CompiledKernel>> get(const std::vector<KernelSource>& sources, int jobs,
                                          const CompileProgress& progress = {}) const;

  // Makes one shared object with exactly these kernels, and returns its sha256.
  Result<std::string> compile_together(const std::vector<KernelSource>& sources, const std::string& output_path) const;

 private:
  std::string directory_;
  Compiler compiler_;
  std::string prelude_;
  std::string cpu_model_;
  CompileLimits limits_;
};

}  // namespace millrace
