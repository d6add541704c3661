// The layouts of the caller's tensors, and which of them are adjacent in memory, from the option --layout.
// Test: tests/candidates/pins_test.cpp
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "millrace/result.h"

namespace millrace {

inline constexpr int64_t kCallersAlignment = 16;  // bytes: kernels on a GPU assume it of every tensor's address

struct Pinned {
  std::vector<TensorDomain> domains;                     // one per tensor of the graph
  std::vector<std::vector<TensorId>> contiguous_groups;  // the caller's: each tensor follows the previous one
  std::vector<Rejected> rejected;                        // contiguous groups that kernels cannot use
};

// `layouts`: a tensor's name, and its layout or "any"; or several names, as in "wq+wk+wv", and "stacked". Other tensors
// of the caller have the program's layout, at any address. The gradient of NAME is d_NAME.
Result<Pinned> pin_layouts(const TrainingGraph& training,
                           const std::vector<std::pair<std::string, std::string>>& layouts);

}  // namespace millrace
