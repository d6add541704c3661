#include "exec/launch_tensors.h"

#include <set>

#include "base/text.h"

namespace millrace {
namespace {

// The caller's address; null if it gives none. Kernels take non-const pointers, but only read arguments.
void* address_of(const CallersTensors& tensors, BufferLocation location, size_t position) {
  const auto element_of = [&](const void* const* list) {
    return list == nullptr ? nullptr : const_cast<void*>(list[position]);
  };
  switch (location) {
    case BufferLocation::arena: break;
    case BufferLocation::argument: return element_of(tensors.arguments);
    case BufferLocation::result: return element_of(tensors.results);
    case BufferLocation::result_gradient: return element_of(tensors.result_gradients);
    case BufferLocation::argument_gradient: return element_of(tensors.argument_gradients);
  }
  return nullptr;
}

}  // namespace

LaunchTensors::LaunchTensors(const StepPlan& plan, const std::vector<Launch>& launches)
    : saved_bytes_(plan.saved_bytes), scratch_offset_(plan.scratch_offset - plan.saved_bytes) {
  std::set<size_t> scalars;
  for (size_t k = 0; k < launches.size(); ++k) {
    if (plan.launches[k].pass == Pass::forward) backward_ = k + 1;
    for (const LaunchNumber& number : launches[k].numbers) {
      if (number.argument >= 0) scalars.insert(static_cast<size_t>(number.argument));
    }
  }
  scalars_at_.assign(scalars.begin(), scalars.end());
  scalars_.resize(scalars.empty() ? 0 : *scalars.rbegin() + 1);
  for (const PlanLaunch& launch : plan.launches) {
    first_.push_back(tensors_.size());
    for (const int number : launch.buffers) {
      if (number != kNoBuffer) {
        const PlanBuffer& buffer = plan.buffers[as_index(number)];
        const bool saved = buffer.offset < plan.saved_bytes;
        if (buffer.location == BufferLocation::arena)
          placed_.push_back({tensors_.size(), saved, saved ? buffer.offset : buffer.offset - plan.saved_bytes});
        else
          bound_.push_back({tensors_.size(), buffer.location, static_cast<size_t>(buffer.position)});
      }
      tensors_.push_back(nullptr);
    }
  }
  for (size_t k = 0; k < launches.size(); ++k) {
    const Launch& launch = launches[k];
    for (size_t operand = 0; operand < launch.operands.size(); ++operand) {
      if (!launch.packed[operand]) find_adjacent(plan, plan.launches[k].buffers, launch.operands[operand]);
    }
    if (!launch.packed_vectors) find_adjacent(plan, plan.launches[k].buffers, launch.vectors);
  }
}

// `buffers`: a launch's; `stack`: positions in it of the tensors that the launch needs contiguous.
void LaunchTensors::find_adjacent(const StepPlan& plan, const std::vector<int>& buffers,
                                  const std::vector<int>& stack) {
  const auto buffer_at = [&](int position) -> const PlanBuffer& {
    return plan.buffers[as_index(buffers[static_cast<size_t>(position)])];
  };
  for (size_t k = 0; k + 1 < stack.size(); ++k) {
    const PlanBuffer& first = buffer_at(stack[k]);
    const PlanBuffer& second = buffer_at(stack[k + 1]);
    if (first.location == BufferLocation::arena) continue;
    adjacent_.push_back({first.location, static_cast<size_t>(first.position), static_cast<size_t>(second.position),
                         first.bytes, first.tensor, second.tensor});
  }
}

// A null pointer is not used by the pass that runs.
Result<Done> LaunchTensors::check_adjacent(const CallersTensors& tensors) const {
  for (const Adjacent& pair : adjacent_) {
    const char* const first = static_cast<const char*>(address_of(tensors, pair.location, pair.first));
    const char* const second = static_cast<const char*>(address_of(tensors, pair.location, pair.second));
    if (first == nullptr || second == nullptr || first + pair.bytes == second) continue;
    return Error::make(ErrorKind::bad_input,
                       concat("'", pair.second_name, "' does not directly follow '", pair.first_name,
                              "' in memory, but the plan was made for stacked tensors"),
                       "pass slices of one array, in this order, or make the plan without that --layout");
  }
  return Done{};
}

void LaunchTensors::set_arena(char* arena) {
  own_saved_ = arena;
  own_workspace_ = arena + saved_bytes_;
}

Result<Done> LaunchTensors::bind(const CallersTensors& tensors) {
  if (Result<Done> adjacent = check_adjacent(tensors); !adjacent) return adjacent;
  for (const Bound& bound : bound_) tensors_[bound.slot] = address_of(tensors, bound.location, bound.position);
  char* const saved = tensors.saved == nullptr ? own_saved_ : static_cast<char*>(tensors.saved);
  workspace_ = tensors.workspace == nullptr ? own_workspace_ : static_cast<char*>(tensors.workspace);
  for (const Placed& placed : placed_) tensors_[placed.slot] = (placed.saved ? saved : workspace_) + placed.offset;
  for (const size_t position : scalars_at_)
    scalars_[position] = *static_cast<const double*>(tensors.arguments[position]);
  return Done{};
}

}  // namespace millrace
