#include "exec/cpu_executor.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/text.h"
#include "device/cpu/cpu_info.h"

namespace millrace {
namespace {

constexpr size_t kPage = 4096;

// Kernels by launch; null for a library's product.
struct Functions {
  std::vector<KernelModule> modules;
  std::vector<void*> addresses;
};

bool has_kernels(const std::vector<Launch>& launches) {
  return std::any_of(launches.begin(), launches.end(), [](const Launch& launch) { return !launch.kernel.empty(); });
}

Result<Functions> functions_of_plan(const StepPlan& plan, const std::vector<Launch>& launches,
                                    const std::string& folder) {
  Result<KernelModule> module = KernelModule::load(concat(folder, "/", plan.kernels.file), plan.kernels.sha256);
  if (!module) return module.error();
  Functions found;
  for (size_t k = 0; k < launches.size(); ++k) {
    found.addresses.push_back(nullptr);
    if (launches[k].kernel.empty()) continue;
    const Result<void*> address = module->function(plan.launches[k].function);
    if (!address) return address.error();
    found.addresses.back() = *address;
  }
  found.modules.push_back(std::move(*module));
  return found;
}

Result<Functions> compiled_functions(const std::vector<Launch>& launches, const KernelCache& cache) {
  std::vector<KernelSource> sources;
  for (const Launch& launch : launches) {
    if (!launch.kernel.empty()) sources.push_back({launch.kernel});
  }
  Functions found;
  std::map<std::string, size_t> module_of;  // by path
  size_t next = 0;
  const std::vector<Result<CompiledKernel>> compiled = cache.get(sources, cpu_info().cores);
  for (const Launch& launch : launches) {
    found.addresses.push_back(nullptr);
    if (launch.kernel.empty()) continue;
    const Result<CompiledKernel>& kernel = compiled[next++];
    if (!kernel) return kernel.error();
    const auto [location, fresh] = module_of.try_emplace(kernel->path, found.modules.size());
    if (fresh) {
      Result<KernelModule> module = KernelModule::load(kernel->path, kernel->sha256);
      if (!module) return module.error();
      found.modules.push_back(std::move(*module));
    }
    const Result<void*> address = found.modules[location->second].function(kernel->name);
    if (!address) return address.error();
    found.addresses.back() = *address;
  }
  return found;
}

Result<Functions> find_functions(const StepPlan& plan, const std::vector<Launch>& launches, const std::string& folder,
                                 const KernelCacheMaker& cache) {
  if (!has_kernels(launches)) return Functions{{}, std::vector<void*>(launches.size(), nullptr)};
  std::string reason = "the plan's kernels were compiled by another user, or for another machine or version";
  if (!folder.empty()) {
    Result<Functions> found = functions_of_plan(plan, launches, folder);
    if (found) return found;
    reason = found.error().diagnostics.front().message;
  }
  const Result<KernelCache> compiler = cache();
  if (!compiler) {
    const Diagnostic& problem = compiler.error().diagnostics.front();
    return Error::make(ErrorKind::unavailable, concat(reason, "; they cannot be recompiled: ", problem.message),
                       problem.remedy);
  }
  return compiled_functions(launches, *compiler);
}

}  // namespace

void CpuExecutor::Free::operator()(char* bytes) const { std::free(bytes); }

Result<CpuExecutor> CpuExecutor::load(const StepPlan& plan, const std::vector<Launch>& launches,
                                      const std::string& folder, const KernelCacheMaker& cache, ExecutorMemory memory) {
  Result<Functions> functions = find_functions(plan, launches, folder, cache);
  if (!functions) return functions.error();
  CpuExecutor made;
  made.modules_ = std::move(functions->modules);
  for (size_t k = 0; k < launches.size(); ++k) {
    Result<CpuLaunch> launch = CpuLaunch::prepare(launches[k], functions->addresses[k]);
    if (!launch) return launch.error();
    if (launch->scratch_bytes() > plan.scratch_bytes)
      return Error::make(
          ErrorKind::bad_input,
          concat("invalid plan: scratch_bytes: launches[", k, "] needs ", launch->scratch_bytes(), " bytes"),
          "run millrace optimize again");
    made.threads_ = std::max(made.threads_, launch->threads());
    made.predicted_seconds_.push_back(plan.launches[k].predicted_seconds);
    made.launches_.push_back(std::move(*launch));
  }
  made.tensors_ = LaunchTensors(plan, launches);
  if (memory == ExecutorMemory::callers) return made;
  if (Result<Done> allocated = made.allocate(plan); !allocated) return allocated.error();
  return made;
}

Result<Done> CpuExecutor::allocate(const StepPlan& plan) {
  const size_t bytes = (static_cast<size_t>(plan.arena_bytes) / kPage + 1) * kPage;
  arena_.reset(static_cast<char*>(std::aligned_alloc(kPage, bytes)));
  if (arena_) {
    tensors_.set_arena(arena_.get());
    return Done{};
  }
  return Error::make(ErrorKind::failed, concat("no memory for the plan's arena of ", plan.arena_bytes, " bytes"),
                     "free memory, or make a plan for smaller sizes");
}

Result<Done> CpuExecutor::bind(const CallersTensors& tensors, uint64_t seed, uint32_t step) {
  if (Result<Done> bound = tensors_.bind(tensors); !bound) return bound;
  seed_ = seed;
  step_ = step;
  return Done{};
}

// Setting all threads' registers takes two parallel regions, tens of microseconds on a busy machine: too long for
// launches that take less than a millisecond.
bool CpuExecutor::is_worth_flushing(size_t first, size_t last) const {
  constexpr double kWorthwhile = 1e-3;
  double seconds = 0;
  for (size_t k = first; k < last; ++k) seconds += predicted_seconds_[k];
  return threads_ == 1 || seconds == 0 || seconds >= kWorthwhile;  // 0: not predicted
}

Result<Done> CpuExecutor::run(size_t first, size_t last) const {
  const LaunchState state{tensors_.scalars(), seed_, step_};
  const DenormalScope scope(is_worth_flushing(first, last) ? denormals_ : Denormals::keep, threads_);
  for (size_t k = first; k < last; ++k) launches_[k].run(tensors_.tensors_of(k), state, tensors_.scratch());
  return Done{};
}

}  // namespace millrace
