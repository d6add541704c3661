// The addresses of all tensors of a plan's launches, in the caller's memory and in the arena. Every executor has one.
// Test: tests/exec/cpu_executor_test.cpp
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/launch.h"
#include "exec/executor.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

class LaunchTensors {
 public:
  LaunchTensors() = default;
  LaunchTensors(const StepPlan& plan, const std::vector<Launch>& launches);

  // Sets the executor's own memory, of plan.arena_bytes.
  void set_arena(char* arena);

  // Gradients may be null if only forward runs. If a launch needs stacked tensors and they are not contiguous, returns
  // an error and binds nothing.
  Result<Done> bind(const CallersTensors& tensors);

  void* const* tensors_of(size_t launch) const { return tensors_.data() + first_[launch]; }
  // The tensors of launches [first, last).
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
  struct Bound {  // a launch's tensor in the caller's memory
    size_t slot;
    BufferLocation location;
    size_t position;
  };
  struct Placed {  // a launch's tensor in the arena
    size_t slot;
    bool saved;
    int64_t offset;  // in the saved memory or in the workspace
  };

  struct Adjacent {  // two of the caller's tensors that a launch needs contiguous
    BufferLocation location;
    size_t first;  // positions
    size_t second;
    int64_t bytes;  // from the first to the second
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
  char* workspace_ = nullptr;   // the bound one
  std::vector<void*> tensors_;  // of all launches in order
  std::vector<size_t> first_;   // by launch: its first tensor
  std::vector<Bound> bound_;
  std::vector<Placed> placed_;
  std::vector<Adjacent> adjacent_;
  std::vector<size_t> scalars_at_;  // positions of the scalar arguments that launches use
  std::vector<double> scalars_;     // by position
};

}  // namespace millrace
