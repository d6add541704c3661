#include <array>
#include <limits>
#include <utility>

#include "base/text.h"
#include "device/cuda/cuda_launch.h"
#include "device/cuda/kernel_parameters.h"

namespace millrace {
namespace {

constexpr size_t kMostParameterBytes = 32764;   // of a kernel, since CUDA 12.1
constexpr unsigned kSharedUnasked = 48 * 1024;  // bytes that a launch may have without setting the function's attribute

// A cubin's code on the GPU.
class Module {
 public:
  explicit Module(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}
  ~Module() {
    if (module_ == nullptr) return;
    const CurrentContext current(*context_);
    context_->driver().module_unload(module_);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Result<Done> load(const std::string& cubin) {
    return context_->check(context_->driver().module_load_data(&module_, cubin.data()), "load a compiled kernel");
  }
  Result<CUfunction> function(const std::string& name) const {
    CUfunction function = nullptr;
    const Result<Done> found = context_->check(context_->driver().module_get_function(&function, module_, name.c_str()),
                                               concat("find the kernel ", name));
    if (!found) return found.error();
    return function;
  }
  CudaContext& context() const { return *context_; }

 private:
  std::shared_ptr<CudaContext> context_;
  CUmodule module_ = nullptr;
};

struct Grid {
  CUfunction function = nullptr;
  std::string name;
  unsigned blocks = 1;
  unsigned threads = 1;
  unsigned shared_bytes = 0;
};

class KernelLaunch final : public GpuLaunch {
 public:
  KernelLaunch(std::unique_ptr<Module> module, std::vector<Grid> grids, KernelParameters parameters, int64_t scratch)
      : module_(std::move(module)),
        grids_(std::move(grids)),
        parameters_(std::move(parameters)),
        scratch_bytes_(scratch) {}

  Result<Done> run(void* const* tensors, const double* arguments, const void* state, void* scratch) override {
    parameters_.set(tensors, arguments, state, scratch);
    std::array<void*, 1> parameters = {parameters_.data()};  // the driver copies what they point to before it returns
    CudaContext& context = module_->context();
    const CurrentContext current(context);
    CUlaunchAttribute overlap{};
    overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    overlap.value.programmaticStreamSerializationAllowed = 1;
    for (const Grid& grid : grids_) {
      CUlaunchConfig config{};
      config.gridDimX = grid.blocks;
      config.gridDimY = config.gridDimZ = 1;
      config.blockDimX = grid.threads;
      config.blockDimY = config.blockDimZ = 1;
      config.sharedMemBytes = grid.shared_bytes;
      config.hStream = context.stream();
      config.attrs = &overlap;
      config.numAttrs = context.overlaps() ? 1 : 0;
      const CUresult result = context.driver().launch_kernel(&config, grid.function, parameters.data(), nullptr);
      if (result != CUDA_SUCCESS) return context.check(result, concat("launch the kernel ", grid.name));
    }
    return Done{};
  }

  int64_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  std::unique_ptr<Module> module_;
  std::vector<Grid> grids_;
  KernelParameters parameters_;
  int64_t scratch_bytes_;
};

Error refused(const std::string& name, const std::string& why) {
  return Error::make(ErrorKind::failed, concat("the kernel ", name, " cannot be launched: ", why));
}

Result<Done> allow_shared(const CudaContext& context, const Grid& grid) {
  if (grid.shared_bytes <= kSharedUnasked) return Done{};
  return context.check(
      context.driver().func_set_attribute(grid.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                          static_cast<int>(grid.shared_bytes)),
      concat("give the kernel ", grid.name, " ", grid.shared_bytes, " bytes of shared memory"));
}

// Queries attributes, which also loads the function: nothing may be loaded while a graph is recorded.
Result<Done> check_function(const CudaContext& context, const Grid& grid, size_t parameter_bytes) {
  const Driver& driver = context.driver();
  int threads = 0;
  const Result<Done> known =
      context.check(driver.func_get_attribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, grid.function),
                    concat("ask about the kernel ", grid.name));
  if (!known) return known;
  if (grid.threads > static_cast<unsigned>(threads))
    return refused(grid.name, concat("it has ", grid.threads, " threads per block, but its registers allow ", threads));
  if (driver.func_get_param_info == nullptr) return Done{};
  size_t offset = 0;
  size_t bytes = 0;
  if (driver.func_get_param_info(grid.function, 0, &offset, &bytes) == CUDA_SUCCESS && bytes != parameter_bytes)
    return refused(grid.name, concat("its parameter has ", bytes, " bytes, but is given ", parameter_bytes));
  return Done{};
}

Result<Grid> find_grid(const Module& module, const GpuGrid& asked, size_t parameter_bytes) {
  if (asked.blocks < 1 || asked.blocks > std::numeric_limits<int32_t>::max() || asked.threads < 1)
    return refused(asked.function, concat(asked.blocks, " blocks of ", asked.threads, " threads"));
  if (asked.shared_bytes < 0 || asked.shared_bytes > std::numeric_limits<int32_t>::max())
    return refused(asked.function, concat(asked.shared_bytes, " bytes of shared memory per block"));
  const Result<CUfunction> function = module.function(asked.function);
  if (!function) return function.error();
  Grid grid{*function, asked.function, static_cast<unsigned>(asked.blocks), static_cast<unsigned>(asked.threads),
            static_cast<unsigned>(asked.shared_bytes)};
  if (const Result<Done> allowed = allow_shared(module.context(), grid); !allowed) return allowed.error();
  if (const Result<Done> fits = check_function(module.context(), grid, parameter_bytes); !fits) return fits.error();
  return grid;
}

}  // namespace

Result<std::unique_ptr<GpuLaunch>> prepare_kernels(std::shared_ptr<CudaContext> context, const Launch& launch,
                                                   const std::string& cubin) {
  if (launch.grids.empty()) return Error::make(ErrorKind::failed, "a launch of generated kernels has no grid");
  KernelParameters parameters(static_cast<size_t>(launch.tensor_count), launch.numbers, launch.subsequences);
  if (parameters.size() > kMostParameterBytes)
    return refused(launch.grids.front().function, concat("its parameter has ", parameters.size(), " bytes"));
  const CurrentContext current(*context);
  auto module = std::make_unique<Module>(std::move(context));
  if (const Result<Done> loaded = module->load(cubin); !loaded) return loaded.error();
  std::vector<Grid> grids;
  for (const GpuGrid& asked : launch.grids) {
    Result<Grid> grid = find_grid(*module, asked, parameters.size());
    if (!grid) return grid.error();
    grids.push_back(std::move(*grid));
  }
  return std::unique_ptr<GpuLaunch>(
      std::make_unique<KernelLaunch>(std::move(module), std::move(grids), std::move(parameters), launch.scratch_bytes));
}

}  // namespace millrace
