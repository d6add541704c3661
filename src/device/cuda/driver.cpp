#include "device/cuda/driver.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "device/cuda/shared_library.h"

namespace millrace {
namespace {

constexpr const char* kInstallDriver =
    "install NVIDIA's driver (nvidia-smi shows whether it works), or run on the CPU with --device cpu";

// After one of these errors the process has lost its context: every later call returns the same error.
bool is_sticky(CUresult result) {
  constexpr std::array kSticky = {CUDA_ERROR_ECC_UNCORRECTABLE,    CUDA_ERROR_ILLEGAL_ADDRESS,
                                  CUDA_ERROR_LAUNCH_TIMEOUT,       CUDA_ERROR_ASSERT,
                                  CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                  CUDA_ERROR_MISALIGNED_ADDRESS,   CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                  CUDA_ERROR_INVALID_PC,           CUDA_ERROR_LAUNCH_FAILED,
                                  CUDA_ERROR_CONTEXT_IS_DESTROYED};
  return std::find(kSticky.begin(), kSticky.end(), result) != kSticky.end();
}

// Uses the names that cuda.h's macros lead to. The driver also has older names, with other arguments.
void find_all(SharedLibrary& library, Driver& driver) {
  library.find("cuInit", driver.init);
  library.find("cuDriverGetVersion", driver.driver_get_version);
  library.find("cuGetErrorName", driver.get_error_name);
  library.find("cuGetErrorString", driver.get_error_string);
  library.find("cuDeviceGetCount", driver.device_get_count);
  library.find("cuDeviceGet", driver.device_get);
  library.find("cuDeviceGetName", driver.device_get_name);
  library.find("cuDeviceGetAttribute", driver.device_get_attribute);
  library.find("cuDeviceTotalMem_v2", driver.device_total_mem);
  library.find("cuDevicePrimaryCtxRetain", driver.primary_ctx_retain);
  library.find("cuDevicePrimaryCtxRelease_v2", driver.primary_ctx_release);
  library.find("cuCtxGetCurrent", driver.ctx_get_current);
  library.find("cuCtxGetDevice", driver.ctx_get_device);
  library.find("cuCtxPushCurrent_v2", driver.ctx_push_current);
  library.find("cuCtxPopCurrent_v2", driver.ctx_pop_current);
  library.find("cuMemGetInfo_v2", driver.mem_get_info);
  library.find("cuMemAlloc_v2", driver.mem_alloc);
  library.find("cuMemFree_v2", driver.mem_free);
  library.find("cuMemcpyHtoDAsync_v2", driver.memcpy_to_device);
  library.find("cuMemcpyDtoHAsync_v2", driver.memcpy_to_host);
  library.find("cuMemcpyDtoDAsync_v2", driver.memcpy_on_device);
  library.find("cuMemsetD8Async", driver.memset_bytes);
  library.find("cuStreamCreate", driver.stream_create);
  library.find("cuStreamDestroy_v2", driver.stream_destroy);
  library.find("cuStreamSynchronize", driver.stream_synchronize);
  library.find("cuStreamBeginCapture_v2", driver.stream_begin_capture);
  library.find("cuStreamEndCapture", driver.stream_end_capture);
  library.find("cuStreamIsCapturing", driver.stream_is_capturing);
  library.find("cuEventCreate", driver.event_create);
  library.find("cuEventDestroy_v2", driver.event_destroy);
  library.find("cuEventRecord", driver.event_record);
  library.find("cuEventSynchronize", driver.event_synchronize);
  // Version 2 came with CUDA 12.8. It differs only in the cases in which it fails.
  library.find_if_there("cuEventElapsedTime_v2", driver.event_elapsed_time);
  if (driver.event_elapsed_time == nullptr) library.find("cuEventElapsedTime", driver.event_elapsed_time);
  library.find("cuModuleLoadData", driver.module_load_data);
  library.find("cuModuleUnload", driver.module_unload);
  library.find("cuModuleGetFunction", driver.module_get_function);
  library.find("cuFuncGetAttribute", driver.func_get_attribute);
  library.find("cuFuncSetAttribute", driver.func_set_attribute);
  library.find("cuLaunchKernelEx", driver.launch_kernel);
  library.find("cuGraphInstantiateWithFlags", driver.graph_instantiate);
  library.find("cuGraphLaunch", driver.graph_launch);
  library.find("cuGraphDestroy", driver.graph_destroy);
  library.find("cuGraphExecDestroy", driver.graph_exec_destroy);
}

Result<Driver> load_driver() {
  Result<SharedLibrary> library =
      SharedLibrary::open({"libcuda.so.1"}, {"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"});
  if (!library)
    return Error::make(ErrorKind::unavailable,
                       concat("the CUDA driver is missing: ", library.error().diagnostics.front().message),
                       kInstallDriver);
  Driver driver;
  find_all(*library, driver);
  if (!library->missing().empty())
    return Error::make(ErrorKind::unavailable,
                       concat("the CUDA driver is too old: it has no function ", library->missing()),
                       "install a driver of CUDA 12 or later");
  library->find_if_there("cuFuncGetParamInfo", driver.func_get_param_info);
  const Result<Done> ready = driver.check(driver.init(0), "initialise the CUDA driver");
  if (!ready)
    return Error::make(ErrorKind::unavailable, concat("there is no GPU to use: ", ready.error().diagnostics[0].message),
                       kInstallDriver);
  return driver;
}

}  // namespace

Result<Done> Driver::check(CUresult result, const std::string& what) const {
  if (result == CUDA_SUCCESS) return Done{};
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an unknown CUDA error";
  if (get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) text = "no description";
  const std::string message = concat("cannot ", what, ": ", name, " (", static_cast<int>(result), "): ", text);
  if (!is_sticky(result)) return Error::make(ErrorKind::failed, message);
  return Error::make(ErrorKind::failed, concat(message, "; the GPU's context is lost"),
                     "this process cannot use the GPU any more: start another one");
}

std::string Driver::version() const {
  int version = 0;
  return driver_get_version(&version) == CUDA_SUCCESS ? version_text(version, 1000, 10) : "unknown";
}

std::string Driver::path() const { return SharedLibrary::path_of(init); }

Result<const Driver*> cuda_driver() {
  static const Result<Driver> kDriver = load_driver();
  if (!kDriver) return kDriver.error();
  return &*kDriver;
}

}  // namespace millrace
