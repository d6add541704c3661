// The exports of libmillrace_cuda.so, for the emulated GPU.
#include "device/emulated/emulated_gpu.h"
#include "device/gpu_backend.h"

#pragma GCC visibility push(default)
extern "C" {

const char* millrace_cuda_version() { return millrace::kGpuBackendVersion; }

void millrace_cuda_open_gpu(millrace::Result<std::unique_ptr<millrace::Gpu>>* result) {
  *result = millrace::emulated::make_gpu();
}

void millrace_cuda_open_gpu_compiler(millrace::Result<std::unique_ptr<millrace::GpuCompiler>>* result) {
  *result = millrace::emulated::make_compiler();
}

void millrace_cuda_inspect(millrace::GpuReport* report) { *report = millrace::emulated::inspect(); }

}  // extern "C"
#pragma GCC visibility pop
