// The CUDA driver's functions, and its errors as text.
// Test: tests/device/cuda/cuda_gpu_test.cpp
#pragma once

#include <cuda.h>

#include <string>

#include "millrace/result.h"

namespace millrace {

inline CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

// Under the names that cuda.h gives them: version 2 where there is one.
struct Driver {
  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&cuGetErrorName) get_error_name = nullptr;
  decltype(&cuGetErrorString) get_error_string = nullptr;

  decltype(&cuDeviceGetCount) device_get_count = nullptr;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetName) device_get_name = nullptr;
  decltype(&cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&cuDeviceTotalMem) device_total_mem = nullptr;

  decltype(&cuDevicePrimaryCtxRetain) primary_ctx_retain = nullptr;
  decltype(&cuDevicePrimaryCtxRelease) primary_ctx_release = nullptr;
  decltype(&cuCtxGetCurrent) ctx_get_current = nullptr;
  decltype(&cuCtxGetDevice) ctx_get_device = nullptr;
  decltype(&cuCtxPushCurrent) ctx_push_current = nullptr;
  decltype(&cuCtxPopCurrent) ctx_pop_current = nullptr;

  decltype(&cuMemGetInfo) mem_get_info = nullptr;
  decltype(&cuMemAlloc) mem_alloc = nullptr;
  decltype(&cuMemFree) mem_free = nullptr;
  decltype(&cuMemcpyHtoDAsync) memcpy_to_device = nullptr;
  decltype(&cuMemcpyDtoHAsync) memcpy_to_host = nullptr;
  decltype(&cuMemcpyDtoDAsync) memcpy_on_device = nullptr;
  decltype(&cuMemsetD8Async) memset_bytes = nullptr;

  decltype(&cuStreamCreate) stream_create = nullptr;
  decltype(&cuStreamDestroy) stream_destroy = nullptr;
  decltype(&cuStreamSynchronize) stream_synchronize = nullptr;
  decltype(&cuStreamBeginCapture) stream_begin_capture = nullptr;
  decltype(&cuStreamEndCapture) stream_end_capture = nullptr;
  decltype(&cuStreamIsCapturing) stream_is_capturing = nullptr;

  decltype(&cuEventCreate) event_create = nullptr;
  decltype(&cuEventDestroy) event_destroy = nullptr;
  decltype(&cuEventRecord) event_record = nullptr;
  decltype(&cuEventSynchronize) event_synchronize = nullptr;
  CUresult (*event_elapsed_time)(float*, CUevent, CUevent) = nullptr;

  decltype(&cuModuleLoadData) module_load_data = nullptr;
  decltype(&cuModuleUnload) module_unload = nullptr;
  decltype(&cuModuleGetFunction) module_get_function = nullptr;
  decltype(&cuFuncGetAttribute) func_get_attribute = nullptr;
  decltype(&cuFuncSetAttribute) func_set_attribute = nullptr;
  // Since CUDA 12.4; null before. Offset and size of a kernel's parameter.
  CUresult (*func_get_param_info)(CUfunction, size_t, size_t*, size_t*) = nullptr;
  decltype(&cuLaunchKernelEx) launch_kernel = nullptr;

  decltype(&cuGraphInstantiateWithFlags) graph_instantiate = nullptr;
  decltype(&cuGraphLaunch) graph_launch = nullptr;
  decltype(&cuGraphDestroy) graph_destroy = nullptr;
  decltype(&cuGraphExecDestroy) graph_exec_destroy = nullptr;

  // Done, or what failed: "cannot WHAT: CUDA_ERROR_...".
  Result<Done> check(CUresult result, const std::string& what) const;

  std::string version() const;  // "13.0"
  std::string path() const;
};

// Loaded and initialised once; unavailable if there is no driver.
Result<const Driver*> cuda_driver();

}  // namespace millrace
