#include "device/cpu/blas_library.h"

#include <dlfcn.h>

#include <array>
#include <vector>

#include "base/text.h"

namespace millrace {
namespace {

// Debian's folders of its OpenMP variants first, since its plain names may lead to another variant; then Fedora's names
// of that variant; then whatever the linker finds.
std::vector<std::string> places(std::string_view folder, std::string_view file, std::string_view fedora_file) {
  std::vector<std::string> paths;
  for (const std::string_view machine : {"aarch64-linux-gnu", "x86_64-linux-gnu"}) {
    paths.push_back(concat("/usr/lib/", machine, "/", folder, "/", file));
  }
  paths.emplace_back(fedora_file);
  paths.emplace_back(file);
  return paths;
}

template <class Function>
bool find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

std::string path_of(void* function, const std::string& otherwise) {
  Dl_info found{};
  return dladdr(function, &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : otherwise;
}

struct LoadedOpenBlas {
  BlasInfo info;
  OpenBlas functions;
};

// Why the library `handle` cannot be used; empty if it can.
std::string take_openblas(void* handle, const std::string& path, LoadedOpenBlas& loaded) {
  constexpr int kOpenMp = 2;
  int (*parallel)() = nullptr;
  const char* (*config)() = nullptr;
  OpenBlas functions;
  if (!find(handle, "openblas_get_parallel", parallel) || !find(handle, "openblas_get_config", config) ||
      !find(handle, "cblas_sgemm", functions.sgemm) || !find(handle, "cblas_dgemm", functions.dgemm)) {
    return "it lacks a function that OpenBLAS has";
  }
  const std::string version = config();
  if (parallel() != kOpenMp) return "it is not the OpenMP variant";
  if (version.find("USE64BITINT") != std::string::npos) return "it uses 64-bit integers";
  loaded.functions = functions;
  loaded.info = {true, version, path_of(reinterpret_cast<void*>(functions.sgemm), path), ""};
  return "";
}

struct LoadedBlis {
  BlasInfo info;
  Blis functions;
};

std::string take_blis(void* handle, const std::string& path, LoadedBlis& loaded) {
  constexpr int64_t kIntegerBits = 64;
  const char* (*version)() = nullptr;
  int64_t (*integer_bits)() = nullptr;
  int64_t (*openmp)() = nullptr;
  Blis functions;
  if (!find(handle, "bli_info_get_version_str", version) || !find(handle, "bli_info_get_int_type_size", integer_bits) ||
      !find(handle, "bli_info_get_enable_openmp", openmp) || !find(handle, "bli_sgemm", functions.sgemm) ||
      !find(handle, "bli_dgemm", functions.dgemm) ||
      !find(handle, "bli_thread_set_num_threads", functions.set_num_threads)) {
    return "it lacks a function that BLIS has";
  }
  if (openmp() == 0) return "it is not the OpenMP variant";
  if (integer_bits() != kIntegerBits) return "it does not use 64-bit integers";
  loaded.functions = functions;
  loaded.info = {true, version(), path_of(reinterpret_cast<void*>(functions.sgemm), path), ""};
  return "";
}

// Takes the first path that holds a usable library. It stays loaded, because OpenMP's threads may be running in it.
template <class Loaded, class Take>
Loaded load(const std::vector<std::string>& paths, Take take, std::string_view name, std::string_view package) {
  Loaded loaded;
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
  loaded.info.missing = concat(name, " is missing (", join(reasons, "; "),
                               "): install it; on Debian and Ubuntu: ", "apt-get install ", package);
  return loaded;
}

const LoadedOpenBlas& loaded_openblas() {
  static const LoadedOpenBlas kLoaded =
      load<LoadedOpenBlas>(places("openblas-openmp", "libopenblas.so.0", "libopenblaso.so.0"), take_openblas,
                           "OpenBLAS", "libopenblas0-openmp");
  return kLoaded;
}

const LoadedBlis& loaded_blis() {
  static const LoadedBlis kLoaded =
      load<LoadedBlis>(places("blis-openmp", "libblis.so.4", "libbliso.so.4"), take_blis, "BLIS", "libblis4-openmp");
  return kLoaded;
}

}  // namespace

std::string_view name_of(GemmLibrary library) { return library == GemmLibrary::openblas ? "OpenBLAS" : "BLIS"; }

const BlasInfo& blas_info(GemmLibrary library) {
  return library == GemmLibrary::openblas ? loaded_openblas().info : loaded_blis().info;
}

const OpenBlas& openblas() { return loaded_openblas().functions; }
const Blis& blis() { return loaded_blis().functions; }

}  // namespace millrace
