// The inputs of a step, from a file or random (the same values for every engine), and its outputs.
// Test: tests/python/cli_test.py
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

// An input, under its name in a file.
struct Given {
  std::string name;
  TensorId tensor;
  bool required = false;  // in a file; a result's gradient is optional
};

std::vector<Given> given_tensors(const TrainingGraph& training);

// An output, a result or an argument's gradient, under its name in a file.
struct Made {
  std::string name;
  TensorId tensor;
};

std::vector<Made> made_tensors(const TrainingGraph& training);

// Fails if a name in a file would be ambiguous, as with an argument `x` and a result `d_x`.
Result<Done> check_names(const TrainingGraph& training);

// Inputs by tensor of the graph, from a file, with missing optional ones random. Reports all mismatches at once. With
// an empty path all inputs are random, as reference/draw_rules.h says.
Result<Values<double>> take_given(const TrainingGraph& training, const std::string& path, uint64_t seed);

}  // namespace millrace
