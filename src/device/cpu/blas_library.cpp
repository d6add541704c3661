#include "device/cpu/blas_library.h"

#include <array>
#include <cstdlib>
#include <vector>

#include "base/text.h"
#include "device/cpu/library_loader.h"
#include "device/cpu/onednn_library.h"

namespace millrace {
namespace {

// Debian's folders of its OpenMP variants first, since its plain names may lead to another variant; then Fedora's names
// of that variant; then any that the linker finds.
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

struct LoadedCblas {
  BlasInfo info;
  Cblas functions;
};

// Why the library `handle` cannot be used; empty if it can.
std::string take_openblas(void* handle, const std::string& path, LoadedCblas& loaded) {
  constexpr int kOpenMp = 2;
  int (*parallel)() = nullptr;
  const char* (*config)() = nullptr;
  Cblas functions;
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

// Selects 32-bit integers and GNU's OpenMP. Another user of MKL in this process may have selected others before.
bool select_layers(int (*interface)(int), int (*threading)(int)) {
  constexpr int kLp64 = 0;
  constexpr int kGnu = 3;
  return interface(kLp64) % 2 == kLp64 && threading(kGnu) == kGnu;  // an odd interface has 64-bit integers
}

std::string without_spaces_at_the_end(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string take_mkl(void* handle, const std::string& path, LoadedCblas& loaded) {
  int (*interface)(int) = nullptr;
  int (*threading)(int) = nullptr;
  void (*set_dynamic)(int) = nullptr;
  void (*version)(char*, int) = nullptr;
  Cblas functions;
  if (!find_function(handle, "MKL_Set_Interface_Layer", interface) ||
      !find_function(handle, "MKL_Set_Threading_Layer", threading) ||
      !find_function(handle, "MKL_Set_Dynamic", set_dynamic) ||
      !find_function(handle, "MKL_Get_Version_String", version) ||
      !find_function(handle, "MKL_Set_Num_Threads_Local", functions.set_num_threads_local) ||
      !find_function(handle, "cblas_sgemm", functions.sgemm) ||
      !find_function(handle, "cblas_dgemm", functions.dgemm)) {
    return "it lacks a function that MKL has";
  }
  if (!select_layers(interface, threading)) return "another part of this process uses it without GNU's OpenMP";
  find_function(handle, "cblas_gemm_bf16bf16f32", functions.bf16_gemm);
  find_function(handle, "cblas_gemm_f16f16f32", functions.f16_gemm);
  set_dynamic(0);  // exactly as many threads as asked for: the order of sums depends on them
  std::array<char, 200> text{};
  version(text.data(), static_cast<int>(text.size() - 1));
  loaded.functions = functions;
  loaded.info = {true, without_spaces_at_the_end(text.data()), file_of(reinterpret_cast<void*>(functions.sgemm), path),
                 ""};
  return "";
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  return text != nullptr ? text : "";
}

// Where pip puts it in an active virtual environment, where the linker looks, and where Intel's own packages put it.
std::vector<std::string> mkl_paths() {
  if (std::string named = variable(kMklVariable); !named.empty()) return {named};
  std::vector<std::string> paths;
  if (const std::string python = variable("VIRTUAL_ENV"); !python.empty()) {
    for (const std::string_view file : {"libmkl_rt.so.3", "libmkl_rt.so.2"})
      paths.push_back(concat(python, "/lib/", file));
  }
  paths.insert(paths.end(), {"libmkl_rt.so.3", "libmkl_rt.so.2", "/opt/intel/oneapi/mkl/latest/lib/libmkl_rt.so"});
  return paths;
}

const LoadedCblas& loaded_mkl() {
  static const LoadedCblas kLoaded = load_first<LoadedCblas>(
      mkl_paths(), take_mkl, "MKL",
      concat("install it, on x86-64: pip install mkl; it is found in the active virtual environment, or at ",
             kMklVariable));
  return kLoaded;
}

const LoadedCblas& loaded_openblas() {
  static const LoadedCblas kLoaded =
      load_first<LoadedCblas>(places("openblas-openmp", "libopenblas.so.0", "libopenblaso.so.0"), take_openblas,
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
  if (library == GemmLibrary::mkl) return "MKL";
  return library == GemmLibrary::openblas ? "OpenBLAS" : "BLIS";
}

const BlasInfo& blas_info(GemmLibrary library) {
  if (library == GemmLibrary::onednn) return onednn_info();
  if (library == GemmLibrary::mkl) return loaded_mkl().info;
  return library == GemmLibrary::openblas ? loaded_openblas().info : loaded_blis().info;
}

const Cblas& openblas() { return loaded_openblas().functions; }
const Blis& blis() { return loaded_blis().functions; }
const Cblas& mkl() { return loaded_mkl().functions; }

}  // namespace millrace
