// How the caller's tensors lie, as --layout says it: in which layout, and which of them one behind the other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "millrace/result.h"

namespace millrace {

inline constexpr int64_t kCallersAlignment =
    16;  // bytes: what kernels on a GPU take a tensor's address to be aligned to

struct Pinned {
  std::vector<TensorDomain> domains;                     // one a tensor of the graph
  std::vector<std::vector<TensorId>> contiguous_groups;  // of the caller's: each lies right behind the one before it
  std::vector<Rejected> rejected;                        // families that no use can be made of
};

// `layouts`: a tensor's name, and its layout or "any"; or several, as in "wq+wk+wv", and "stacked". What is not named
// lies as the program writes it, and anywhere. A gradient is a tensor of its own, d_NAME.
Result<Pinned> pin_layouts(const TrainingGraph& training,
                           const std::vector<std::pair<std::string, std::string>>& layouts);

}  // namespace millrace
