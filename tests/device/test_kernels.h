// Where tests keep the kernels that they compiled: ctest names one folder for all builds and suites, so that what one
// of them has compiled none of the others does.
#pragma once

#include <cstdlib>
#include <string>

namespace millrace {

// Empty where nobody named one.
inline std::string test_kernels_folder() {
  const char* const folder = std::getenv("MILLRACE_TEST_KERNELS");
  return folder == nullptr ? "" : folder;
}

// A folder in it; without it, one beside `binary`.
inline std::string test_kernels(const std::string& name, const std::string& binary) {
  const std::string folder = test_kernels_folder();
  return folder.empty() ? binary.substr(0, binary.rfind('/') + 1) + name : folder + "/" + name;
}

}  // namespace millrace
