// The public class Plan: checks the caller's pointers, then runs the executor.
#include "millrace/plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "base/text.h"
#include "driver/callers_tensors.h"
#include "driver/check_ids.h"
#include "driver/plan_folder.h"
#include "exec/executor.h"

namespace millrace {
namespace {

// The passes that a call runs.
enum class PassesRun { forward, backward, both };

// A tensor as the caller sees it, and its address's alignment; 0: the pointer is not used.
struct Slot {
  TensorInfo info;
  uintptr_t alignment = 0;
};

struct Gap {
  int64_t offset;
  int64_t bytes;
};

Slot slot_of(const Graph& graph, const CallersTensor& tensor) {
  Slot slot;
  slot.info.name = tensor.name;
  slot.info.bytes = tensor.bytes;
  slot.info.follows = tensor.follows;
  if (!tensor.tensor.valid()) {
    slot.info.scalar = true;
    return slot;
  }
  const Tensor& described = graph.tensor(tensor.tensor);
  if (described.role == TensorRole::scalar) {
    slot.info.dtype = "float64";
    slot.info.scalar = true;
    slot.alignment = alignof(double);
    return slot;
  }
  slot.info.dtype = name_of(described.dtype);
  for (const DimId dim : described.dims) slot.info.shape.push_back(graph.extent(dim));
  slot.info.strides = strides_of(graph, tensor.tensor, tensor.layout);
  slot.info.order = tensor.layout.order;
  slot.alignment = static_cast<uintptr_t>(bytes_of(described.dtype));
  return slot;
}

// One of the caller's lists: its description, and the alignments to check.
struct List {
  const char* what;
  std::vector<TensorInfo> infos;
  std::vector<uintptr_t> alignments;

  List(const char* name, const Graph& graph, const std::vector<CallersTensor>& tensors) : what(name) {
    for (const CallersTensor& tensor : tensors) {
      Slot slot = slot_of(graph, tensor);
      infos.push_back(std::move(slot.info));
      alignments.push_back(slot.alignment);
    }
  }

  // Sets the alignment of tensors in the device's memory; scalars stay in host memory.
  void align_to(uintptr_t bytes) {
    for (size_t k = 0; k < infos.size(); ++k) {
      if (!infos[k].scalar && alignments[k] != 0) alignments[k] = std::max(alignments[k], bytes);
    }
  }

  // `all`: false skips tensors that backward does not read.
  template <class Pointer>
  Result<Done> check(std::span<Pointer const> pointers, bool all = true) const {
    if (pointers.size() != infos.size())
      return Error::make(ErrorKind::bad_input, concat(pointers.size(), " ", what, " where the plan has ", infos.size()),
                         "pass one pointer for each, in the plan's order");
    for (size_t k = 0; k < pointers.size(); ++k) {
      if (alignments[k] == 0 || (!all && !infos[k].read_by_backward)) continue;
      if (pointers[k] == nullptr)
        return Error::make(ErrorKind::bad_input, concat("'", infos[k].name, "' is a null pointer"),
                           concat("it needs ", infos[k].bytes, " bytes"));
      if (reinterpret_cast<uintptr_t>(pointers[k]) % alignments[k] != 0)
        return Error::make(ErrorKind::bad_input, concat("'", infos[k].name, "' is misaligned"),
                           concat("its address must be a multiple of ", alignments[k]));
    }
    return Done{};
  }
};

// Which tensors of a list backward's launches use.
void find_readers(const StepPlan& plan, BufferLocation location, std::vector<TensorInfo>& infos) {
  const int backward = first_of_backward(plan);
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.location == location) infos[as_index(buffer.position)].read_by_backward = buffer.last >= backward;
  }
}

// Bytes of the saved part that forward does not write: padding, and what only backward writes.
std::vector<Gap> gaps_of(const StepPlan& plan) {
  std::map<int64_t, int64_t> written;  // from, to
  for (const PlanBuffer& buffer : plan.buffers) {
    const bool forward = buffer.location == BufferLocation::arena && buffer.first < first_of_backward(plan);
    if (forward && buffer.offset < plan.saved_bytes) written[buffer.offset] = buffer.offset + buffer.bytes;
  }
  written[plan.saved_bytes] = plan.saved_bytes;
  std::vector<Gap> gaps;
  int64_t end = 0;
  for (const auto& [from, to] : written) {
    if (from > end) gaps.push_back({end, from - end});
    end = std::max(end, to);
  }
  return gaps;
}

// The tensor of this name, if the program has it at all.
Result<TensorInfo> named(const std::vector<const std::vector<TensorInfo>*>& lists, std::string_view name,
                         const char* what) {
  std::vector<std::string> names;
  for (const std::vector<TensorInfo>* list : lists) {
    for (const TensorInfo& info : *list) {
      if (info.dtype.empty()) continue;  // an argument without a gradient
      if (info.name == name) return info;
      names.push_back(info.name);
    }
  }
  const std::string near = nearest(name, names);
  return Error::make(ErrorKind::bad_input, concat("the plan has no ", what, " '", name, "'"),
                     near.empty() ? concat("it has ", join(names, ", ")) : concat("did you mean '", near, "'?"));
}

Result<Done> check_memory(const void* memory, int64_t bytes, bool own, const char* what) {
  if (memory == nullptr && bytes > 0 && !own)
    return Error::make(ErrorKind::bad_input,
                       concat("'", what, "' is a null pointer, and the plan has no memory of its own"),
                       concat("it needs ", bytes, " bytes"));
  if (reinterpret_cast<uintptr_t>(memory) % kPlanMemoryAlignment != 0)
    return Error::make(ErrorKind::bad_input, concat("'", what, "' is misaligned"),
                       concat("its address must be a multiple of ", kPlanMemoryAlignment));
  return Done{};
}

}  // namespace

struct Plan::Implementation {
  Implementation(const LoadedPlan& loaded, std::unique_ptr<Executor> ready, PlanMemory memory)
      : Implementation(loaded, callers_lists(loaded), std::move(ready), memory) {}
  Implementation(const LoadedPlan& loaded, const CallersLists& lists, std::unique_ptr<Executor> ready,
                 PlanMemory memory)
      : arguments("arguments", loaded.training.graph, lists.arguments),
        results("results", loaded.training.graph, lists.results),
        ids(id_arguments(loaded.training.graph)),
        result_gradients("result gradients", loaded.training.graph, lists.result_gradients),
        argument_gradients("argument gradients", loaded.training.graph, lists.argument_gradients),
        predicted_seconds(loaded.plan.cost),
        saved_bytes(loaded.plan.saved_bytes),
        workspace_bytes(loaded.plan.arena_bytes - loaded.plan.saved_bytes),
        gaps(gaps_of(loaded.plan)),
        own(memory == PlanMemory::own),
        executor(std::move(ready)),
        gpu(executor->device()),
        device(backend_of(loaded.plan).name) {
    const auto alignment = static_cast<uintptr_t>(backend_of(loaded.plan).target.tensor_alignment);
    for (List* list : {&arguments, &results, &result_gradients, &argument_gradients}) list->align_to(alignment);
    find_readers(loaded.plan, BufferLocation::argument, arguments.infos);
    find_readers(loaded.plan, BufferLocation::result, results.infos);
  }

  Result<Done> bind(const Tensors& tensors, PassesRun run, uint64_t seed, uint32_t step) const {
    const bool forward = run != PassesRun::backward;
    if (Result<Done> right = arguments.check(tensors.arguments, forward); !right) return right;
    if (Result<Done> right = results.check(tensors.results, forward); !right) return right;
    for (const IdArgument& argument : ids) {
      if (!forward || gpu != nullptr) break;  // a GPU's memory would have to be waited for
      if (Result<Done> right = check_ids(argument, tensors.arguments[argument.position]); !right) return right;
    }
    if (Result<Done> right = check_memory(tensors.saved, saved_bytes, own, "saved"); !right) return right;
    if (Result<Done> right = check_memory(tensors.workspace, workspace_bytes, own, "workspace"); !right) return right;
    CallersTensors bound{tensors.arguments.data(), tensors.results.data(), nullptr, nullptr, tensors.saved,
                         tensors.workspace};
    if (run != PassesRun::forward) {
      if (Result<Done> right = result_gradients.check(tensors.result_gradients); !right) return right;
      if (Result<Done> right = argument_gradients.check(tensors.argument_gradients); !right) return right;
      bound.result_gradients = tensors.result_gradients.data();
      bound.argument_gradients = tensors.argument_gradients.data();
    }
    if (gpu != nullptr) {
      gpu->use_stream(tensors.stream);
      bound.random = tensors.random;
      return executor->bind(bound, seed, step);
    }
    std::array<uint64_t, 2> random{seed, step};
    if (tensors.random != nullptr) std::memcpy(random.data(), tensors.random, sizeof(random));
    return executor->bind(bound, random[0], static_cast<uint32_t>(random[1]));
  }

  Result<Done> forward() const { return executor->forward(); }
  Result<Done> backward() const { return executor->backward(); }
  Result<Done> step() const { return executor->step(); }

  List arguments;
  List results;
  std::vector<IdArgument> ids;
  List result_gradients;
  List argument_gradients;
  double predicted_seconds;
  int64_t saved_bytes;
  int64_t workspace_bytes;
  std::vector<Gap> gaps;  // of the saved part
  bool own;               // the plan has its own memory
  std::unique_ptr<Executor> executor;
  Gpu* gpu;  // the executor's device(): null if tensors are in host memory
  std::string device;
  bool saved = false;  // its own memory holds what a forward saved
};

Plan::Plan(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

Result<Plan> Plan::load(const std::string& path, PlanMemory memory) {
  const Result<LoadedPlan> loaded = read_plan(path);
  if (!loaded) return loaded.error();
  const ExecutorMemory whose = memory == PlanMemory::own ? ExecutorMemory::own : ExecutorMemory::callers;
  Result<std::unique_ptr<Executor>> executor = load_plan(*loaded, whose);
  if (!executor) return executor.error();
  return Plan(std::make_unique<Implementation>(*loaded, std::move(*executor), memory));
}

const std::vector<TensorInfo>& Plan::arguments() const { return implementation_->arguments.infos; }
const std::vector<TensorInfo>& Plan::results() const { return implementation_->results.infos; }
const std::vector<TensorInfo>& Plan::result_gradients() const { return implementation_->result_gradients.infos; }
const std::vector<TensorInfo>& Plan::argument_gradients() const { return implementation_->argument_gradients.infos; }
Result<TensorInfo> Plan::argument(std::string_view name) const { return named({&arguments()}, name, "argument"); }
Result<TensorInfo> Plan::result(std::string_view name) const { return named({&results()}, name, "result"); }
Result<TensorInfo> Plan::gradient(std::string_view name) const {
  return named({&argument_gradients(), &result_gradients()}, name, "gradient");
}
const std::string& Plan::device() const { return implementation_->device; }
double Plan::predicted_seconds() const { return implementation_->predicted_seconds; }
int64_t Plan::saved_bytes() const { return implementation_->saved_bytes; }
int64_t Plan::workspace_bytes() const { return implementation_->workspace_bytes; }
int64_t Plan::arena_bytes() const { return saved_bytes() + workspace_bytes(); }

void Plan::keep_denormals() { implementation_->executor->set_denormals(Denormals::keep); }

Result<Done> Plan::forward(const Tensors& tensors, uint64_t seed, uint32_t step) {
  if (Result<Done> bound = implementation_->bind(tensors, PassesRun::forward, seed, step); !bound) return bound;
  implementation_->saved |= tensors.saved == nullptr;
  if (tensors.saved != nullptr && implementation_->gpu == nullptr) {
    for (const Gap& gap : implementation_->gaps)
      std::memset(static_cast<char*>(tensors.saved) + gap.offset, 0, static_cast<size_t>(gap.bytes));
  }
  return implementation_->forward();
}

Result<Done> Plan::backward(const Tensors& tensors, uint64_t seed, uint32_t step) {
  if (tensors.saved == nullptr && !implementation_->saved)
    return Error::make(ErrorKind::bad_input, "backward without a forward before it", "call forward first");
  if (Result<Done> bound = implementation_->bind(tensors, PassesRun::backward, seed, step); !bound) return bound;
  return implementation_->backward();
}

Result<Done> Plan::step(const Tensors& tensors, uint64_t seed, uint32_t step) {
  if (Result<Done> bound = implementation_->bind(tensors, PassesRun::both, seed, step); !bound) return bound;
  implementation_->saved |= tensors.saved == nullptr;
  return implementation_->step();
}

}  // namespace millrace
