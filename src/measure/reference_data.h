// Reference data of a partition: drawn inputs, the outputs that the reference computes from them, and their tolerances.
// Test: tests/measure/attention_reference_data_test.cpp, tests/candidates/epilogues_test.cpp
#pragma once

#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "millrace/result.h"
#include "reference/draw_rules.h"
#include "reference/interpreter.h"

namespace millrace {

struct Expected {
  std::vector<double> values;      // row-major
  std::vector<double> tolerances;  // one per value
};

struct ReferenceData {
  std::vector<std::vector<double>> inputs;  // one per tensor that the partition reads
  std::vector<Expected> outputs;            // one per tensor that it writes
  std::vector<double> arguments;            // values for scalar arguments, one per argument of the program
  RandomState random;
};

// How many numbers the inputs and outputs have, with the tolerances.
size_t numbers_in(const ReferenceData& reference_data);

// Equal for partitions with equal reference data: they compute the same from numbers of the same range with the same
// dropout masks. Two equal partitions may still have different masks and ranges.
std::string reference_data_name(const Graph& graph, const DrawRules& rules, const Partition& partition);

// `rules`: of the whole graph; rules_to_try() changes them.
Result<ReferenceData> make_reference_data(const Graph& graph, const DrawRules& rules, const Partition& partition,
                                          uint64_t seed);

// Reference data without outputs.
ReferenceData draw_inputs(const Graph& graph, const DrawRules& rules, const Partition& partition, uint64_t seed);

// Values for scalar arguments, one per argument of the program.
std::vector<double> drawn_arguments(const Graph& graph, const DrawRules& rules, uint64_t seed);

// The mask of a dropout, row-major.
std::vector<double> dropout_mask(const Operator& dropout, size_t elements, const RandomState& random);

// The product of scale factors, which are constants or arguments of the program.
double factor_of(const Graph& graph, const std::vector<TensorId>& scales, const ReferenceData& reference_data);

// The largest error from rounding a value to its storage type.
double storage_error(DType dtype, double value);

// Describes the first element that is not as expected; empty if there is none. A NaN must be where one is expected.
std::string difference(const Graph& graph, TensorId tensor, const Layout& layout, const Expected& expected,
                       const std::vector<double>& found);

// The graph and partition with small extents, for checks that would take the reference too long. Different extents stay
// different.
Graph shrunken(const Graph& graph);
Partition shrunken(const Partition& partition, const Graph& small);

}  // namespace millrace
