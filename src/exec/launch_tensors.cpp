#include "exec/launch_tensors.h"

#include <bit>
#include <set>

namespace millrace {

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

void LaunchTensors::own(char* arena) {
  own_saved_ = arena;
  own_workspace_ = arena + saved_bytes_;
}

bool LaunchTensors::place(char* saved, char* workspace) {
  if (saved == saved_ && workspace == workspace_) return false;
  saved_ = saved;
  workspace_ = workspace;
  for (const Placed& placed : placed_) tensors_[placed.slot] = (placed.saved ? saved : workspace) + placed.offset;
  return true;
}

bool LaunchTensors::bind(const CallersTensors& tensors) {
  // Kernels take all tensors alike; what is only read stays as it is.
  const auto changeable = [](const void* pointer) { return const_cast<void*>(pointer); };
  bool changed = false;
  for (const Bound& bound : bound_) {
    void* to = nullptr;
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
    changed = changed || tensors_[bound.slot] != to;
    tensors_[bound.slot] = to;
  }
  changed = place(tensors.saved == nullptr ? own_saved_ : static_cast<char*>(tensors.saved),
                  tensors.workspace == nullptr ? own_workspace_ : static_cast<char*>(tensors.workspace)) ||
            changed;
  for (const size_t position : scalars_at_) {
    const double value = *static_cast<const double*>(tensors.arguments[position]);
    changed = changed || std::bit_cast<uint64_t>(scalars_[position]) != std::bit_cast<uint64_t>(value);
    scalars_[position] = value;
  }
  return changed;
}

}  // namespace millrace
