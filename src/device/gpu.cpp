// Finds and loads libmillrace_cuda.so. Nothing here depends on CUDA.
#include "device/gpu.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "base/installation.h"
#include "base/text.h"
#include "device/gpu_backend.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "libmillrace_cuda.so";
constexpr const char* kOverride = "MILLRACE_CUDA_BACKEND";

struct GpuLibrary {
  OpenGpu open_gpu = nullptr;
  OpenGpuCompiler open_compiler = nullptr;
  InspectGpu inspect = nullptr;
  std::string path;
};

Result<GpuLibrary> load_file(const std::string& path) {
  const auto refused = [&](const std::string& why) {
    return Error::make(ErrorKind::unavailable, concat("the GPU backend '", path, "' cannot be used: ", why),
                       "rebuild and reinstall all of Millrace from one version");
  };
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* message = dlerror();
    return refused(message == nullptr ? "the loader gives no reason" : message);
  }
  const auto version = reinterpret_cast<GpuBackendVersion>(dlsym(handle, kGpuBackendVersionName));
  if (version == nullptr) return refused("it is not a Millrace backend");
  if (std::string(version()) != kGpuBackendVersion)
    return refused(concat("its version differs (", version(), ", not ", kGpuBackendVersion, ")"));
  GpuLibrary library;
  library.open_gpu = reinterpret_cast<OpenGpu>(dlsym(handle, kOpenGpuName));
  library.open_compiler = reinterpret_cast<OpenGpuCompiler>(dlsym(handle, kOpenGpuCompilerName));
  library.inspect = reinterpret_cast<InspectGpu>(dlsym(handle, kInspectGpuName));
  library.path = path;
  if (library.open_gpu == nullptr || library.open_compiler == nullptr || library.inspect == nullptr)
    return refused("it lacks a function that Millrace needs");
  return library;
}

Result<GpuLibrary> load_library() {
  if (const char* told = std::getenv(kOverride); told != nullptr && *told != '\0') return load_file(told);
  std::error_code failed;
  for (const fs::path& file : installed_places(kFile, InstalledIn::lib))
    if (fs::exists(file, failed)) return load_file(file.string());
  return Error::make(
      ErrorKind::unavailable, concat("Millrace's GPU backend, ", kFile, ", is missing"),
      concat("build Millrace on a machine with CUDA's headers (cuda.h, nvrtc.h, cublasLt.h; CMake reports whether it "
             "found them), or set ",
             kOverride, " to the file, or run on the CPU with --device cpu"));
}

// Loaded once and never unloaded, because CUDA's threads may be running in it. A failed load is tried again.
Result<GpuLibrary> gpu_library() {
  static std::mutex mutex;
  static GpuLibrary loaded;
  const std::lock_guard lock(mutex);
  if (!loaded.path.empty()) return loaded;
  Result<GpuLibrary> fresh = load_library();
  if (fresh) loaded = *fresh;
  return fresh;
}

}  // namespace

Result<std::unique_ptr<Gpu>> open_gpu() {
  const Result<GpuLibrary> loaded = gpu_library();
  if (!loaded) return loaded.error();
  Result<std::unique_ptr<Gpu>> result = Error{};
  loaded->open_gpu(&result);
  return result;
}

Result<std::unique_ptr<GpuCompiler>> open_gpu_compiler() {
  const Result<GpuLibrary> loaded = gpu_library();
  if (!loaded) return loaded.error();
  Result<std::unique_ptr<GpuCompiler>> result = Error{};
  loaded->open_compiler(&result);
  return result;
}

GpuReport inspect_gpu() {
  GpuReport report;
  const Result<GpuLibrary> loaded = gpu_library();
  if (!loaded) {
    const Diagnostic& why = loaded.error().diagnostics.front();
    report.backend.missing = concat(why.message, ": ", why.remedy);
    report.no_device = report.backend.missing;
    return report;
  }
  loaded->inspect(&report);
  report.backend = {kGpuBackendVersion, loaded->path, ""};
  return report;
}

}  // namespace millrace
