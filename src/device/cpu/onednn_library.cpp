#include "device/cpu/onednn_library.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "base/text.h"
#include "device/cpu/library_loader.h"

namespace millrace {
namespace {

// As dnnl_version() returns it.
struct OneDnnVersion {
  int major;
  int minor;
  int patch;
  const char* hash;
  unsigned cpu_runtime;
  unsigned gpu_runtime;
};

struct LoadedOneDnn {
  BlasInfo info;
  OneDnn functions;
};

// Functions that versions 2 and 3 share.
bool find_common(void* handle, OneDnn& f) {
  return find_function(handle, "dnnl_engine_create", f.engine_create) &&
         find_function(handle, "dnnl_stream_create", f.stream_create) &&
         find_function(handle, "dnnl_stream_wait", f.stream_wait) &&
         find_function(handle, "dnnl_stream_destroy", f.stream_destroy) &&
         find_function(handle, "dnnl_memory_create", f.memory_create) &&
         find_function(handle, "dnnl_memory_set_data_handle", f.memory_set_data_handle) &&
         find_function(handle, "dnnl_memory_destroy", f.memory_destroy) &&
         find_function(handle, "dnnl_memory_desc_get_size", f.memory_desc_get_size) &&
         find_function(handle, "dnnl_primitive_attr_create", f.primitive_attr_create) &&
         find_function(handle, "dnnl_primitive_attr_destroy", f.primitive_attr_destroy) &&
         find_function(handle, "dnnl_primitive_attr_set_scratchpad_mode", f.primitive_attr_set_scratchpad_mode) &&
         find_function(handle, "dnnl_primitive_attr_set_fpmath_mode", f.primitive_attr_set_fpmath_mode) &&
         find_function(handle, "dnnl_primitive_attr_set_post_ops", f.primitive_attr_set_post_ops) &&
         find_function(handle, "dnnl_post_ops_create", f.post_ops_create) &&
         find_function(handle, "dnnl_post_ops_destroy", f.post_ops_destroy) &&
         find_function(handle, "dnnl_post_ops_append_binary", f.post_ops_append_binary) &&
         find_function(handle, "dnnl_primitive_desc_query", f.primitive_desc_query) &&
         find_function(handle, "dnnl_primitive_desc_query_md", f.primitive_desc_query_md) &&
         find_function(handle, "dnnl_primitive_desc_destroy", f.primitive_desc_destroy) &&
         find_function(handle, "dnnl_primitive_create", f.primitive_create) &&
         find_function(handle, "dnnl_primitive_execute", f.primitive_execute) &&
         find_function(handle, "dnnl_primitive_destroy", f.primitive_destroy);
}

bool find_own(void* handle, OneDnn& f) {
  if (f.major == 2) {
    return find_function(handle, "dnnl_memory_desc_init_by_strides", f.memory_desc_init_by_strides) &&
           find_function(handle, "dnnl_post_ops_append_eltwise", f.post_ops_append_scaled_eltwise) &&
           find_function(handle, "dnnl_matmul_desc_init", f.matmul_desc_init) &&
           find_function(handle, "dnnl_primitive_desc_create", f.primitive_desc_create);
  }
  find_function(handle, "dnnl_primitive_attr_set_deterministic", f.primitive_attr_set_deterministic);
  return find_function(handle, "dnnl_memory_desc_create_with_strides", f.memory_desc_create_with_strides) &&
         find_function(handle, "dnnl_memory_desc_destroy", f.memory_desc_destroy) &&
         find_function(handle, "dnnl_post_ops_append_eltwise", f.post_ops_append_eltwise) &&
         find_function(handle, "dnnl_matmul_primitive_desc_create", f.matmul_primitive_desc_create);
}

// Whether its threads are those of GNU's OpenMP, whose number Millrace sets.
bool uses_gnu_openmp(void* handle, const OneDnnVersion& version) {
  constexpr unsigned kOpenMp = 2;
  void (*set_threads)(int) = nullptr;
  return version.cpu_runtime == kOpenMp && find_function(handle, "omp_set_num_threads", set_threads) &&
         file_of(reinterpret_cast<void*>(set_threads), "").find("libgomp") != std::string::npos;
}

// Why the library `handle` cannot be used; empty if it can.
std::string take_onednn(void* handle, const std::string& path, LoadedOneDnn& loaded) {
  constexpr int kCpu = 1;
  const OneDnnVersion* (*version_of)() = nullptr;
  if (!find_function(handle, "dnnl_version", version_of)) return "it lacks a function that oneDNN has";
  const OneDnnVersion& version = *version_of();
  const std::string number = concat(version.major, ".", version.minor, ".", version.patch);
  if (version.major != 2 && version.major != 3) return concat("version ", number, ", but only 2 and 3 are known");
  if (!uses_gnu_openmp(handle, version)) return "its threads are not those of GNU's OpenMP";
  OneDnn functions;
  functions.major = version.major;
  if (!find_common(handle, functions) || !find_own(handle, functions))
    return concat("version ", number, " lacks a function that later ones have");
  if (functions.engine_create(&functions.engine, kCpu, 0) != 0) return "it does not support this processor";
  loaded.functions = functions;
  loaded.info = {true, number, file_of(reinterpret_cast<void*>(version_of), path), ""};
  return "";
}

// Version 3 first: it knows newer processors.
std::vector<std::string> onednn_paths() {
  const char* named = std::getenv(kOneDnnVariable);  // NOLINT(concurrency-mt-unsafe): nothing sets variables
  if (named != nullptr && *named != '\0') return {named};
  return {"libdnnl.so.3", "libdnnl.so.2"};
}

const LoadedOneDnn& loaded_onednn() {
  static const LoadedOneDnn kLoaded = load_first<LoadedOneDnn>(
      onednn_paths(), take_onednn, "oneDNN",
      concat("install it; on Debian and Ubuntu: apt-get install libdnnl3 (Debian 12: libdnnl2); or set ",
             kOneDnnVariable, " to the file libdnnl.so.3 of PyPI's onednn-cpu-gomp"));
  return kLoaded;
}

}  // namespace

const OneDnn& onednn() { return loaded_onednn().functions; }
const BlasInfo& onednn_info() { return loaded_onednn().info; }

}  // namespace millrace
