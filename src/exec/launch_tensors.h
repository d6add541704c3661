// Where the tensors of a plan's launches are: the caller's, and those in the arena. Every executor has one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/launch.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

// The caller's memory, in the plan's layouts: one an argument or result of the program, in its order. A scalar argument
// is a double in the host's memory; it has no gradient, and what stands there is not looked at. `saved` is what forward
// leaves for backward, `workspace` what a pass works in; both aligned to 64 (on a GPU to 256), null: the executor's
// own.
struct CallersTensors {
  const void* const* arguments = nullptr;
  void* const* results = nullptr;
  const void* const* result_gradients = nullptr;
  void* const* argument_gradients = nullptr;
  void* saved = nullptr;
  void* workspace = nullptr;
  const void* random = nullptr;  // on a GPU: seed and step in its memory; null: the executor's own
};

// Whether an executor brings memory of its own, or works in the caller's alone.
enum class ExecutorMemory { own, callers };

class LaunchTensors {
 public:
  LaunchTensors() = default;
  LaunchTensors(const StepPlan& plan, const std::vector<Launch>& launches);

  // The executor's own memory, of plan.arena_bytes.
  void own(char* arena);

  // Gradients may be null for forward alone. An error, and nothing is bound, where a launch takes tensors as one that
  // are apart.
  Result<Done> bind(const CallersTensors& tensors);

  void* const* of(size_t launch) const { return tensors_.data() + first_[launch]; }
  // The tensors of the launches from one to before another.
  std::span<void* const> between(size_t first, size_t last) const {
    const size_t end = last < first_.size() ? first_[last] : tensors_.size();
    return {tensors_.data() + first_[first], tensors_.data() + end};
  }
  const double* scalars() const { return scalars_.data(); }
  const std::vector<double>& all_scalars() const { return scalars_; }
  char* scratch() const { return workspace_ + scratch_offset_; }
  size_t backward() const { return backward_; }  // the first launch of backward
  size_t launches() const { return first_.size(); }

 private:
  struct Bound {  // a tensor of a launch that is the caller's
    size_t slot;
    BufferLocation location;
    size_t position;
  };
  struct Placed {  // one that lies in the arena
    size_t slot;
    bool saved;
    int64_t offset;  // in the saved part or in the workspace
  };

  struct Adjacent {  // two of the caller's that a launch takes as one
    BufferLocation location;
    size_t first;  // positions
    size_t second;
    int64_t bytes;  // from one to the other
    std::string first_name;
    std::string second_name;
  };

  void find_adjacent(const StepPlan& plan, const std::vector<int>& buffers, const std::vector<int>& stack);
  Result<Done> check_adjacent(const CallersTensors& tensors) const;

  size_t backward_ = 0;
  int64_t saved_bytes_ = 0;
  char* own_saved_ = nullptr;
  char* own_workspace_ = nullptr;
  int64_t scratch_offset_ = 0;  // in the workspace
  char* workspace_ = nullptr;   // that is worked in now
  std::vector<void*> tensors_;  // of all launches, one behind the other
  std::vector<size_t> first_;   // one a launch: its first tensor
  std::vector<Bound> bound_;
  std::vector<Placed> placed_;
  std::vector<Adjacent> adjacent_;
  std::vector<size_t> scalars_at_;  // positions of scalar arguments that launches use
  std::vector<double> scalars_;     // by position
};

}  // namespace millrace
