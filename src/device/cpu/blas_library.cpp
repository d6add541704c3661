#include "device/cpu/blas_library.h"

#include <vector>

#include "base/text.h"
#include "device/cpu/library_loader.h"
#include "device/cpu/onednn_library.h"

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

std::string install(std::string_view package) {
  return concat("install it; on Debian and Ubuntu: apt-get install ", package);
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
  if (!find_function(handle, "openblas_get_parallel", parallel) ||
      !find_function(handle, "openblas_get_config", config) || !find_function(handle, "cblas_sgemm", functions.sgemm) ||
      !find_function(handle, "cblas_dgemm", functions.dgemm)) {
    return "it lacks a function that OpenBLAS has";
  }
  const std::string version = config();
  if (parallel() != kOpenMp) return "it is not the OpenMP variant";
  if (version.find("USE64BITINT") != std::string::npos) return "it uses 64-bit integers";
  loaded.functions = functions;
  loaded.info = {true, version, file_of(reinterpret_cast<void*>(functions.sgemm), path), ""};
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
  if (!find_function(handle, "bli_info_get_version_str", version) ||
      !find_function(handle, "bli_info_get_int_type_size", integer_bits) ||
      !find_function(handle, "bli_info_get_enable_openmp", openmp) ||
      !find_function(handle, "bli_sgemm", functions.sgemm) || !find_function(handle, "bli_dgemm", functions.dgemm) ||
      !find_function(handle, "bli_thread_set_num_threads", functions.set_num_threads)) {
    return "it lacks a function that BLIS has";
  }
  if (openmp() == 0) return "it is not the OpenMP variant";
  if (integer_bits() != kIntegerBits) return "it does not use 64-bit integers";
  loaded.functions = functions;
  loaded.info = {true, version(), file_of(reinterpret_cast<void*>(functions.sgemm), path), ""};
  return "";
}

const LoadedOpenBlas& loaded_openblas() {
  static const LoadedOpenBlas kLoaded =
      load_first<LoadedOpenBlas>(places("openblas-openmp", "libopenblas.so.0", "libopenblaso.so.0"), take_openblas,
                                 "OpenBLAS", install("libopenblas0-openmp"));
  return kLoaded;
}

const LoadedBlis& loaded_blis() {
  static const LoadedBlis kLoaded = load_first<LoadedBlis>(places("blis-openmp", "libblis.so.4", "libbliso.so.4"),
                                                           take_blis, "BLIS", install("libblis4-openmp"));
  return kLoaded;
}

}  // namespace

std::string_view name_of(GemmLibrary library) {
  if (library == GemmLibrary::onednn) return "oneDNN";
  return library == GemmLibrary::openblas ? "OpenBLAS" : "BLIS";
}

const BlasInfo& blas_info(GemmLibrary library) {
  if (library == GemmLibrary::onednn) return onednn_info();
  return library == GemmLibrary::openblas ? loaded_openblas().info : loaded_blis().info;
}

const OpenBlas& openblas() { return loaded_openblas().functions; }
const Blis& blis() { return loaded_blis().functions; }

}  // namespace millrace
