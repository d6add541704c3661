// The caller's tensors of a plan: names, layouts, and memory for them. Test: tests/driver/plan_folder_test.cpp
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
  std::string name;  // the caller's name; d_NAME for a gradient
  TensorId tensor;   // invalid: the gradient of an argument that has none
  Layout layout;
  int64_t bytes = 0;
  int follows = -1;  // the position in its list of the tensor that it directly follows in memory; -1: none
};

// Memory for a list: one block per tensor, and one for each group of stacked tensors.
struct CallersBlocks {
  struct Slot {
    size_t block = 0;
    int64_t offset = 0;
  };
  std::vector<int64_t> bytes;  // one per block
  std::vector<Slot> slots;     // one per tensor
};

CallersBlocks blocks_of(const std::vector<CallersTensor>& tensors);

struct CallersLists {
  std::vector<CallersTensor> arguments;
  std::vector<CallersTensor> results;
  std::vector<CallersTensor> result_gradients;
  std::vector<CallersTensor> argument_gradients;
};

CallersLists callers_lists(const LoadedPlan& loaded);

// Memory for all of them, with the inputs filled in.
class CallersMemory {
 public:
  // `given`: row-major, one per tensor of the graph; must contain arguments and results' gradients.
  CallersMemory(const LoadedPlan& loaded, const Values<double>& given);

  struct List {
    const std::vector<CallersTensor>* tensors;
    const std::vector<void*>& pointers;
    bool made;  // written by the plan, not given by the caller
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
