// The artefact of autodiff: one graph with forward and backward operators, and the tensors that connect them.
// Tests: tests/autodiff/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// How backward gets a forward tensor that it reads.
enum class Keeping {
  given,       // an argument: the caller passes it again
  saved,       // written by forward, read by backward
  recomputed,  // computed again in backward, from kept tensors
};

std::string_view name_of(Keeping keeping);

struct Kept {
  TensorId tensor;  // the forward tensor
  Keeping keeping = Keeping::saved;
  std::vector<OperatorId> readers;  // the backward operators that need it
};

struct TrainingGraph {
  Graph graph;                               // forward operators first, then backward
  std::vector<TensorId> result_gradients;    // one per result: given by the caller
  std::vector<TensorId> argument_gradients;  // one per argument; invalid if it has no gradient
  std::vector<Kept> kept;                    // one per forward tensor that backward needs, in order of tensors
  std::vector<OperatorId> repeated;          // backward operators that fusion/recompute.h added
  std::vector<OperatorId> predicates;        // forward operators that fusion/predicates.h added
  std::vector<OperatorId> statistics;        // forward operators that fusion/row_statistics.h added: only fused
                                             // attention computes them
};

// Whether an argument of the program has a gradient: scalars and fixed arguments do not.
bool has_gradient(const Tensor& argument);

}  // namespace millrace
