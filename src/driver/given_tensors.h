// The tensors that a caller gives, from a file or drawn (the same values for whatever runs them), and those that are
// made of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "millrace/result.h"
#include "reference/interpreter.h"

namespace millrace {

std::vector<int64_t> shape_of(const Graph& graph, TensorId tensor);
std::string shown(const std::vector<int64_t>& shape);

// A tensor that the caller gives, under the name that it has in a file.
struct Given {
  std::string name;
  TensorId tensor;
  bool required = false;  // in a file; a result's gradient may be drawn
};

std::vector<Given> given_tensors(const TrainingGraph& training);

// A result, or an argument's gradient, under the name that it has in a file.
struct Made {
  std::string name;
  TensorId tensor;
};

std::vector<Made> made_tensors(const TrainingGraph& training);

// A file's names must tell arguments from gradients: an argument `x` beside a result `d_x` would not.
Result<Done> check_names(const TrainingGraph& training);

// By tensor of the graph: what the caller gives, all of it drawn.
Values<double> draw_given(const TrainingGraph& training, uint64_t seed);

// The same from a file, with what may be missing in it drawn; complains about all that does not fit at once. An empty
// path: all are drawn.
Result<Values<double>> take_given(const TrainingGraph& training, const std::string& path, uint64_t seed);

}  // namespace millrace
