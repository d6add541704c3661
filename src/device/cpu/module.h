// A shared object of kernels that is loaded in this process.
// Test: tests/device/cpu/module_test.cpp
#pragma once

#include <string>

#include "base/descriptor.h"
#include "millrace/result.h"

namespace millrace {

class KernelModule {
 public:
  // Loads the file at `path` if this user owns it (base/directories.h) and its content has this hash. It loads the very
  // file that it hashed, even if the name changes meanwhile.
  static Result<KernelModule> load(const std::string& path, const std::string& expected_sha256);

  KernelModule(KernelModule&& other) noexcept;
  KernelModule& operator=(KernelModule&& other) noexcept;
  KernelModule(const KernelModule&) = delete;
  KernelModule& operator=(const KernelModule&) = delete;
  ~KernelModule();

  Result<void*> function(const std::string& name) const;

 private:
  KernelModule(std::string path, Descriptor file, std::string loaded_as, void* handle);
  void unload();

  std::string path_;
  Descriptor file_;        // open while it is loaded: its number is part of loaded_as_, the loader's name for it
  std::string loaded_as_;  // /proc/self/fd/N
  void* handle_ = nullptr;
};

}  // namespace millrace
