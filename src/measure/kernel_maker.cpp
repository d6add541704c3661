#include "measure/kernel_maker.h"

#include "codegen/cpu/generate.h"
#include "codegen/cuda/generate.h"
#include "device/cpu/cpu_info.h"

namespace millrace {

KernelCache cpu_kernel_cache(const std::string& directory, const Compiler& compiler) {
  return {directory, compiler, std::string(cpu_prelude()), cpu_info().identity()};
}

Result<std::unique_ptr<KernelMaker>> make_kernel_maker(const Backend& backend, const std::string& directory, int jobs) {
  if (const std::shared_ptr<Gpu> gpu = backend.gpu()) {
    const Result<std::shared_ptr<GpuCompiler>> compiler = backend.gpu_compiler();
    if (!compiler) return compiler.error();
    GpuKernelCache cache(directory, **compiler, gpu_prelude(), gpu->info().architecture());
    return std::unique_ptr<KernelMaker>(std::make_unique<GpuKernelMaker>(std::move(cache), jobs));
  }
  const Result<Compiler> compiler = backend.host_compiler();
  if (!compiler) return std::unique_ptr<KernelMaker>();
  return std::unique_ptr<KernelMaker>(std::make_unique<CpuKernelMaker>(cpu_kernel_cache(directory, *compiler), jobs));
}

}  // namespace millrace
