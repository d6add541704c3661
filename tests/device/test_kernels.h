// The folder in which tests keep compiled kernels. ctest names one for all builds and suites, so that each kernel is
// compiled once.
#pragma once

#include <cstdlib>
#include <string>

namespace millrace {

// Empty if none is named.
inline std::string test_kernels_folder() {
  const char* const folder = std::getenv("MILLRACE_TEST_KERNELS");
  return folder == nullptr ? "" : folder;
}

// A subfolder; without a folder, one next to `binary`.
inline std::string test_kernels(const std::string& name, const std::string& binary) {
  const std::string folder = test_kernels_folder();
  return folder.empty() ? binary.substr(0, binary.rfind('/') + 1) + name : folder + "/" + name;
}

}  // namespace millrace
