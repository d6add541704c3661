// Loads a library of matrix products, the first of several files that holds a usable one. Tests:
// tests/device/blas_test.cpp, tests/device/onednn_test.cpp
#pragma once

#include <dlfcn.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/dynamic_function.h"
#include "base/text.h"
#include "device/cpu/address_space.h"

namespace millrace {

// The file that contains a function.
inline std::string file_of(void* function, const std::string& otherwise) {
  Dl_info found{};
  return dladdr(function, &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : otherwise;
}

// Takes the first path that holds a usable library: `take(handle, path, loaded)` says why one is not, or returns "".
// The library stays loaded, because OpenMP's threads may be running in it. `install`: how to get it.
template <class Loaded, class Take>
Loaded load_first(const std::vector<std::string>& paths, Take take, std::string_view name, std::string_view install) {
  Loaded loaded;
  if (const std::string reason = lack_of_address_space(); !reason.empty()) {
    loaded.info.missing = concat(name, " is not loaded: ", reason);
    return loaded;
  }
  std::vector<std::string> reasons;
  for (const std::string& path : paths) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* reason = dlerror();
      reasons.emplace_back(reason != nullptr ? reason : path);
      continue;
    }
    const std::string reason = take(handle, path, loaded);
    if (reason.empty()) return loaded;
    reasons.push_back(concat(path, ": ", reason));
  }
  loaded.info.missing = concat(name, " is missing (", join(reasons, "; "), "): ", install);
  return loaded;
}

}  // namespace millrace
