#include "exec/gpu_executor.h"

#include <algorithm>
#include <span>

#include "base/text.h"
#include "device/gpu_kernel_cache.h"

namespace millrace {
namespace {

constexpr size_t kMostRecordings = 8;  // per kind of run
// Recording takes as long as about ten steps. Until the caller's allocator has settled, addresses change too often for
// it.
constexpr int kCallsUntilRecorded = 24;

Result<std::unique_ptr<GpuLaunch>> prepare(Gpu& gpu, const Launch& launch, const std::string& kernel,
                                           const CubinBundle& cubins) {
  if (launch.kernel.empty()) return gpu.prepare(launch, "");
  const auto found = cubins.find(kernel);
  if (found == cubins.end())
    return Error::make(ErrorKind::bad_input, concat("the plan's kernels lack ", kernel), "run millrace optimize again");
  return gpu.prepare(with_kernel_names(launch, found->second.name), found->second.bytes);
}

}  // namespace

Launch executor_launch() {
  Launch launch;
  launch.kernel =
      "MR_KERNEL(32) MILLRACE_KERNEL(MR_PARAMETER mr::Arguments<1, 1, 1> args) {\n"
      "  mr::begin();\n"
      "  if (mr::thread_number() == 0) const_cast<mr::State*>(args.state)->step += 1;\n"
      "}\n";
  launch.grids = {{"MILLRACE_KERNEL", 1, 32}};
  launch.tensor_count = 1;
  launch.numbers = {{-1, 0}};
  return launch;
}

Result<GpuExecutor> GpuExecutor::load(std::shared_ptr<Gpu> gpu, const StepPlan& plan,
                                      const std::vector<Launch>& launches, const CubinBundle& cubins,
                                      ExecutorMemory memory) {
  GpuExecutor made(std::move(gpu));
  for (size_t k = 0; k < launches.size(); ++k) {
    Result<std::unique_ptr<GpuLaunch>> launch = prepare(*made.gpu_, launches[k], plan.launches[k].function, cubins);
    if (!launch) return launch.error();
    if ((*launch)->scratch_bytes() > plan.scratch_bytes)
      return Error::make(
          ErrorKind::bad_input,
          concat("invalid plan: scratch_bytes: launches[", k, "] needs ", (*launch)->scratch_bytes(), " bytes"),
          "run millrace optimize again");
    made.launches_.push_back(std::move(*launch));
  }
  Result<std::unique_ptr<GpuLaunch>> advance = prepare(*made.gpu_, executor_launch(), kExecutorKernel, cubins);
  if (!advance) return advance.error();
  made.advance_ = std::move(*advance);
  made.tensors_ = LaunchTensors(plan, launches);
  Result<GpuMemory> state = GpuMemory::allocate(*made.gpu_, sizeof(GpuState));
  if (!state) return state.error();
  made.state_ = std::move(*state);
  if (memory == ExecutorMemory::callers) {
    made.calls_until_recorded_ = kCallsUntilRecorded;
    return made;
  }
  Result<GpuMemory> arena = GpuMemory::allocate(*made.gpu_, plan.arena_bytes);
  if (!arena) return arena.error();
  made.arena_ = std::move(*arena);
  made.tensors_.set_arena(made.arena_.bytes_at(0));
  return made;
}

Result<Done> GpuExecutor::bind(const CallersTensors& tensors, uint64_t seed, uint32_t step) {
  if (Result<Done> bound = tensors_.bind(tensors); !bound) return bound;
  random_ = tensors.random == nullptr ? state_.data() : tensors.random;
  if (tensors.random != nullptr || (has_state_ && known_.seed == seed && known_.step == step)) return Done{};
  known_ = {seed, step, 0};
  has_state_ = true;
  return gpu_->copy_in(state_.data(), &known_, sizeof(known_));
}

Result<Done> GpuExecutor::launch(size_t number) {
  return launches_[number]->run(tensors_.tensors_of(number), tensors_.scalars(), random_, tensors_.scratch());
}

std::pair<size_t, size_t> GpuExecutor::launches_of(Run kind) const {
  return {kind == Run::backward ? tensors_.backward() : 0,
          kind == Run::forward ? tensors_.backward() : launches_.size()};
}

Result<Done> GpuExecutor::enqueue(Run kind) {
  const auto [first, last] = launches_of(kind);
  for (size_t k = first; k < last; ++k) {
    if (Result<Done> launched = launch(k); !launched) return launched;
  }
  if (kind != Run::step || random_ != state_.data()) return Done{};
  void* const none = nullptr;
  return advance_->run(&none, tensors_.scalars(), state_.data(), nullptr);
}

// The first run on given addresses is launch by launch, which also makes libraries load what they load lazily. Repeated
// runs are recorded as a graph.
Result<Done> GpuExecutor::run(Run kind) {
  if (kind == Run::step && random_ == state_.data()) ++known_.step;
  const auto [first, last] = launches_of(kind);
  if (first == last || gpu_->is_recorded()) return enqueue(kind);
  const std::span<void* const> tensors = tensors_.between(first, last);
  Recordings& recordings = recorded_[as_index(kind)];
  const auto known = std::find_if(recordings.begin(), recordings.end(), [&](const Recorded& one) {
    return std::equal(one.tensors.begin(), one.tensors.end(), tensors.begin(), tensors.end()) &&
           one.scratch == tensors_.scratch() && one.random == random_ && one.scalars == tensors_.all_scalars();
  });
  if (known == recordings.end()) {
    if (recordings.size() == kMostRecordings) recordings.erase(recordings.begin());
    recordings.push_back(
        {{tensors.begin(), tensors.end()}, tensors_.scratch(), random_, tensors_.all_scalars(), 1, nullptr});
    return enqueue(kind);
  }
  std::rotate(known, known + 1, recordings.end());
  Recorded& recorded = recordings.back();
  if (!recorded.graph && recorded.calls < calls_until_recorded_) {
    ++recorded.calls;
    return enqueue(kind);
  }
  if (!recorded.graph) {
    Result<std::unique_ptr<GpuGraph>> graph = gpu_->record([&] { return enqueue(kind); });
    if (!graph) return graph.error();
    recorded.graph = std::move(*graph);
  }
  return recorded.graph->replay();
}

}  // namespace millrace
