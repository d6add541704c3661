#include "driver/plan_folder.h"

#include <sys/stat.h>

#include "base/directories.h"
#include "base/file.h"
#include "base/text.h"
#include "codegen/cpu/generate.h"
#include "device/cpu/cpu_info.h"
#include "driver/tuning.h"
#include "plan/launched_part.h"
#include "plan/plan_json.h"
#include "plan/verify.h"

namespace millrace {
namespace {

constexpr const char* kPlanFile = "plan.json";
constexpr const char* kKernelFile = "kernels.so";

bool is_folder(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

std::string file_of_plan(const std::string& path) { return is_folder(path) ? concat(path, "/", kPlanFile) : path; }

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
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
    Result<std::string> hash = kernels.compile_together(sources, concat(folder, "/", kKernelFile));
    if (!hash) return hash.error();
    plan.kernels = {kKernelFile, std::move(*hash), hash_of_sources(launches, cpu_prelude()), cpu_info().identity()};
  }
  return write_file(concat(folder, "/", kPlanFile), plan_json(plan));
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
  loaded.path = file_of_plan(path);
  const Result<std::string> text = read_file(loaded.path, kPlanBytes);
  if (!text) return text.error();
  Result<StepPlan> plan = parse_plan(*text, loaded.path);
  if (!plan) return plan.error();
  loaded.plan = std::move(*plan);
  Result<Prepared> prepared = prepare(tune_program(loaded.plan.program));
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
                   kernels.sources == hash_of_sources(*launches, cpu_prelude());
  return CpuExecutor::load(loaded.plan, *launches, fit ? folder_of(loaded.path) : "", cache, memory);
}

}  // namespace millrace
