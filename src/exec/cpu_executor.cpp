#include "exec/cpu_executor.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "base/text.h"

namespace millrace {
namespace {

constexpr size_t kPage = 4096;

// The kernels' functions by launch; null for a library's product.
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
  const std::vector<Result<CompiledKernel>> compiled = cache.get(sources, 1);
  for (const Launch& launch : launches) {
    found.addresses.push_back(nullptr);
    if (launch.kernel.empty()) continue;
    const Result<CompiledKernel>& kernel = compiled[next++];
    if (!kernel) return kernel.error();
    const auto [place, fresh] = module_of.try_emplace(kernel->path, found.modules.size());
    if (fresh) {
      Result<KernelModule> module = KernelModule::load(kernel->path, kernel->sha256);
      if (!module) return module.error();
      found.modules.push_back(std::move(*module));
    }
    const Result<void*> address = found.modules[place->second].function(kernel->name);
    if (!address) return address.error();
    found.addresses.back() = *address;
  }
  return found;
}

Result<Functions> find_functions(const StepPlan& plan, const std::vector<Launch>& launches, const std::string& folder,
                                 const KernelCacheMaker& cache) {
  if (!has_kernels(launches)) return Functions{{}, std::vector<void*>(launches.size(), nullptr)};
  std::string reason = "the plan's kernels were compiled for another machine or version";
  if (!folder.empty()) {
    Result<Functions> found = functions_of_plan(plan, launches, folder);
    if (found) return found;
    reason = found.error().diagnostics.front().message;
  }
  const Result<KernelCache> anew = cache();
  if (!anew) {
    const Diagnostic& problem = anew.error().diagnostics.front();
    return Error::make(ErrorKind::unavailable, concat(reason, "; and they cannot be compiled anew: ", problem.message),
                       problem.remedy);
  }
  return compiled_functions(launches, *anew);
}

}  // namespace

void CpuExecutor::Free::operator()(char* bytes) const { std::free(bytes); }

Result<CpuExecutor> CpuExecutor::load(const StepPlan& plan, const std::vector<Launch>& launches,
                                      const std::string& folder, const KernelCacheMaker& cache, ExecutorMemory memory) {
  Result<Functions> functions = find_functions(plan, launches, folder, cache);
  if (!functions) return functions.error();
  CpuExecutor made;
  made.modules_ = std::move(functions->modules);
  std::set<size_t> scalars;
  for (size_t k = 0; k < launches.size(); ++k) {
    Result<CpuLaunch> launch = CpuLaunch::prepare(launches[k], functions->addresses[k]);
    if (!launch) return launch.error();
    if (launch->scratch_bytes() > plan.scratch_bytes)
      return Error::make(ErrorKind::bad_input,
                         concat("invalid plan: scratch_bytes: launches[", k, "] needs ", launch->scratch_bytes()),
                         "run millrace optimize again");
    made.launches_.push_back(std::move(*launch));
    if (plan.launches[k].pass == Pass::forward) made.backward_ = k + 1;
    for (const LaunchNumber& number : launches[k].numbers) {
      if (number.argument >= 0) scalars.insert(static_cast<size_t>(number.argument));
    }
  }
  made.scalars_at_.assign(scalars.begin(), scalars.end());
  made.scalars_.resize(scalars.empty() ? 0 : *scalars.rbegin() + 1);
  made.point(plan);
  if (memory == ExecutorMemory::callers) return made;
  if (Result<Done> allocated = made.allocate(plan); !allocated) return allocated.error();
  return made;
}

Result<Done> CpuExecutor::allocate(const StepPlan& plan) {
  const size_t bytes = (static_cast<size_t>(plan.arena_bytes) / kPage + 1) * kPage;
  arena_.reset(static_cast<char*>(std::aligned_alloc(kPage, bytes)));
  own_saved_ = arena_.get();
  own_workspace_ = arena_ ? own_saved_ + plan.saved_bytes : nullptr;
  if (arena_) return Done{};
  return Error::make(ErrorKind::failed, concat("no memory for the plan's arena of ", plan.arena_bytes, " bytes"),
                     "free some, or make a plan for smaller sizes");
}

void CpuExecutor::point(const StepPlan& plan) {
  scratch_offset_ = plan.scratch_offset - plan.saved_bytes;
  for (const PlanLaunch& launch : plan.launches) {
    first_.push_back(tensors_.size());
    for (const int number : launch.buffers) {
      if (number != kNoBuffer) {
        const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(number)];
        const bool saved = buffer.offset < plan.saved_bytes;
        if (buffer.place == BufferPlace::arena)
          placed_.push_back({tensors_.size(), saved, saved ? buffer.offset : buffer.offset - plan.saved_bytes});
        else
          bound_.push_back({tensors_.size(), buffer.place, static_cast<size_t>(buffer.position)});
      }
      tensors_.push_back(nullptr);
    }
  }
}

void CpuExecutor::place(char* saved, char* workspace) {
  if (saved == saved_ && workspace == workspace_) return;
  saved_ = saved;
  workspace_ = workspace;
  for (const Placed& placed : placed_) tensors_[placed.slot] = (placed.saved ? saved : workspace) + placed.offset;
}

void CpuExecutor::bind(const CallersTensors& tensors, uint64_t seed, uint32_t step) {
  // Kernels take all tensors alike; what is only read stays as it is.
  const auto changeable = [](const void* pointer) { return const_cast<void*>(pointer); };
  for (const Bound& bound : bound_) {
    void*& to = tensors_[bound.slot];
    switch (bound.place) {
      case BufferPlace::arena: break;
      case BufferPlace::argument: to = changeable(tensors.arguments[bound.position]); break;
      case BufferPlace::result: to = tensors.results[bound.position]; break;
      case BufferPlace::result_gradient:
        to = tensors.result_gradients == nullptr ? nullptr : changeable(tensors.result_gradients[bound.position]);
        break;
      case BufferPlace::argument_gradient:
        to = tensors.argument_gradients == nullptr ? nullptr : tensors.argument_gradients[bound.position];
        break;
    }
  }
  place(tensors.saved == nullptr ? own_saved_ : static_cast<char*>(tensors.saved),
        tensors.workspace == nullptr ? own_workspace_ : static_cast<char*>(tensors.workspace));
  for (const size_t position : scalars_at_)
    scalars_[position] = *static_cast<const double*>(tensors.arguments[position]);
  seed_ = seed;
  step_ = step;
}

void CpuExecutor::run(size_t first, size_t last) const {
  const LaunchState state{scalars_.data(), seed_, step_};
  for (size_t k = first; k < last; ++k)
    launches_[k].run(tensors_.data() + first_[k], state, workspace_ + scratch_offset_);
}

}  // namespace millrace
