// The artefact of autodiff: one graph with forward and backward operators, and what ties the two together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// How a forward tensor that backward reads gets there.
enum class Keeping {
  given,       // an argument: the caller has it anyway
  saved,       // written by forward, read again by backward
  recomputed,  // made again in backward, from tensors that are kept
};

std::string_view name_of(Keeping keeping);

struct Kept {
  TensorId tensor;  // the forward tensor
  Keeping keeping = Keeping::saved;
  std::vector<OperatorId> readers;  // the backward operators that need it
};

struct TrainingGraph {
  Graph graph;                               // forward operators first, then backward
  std::vector<TensorId> result_gradients;    // one a result: given by the caller
  std::vector<TensorId> argument_gradients;  // one an argument; invalid for one that has none
  std::vector<Kept> kept;                    // one a forward tensor that backward needs, in order of tensors
  std::vector<OperatorId> repeated;          // backward operators that fusion/recompute.h added
  std::vector<OperatorId> predicates;        // forward operators that fusion/predicates.h added
  std::vector<OperatorId> statistics;        // forward operators that fusion/row_statistics.h added: only an attention
                                             // in one piece carries them out
};

// Whether an argument of the program has one: scalars and fixed ones do not.
bool has_gradient(const Tensor& argument);

}  // namespace millrace
