#include "driver/plan_folder.h"

#include <sys/stat.h>

#include <charconv>

#include "base/directories.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "codegen/cpu/generate.h"
#include "codegen/cuda/generate.h"
#include "device/cpu/cpu_info.h"
#include "device/kernel_store.h"
#include "driver/file_kind.h"
#include "driver/made_kernels.h"
#include "driver/tuning.h"
#include "plan/launched_partition.h"
#include "plan/plan_json.h"
#include "plan/verify.h"

namespace millrace {
namespace {

constexpr const char* kKernelFile = kFilesOfPlan[0];
constexpr const char* kGpuKernelFile = kFilesOfPlan[1];
constexpr const char* kPlanFile = kFilesOfPlan[2];
constexpr int64_t kCubinBytes = int64_t{1} << 30;

bool is_folder(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::string file_of_plan(const std::string& path) { return is_folder(path) ? concat(path, "/", kPlanFile) : path; }

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// Compiles what the cache does not have.
Result<CubinBundle> compiled_cubins(const StepPlan& plan, std::vector<Launch> launches, const GpuKernelCache& kernels) {
  std::vector<std::string> names;
  for (const PlanLaunch& launch : plan.launches) names.push_back(launch.function);
  names.emplace_back(kExecutorKernel);
  launches.push_back(executor_launch());
  const std::vector<Result<CompiledCubin>> compiled = kernels.get(launches, cpu_info().cores);
  CubinBundle bundle;
  for (size_t k = 0; k < launches.size(); ++k) {
    if (!compiled[k]) return compiled[k].error();
    if (!launches[k].kernel.empty()) bundle[names[k]] = {compiled[k]->name, compiled[k]->bytes};
  }
  return bundle;
}

// Names kernels by their source alone: the plan may be compiled for other GPUs.
void name_gpu_kernels(StepPlan& plan, const std::vector<Launch>& launches) {
  for (size_t k = 0; k < launches.size(); ++k) {
    if (!launches[k].kernel.empty()) plan.launches[k].function = kernel_name({gpu_prelude(), launches[k].kernel});
  }
}

// The plan's stored kernels if this user made them, for this GPU, and they are intact; else compiles them.
Result<CubinBundle> cubins_of(const StepPlan& plan, const std::string& folder, const std::vector<Launch>& launches,
                              const std::string& architecture) {
  const PlanKernels& kernels = plan.kernels;
  if (kernels.machine == architecture && kernels.file == kGpuKernelFile &&
      kernels.sources == hash_of_sources(launches, gpu_prelude()) && are_recorded(plan)) {
    const Result<std::string> bytes = read_file(concat(folder, "/", kernels.file), kCubinBytes);
    if (bytes && sha256(*bytes) == kernels.sha256) {
      Result<CubinBundle> bundle = read_bundle(*bytes);
      if (bundle) return bundle;
    }
  }
  const Result<std::unique_ptr<GpuCompiler>> compiler = open_gpu_compiler();
  if (!compiler) return compiler.error();
  const Result<std::string> directory = cache_directory();
  if (!directory) return directory.error();
  return compiled_cubins(plan, launches, {*directory, **compiler, gpu_prelude(), architecture});
}

}  // namespace

Result<KernelCache> user_kernel_cache() {
  const Result<Compiler> compiler = find_compiler();
  if (!compiler) return compiler.error();
  return kernel_cache_of(*compiler);
}

Result<Done> write_plan(StepPlan& plan, const std::vector<Launch>& launches, const KernelCache& kernels,
                        const std::string& folder) {
  if (Result<Done> usable = make_private_directory(folder); !usable) return usable;
  std::vector<KernelSource> sources;
  for (size_t k = 0; k < launches.size(); ++k) {
    if (launches[k].kernel.empty()) continue;
    sources.push_back({launches[k].kernel});
    plan.launches[k].function = kernels.name_of(sources.back());
  }
  plan.kernels = {};
  if (!sources.empty()) {
    Result<std::string> hash = kernels.compile_together(sources, concat(folder, "/", kKernelFile), cpu_info().cores);
    if (!hash) return hash.error();
    plan.kernels = {kKernelFile, std::move(*hash), hash_of_sources(launches, cpu_prelude()), cpu_info().identity()};
    if (Result<Done> recorded = record_kernels(plan); !recorded) return recorded;
  }
  return write_own_file(concat(folder, "/", kPlanFile), plan_json(plan));
}

Result<Done> write_gpu_plan(StepPlan& plan, const std::vector<Launch>& launches, const GpuKernelCache& kernels,
                            const std::string& folder) {
  if (Result<Done> usable = make_private_directory(folder); !usable) return usable;
  name_gpu_kernels(plan, launches);
  const Result<CubinBundle> cubins = compiled_cubins(plan, launches, kernels);
  if (!cubins) return cubins.error();
  const std::string text = write_bundle(*cubins);
  if (Result<Done> written = write_own_file(concat(folder, "/", kGpuKernelFile), text); !written) return written;
  plan.kernels = {kGpuKernelFile, sha256(text), hash_of_sources(launches, gpu_prelude()), kernels.architecture()};
  if (Result<Done> recorded = record_kernels(plan); !recorded) return recorded;
  return write_own_file(concat(folder, "/", kPlanFile), plan_json(plan));
}

Result<Done> write_plan(const Backend& backend, StepPlan& plan, const std::vector<Launch>& launches,
                        const std::string& folder) {
  if (const std::shared_ptr<Gpu> gpu = backend.gpu()) {
    const Result<std::shared_ptr<GpuCompiler>> compiler = backend.gpu_compiler();
    if (!compiler) return compiler.error();
    const Result<std::string> directory = cache_directory();
    if (!directory) return directory.error();
    return write_gpu_plan(plan, launches, {*directory, **compiler, gpu_prelude(), gpu->info().architecture()}, folder);
  }
  const Result<Compiler> compiler = backend.host_compiler();
  if (!compiler) return compiler.error();
  const Result<KernelCache> kernels = kernel_cache_of(*compiler);
  if (!kernels) return kernels.error();
  return write_plan(plan, launches, *kernels, folder);
}

Result<Done> rewrite_plan(const StepPlan& plan, const std::string& folder) {
  return write_own_file(concat(folder, "/", kPlanFile), plan_json(plan));
}

bool is_plan(const std::string& path) {
  if (is_folder(path)) {
    struct stat found {};
    return stat(file_of_plan(path).c_str(), &found) == 0;
  }
  return path.ends_with(".json");
}

Result<LoadedPlan> read_plan(const std::string& path) {
  LoadedPlan loaded;
  if (is_folder(path) && !is_plan(path))
    return Error::make(ErrorKind::bad_input, concat("the folder '", path, "' has no ", kPlanFile),
                       "give the folder that millrace optimize wrote");
  loaded.path = file_of_plan(path);
  const Result<std::string> text = read_file(loaded.path, kPlanBytes);
  if (!text) return text.error();
  if (Result<Done> right = check_kind(path, *text, FileKind::plan); !right) return right.error();
  Result<StepPlan> plan = parse_plan(*text, loaded.path);
  if (!plan) return plan.error();
  loaded.plan = std::move(*plan);
  Stages stages;
  Result<Prepared> prepared = prepare(stages, tune_program(loaded.plan));
  if (!prepared) return prepared.error();
  loaded.training = std::move(prepared->training);
  loaded.candidates = std::move(prepared->candidates);
  if (Result<Done> checked = verify(loaded.plan, loaded.training, loaded.candidates); !checked) {
    checked.error().diagnostics.front().file = loaded.path;
    return checked.error();
  }
  return loaded;
}

Result<CpuExecutor> load_executor(const LoadedPlan& loaded, const KernelCacheMaker& cache, ExecutorMemory memory) {
  const Result<std::vector<Launch>> launches = lower_plan(loaded.plan, loaded.training, loaded.candidates);
  if (!launches) return launches.error();
  const PlanKernels& kernels = loaded.plan.kernels;
  const bool fit = !kernels.file.empty() && kernels.machine == cpu_info().identity() &&
                   kernels.sources == hash_of_sources(*launches, cpu_prelude()) && are_recorded(loaded.plan);
  return CpuExecutor::load(loaded.plan, *launches, fit ? folder_of(loaded.path) : "", cache, memory);
}

Result<GpuExecutor> load_gpu_executor(const LoadedPlan& loaded, ExecutorMemory memory) {
  const Result<std::vector<Launch>> launches = lower_plan(loaded.plan, loaded.training, loaded.candidates);
  if (!launches) return launches.error();
  Result<std::unique_ptr<Gpu>> gpu = open_gpu();
  if (!gpu) return gpu.error();
  StepPlan plan = loaded.plan;
  name_gpu_kernels(plan, *launches);  // a plan that was never written has no names
  const Result<CubinBundle> cubins = cubins_of(plan, folder_of(loaded.path), *launches, (*gpu)->info().architecture());
  if (!cubins) return cubins.error();
  return GpuExecutor::load(std::move(*gpu), plan, *launches, *cubins, memory);
}

const BackendKind& backend_of(const StepPlan& plan) { return backend_of_text(plan.device); }

Result<std::unique_ptr<Executor>> load_plan(const LoadedPlan& loaded, ExecutorMemory memory) {
  if (backend_of(loaded.plan).target.own_memory) {
    Result<GpuExecutor> executor = load_gpu_executor(loaded, memory);
    if (!executor) return executor.error();
    return std::unique_ptr<Executor>(std::make_unique<GpuExecutor>(std::move(*executor)));
  }
  Result<CpuExecutor> executor = load_executor(loaded, user_kernel_cache, memory);
  if (!executor) return executor.error();
  return std::unique_ptr<Executor>(std::make_unique<CpuExecutor>(std::move(*executor)));
}

int threads_of(const StepPlan& plan) {
  const std::string& device = plan.device;
  const size_t end = device.find(" threads of ");
  if (end == std::string::npos || end == 0) return 0;
  const size_t space = device.rfind(' ', end - 1);
  const size_t begin = space == std::string::npos ? 0 : space + 1;
  int threads = 0;
  std::from_chars(device.data() + begin, device.data() + end, threads);
  return threads;
}

}  // namespace millrace
