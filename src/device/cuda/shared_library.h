// Finds and loads NVIDIA's libraries on first use. They stay loaded, because their threads may be running in them.
// Test: tests/device/gpu_test.cpp
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "device/gpu.h"
#include "millrace/result.h"

namespace millrace {

class SharedLibrary {
 public:
  // The first of `files` that the loader finds, or that is in one of `folders`.
  static Result<SharedLibrary> open(const std::vector<std::string>& files, const std::vector<std::string>& folders);

  // Null if it is missing; missing() then names it.
  template <class Function>
  void find(const char* name, Function& function) {
    find_if_there(name, function);
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  template <class Function>
  void find_if_there(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
  }

  const std::string& missing() const { return missing_; }

  // The file that contains a function that was found.
  template <class Function>
  static std::string path_of(Function function) {
    Dl_info found{};
    return dladdr(reinterpret_cast<void*>(function), &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : "";
  }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}

  void* handle_;
  std::string missing_;  // the first function that was not found
};

// Where toolkits and Python packages put NVIDIA's libraries, nearest first.
std::vector<std::string> toolkit_folders();

// For a report: why it is missing, on one line.
GpuSoftware missing_software(const Error& error);

// 13010 and 1000 as "13.1".
std::string version_text(long version, long major_unit, long minor_unit);

}  // namespace millrace
