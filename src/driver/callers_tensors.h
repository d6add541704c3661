// The caller's tensors of a plan: what they are called, how they lie in memory, and memory for them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "driver/plan_folder.h"
#include "exec/launch_tensors.h"
#include "ir/layout.h"
#include "measure/tensor_memory.h"
#include "reference/interpreter.h"

namespace millrace {

struct CallersTensor {
  std::string name;  // as the caller knows it; of a gradient d_NAME
  TensorId tensor;   // invalid: the gradient of an argument that has none
  Layout layout;
  int64_t bytes = 0;
  int behind = -1;  // the position in its list of what it lies right behind; -1: anywhere
};

// Memory for a list: one block for each tensor, and one for all that are stacked.
struct CallersBlocks {
  struct Place {
    size_t block = 0;
    int64_t offset = 0;
  };
  std::vector<int64_t> bytes;  // one a block
  std::vector<Place> places;   // one a tensor
};

CallersBlocks blocks_of(const std::vector<CallersTensor>& tensors);

struct CallersLists {
  std::vector<CallersTensor> arguments;
  std::vector<CallersTensor> results;
  std::vector<CallersTensor> result_gradients;
  std::vector<CallersTensor> argument_gradients;
};

CallersLists callers_lists(const LoadedPlan& loaded);

// All of them, with what the caller gives filled in.
class CallersMemory {
 public:
  // `given`: row-major, one a tensor of the graph; arguments and results' gradients must be there.
  CallersMemory(const LoadedPlan& loaded, const Values<double>& given);

  struct List {
    const std::vector<CallersTensor>* tensors;
    const std::vector<void*>& pointers;
    bool made;  // by the plan, not given by the caller
  };
  // Arguments, results, results' gradients, arguments' gradients.
  std::array<List, 4> lists() const;

  CallersTensors pointers() const;
  // Results and arguments' gradients.
  void take(Values<double>& values) const;

 private:
  std::vector<void*> add(const std::vector<CallersTensor>& tensors, const Values<double>* given);

  const LoadedPlan& loaded_;
  CallersLists lists_;
  std::vector<Memory> memory_;
  std::vector<void*> arguments_;
  std::vector<void*> results_;
  std::vector<void*> result_gradients_;
  std::vector<void*> argument_gradients_;
};

}  // namespace millrace
