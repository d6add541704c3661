// What a partition must compute: drawn inputs, and what the reference makes of them, with how far rounding may lead
// away.
#pragma once

#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "millrace/result.h"
#include "reference/interpreter.h"

namespace millrace {

struct Expected {
  std::vector<double> values;      // row-major
  std::vector<double> tolerances;  // one a value
};

struct ReferenceData {
  std::vector<std::vector<double>> inputs;  // one a tensor that the partition reads
  std::vector<Expected> outputs;            // one a tensor that it writes
  std::vector<double> arguments;            // the program's scalars, by position among its arguments
  RandomState random;
};

// Equal for partitions whose truth is: those that compute the same, and draw the same masks. Partitions that take
// equally long may draw different ones.
std::string reference_data_name(const Graph& graph, const Partition& partition);

Result<ReferenceData> reference_data_of(const Graph& graph, const Partition& partition, uint64_t seed);

// Draws the inputs alone.
ReferenceData draw_inputs(const Graph& graph, const Partition& partition, uint64_t seed, bool positive);

// What a dropout of this kind makes of these numbers.
std::vector<double> drawn_mask(const Operator& dropout, size_t elements, const RandomState& random);

// The product of numbers that something is scaled by: constants, or arguments of the program.
double factor_of(const Graph& graph, const std::vector<TensorId>& scales, const ReferenceData& reference_data);

// How far from the nearest number of its type a stored one may lie.
double storage_error(DType dtype, double value);

// The first element that is not as expected, in words; empty where all are. A NaN is as expected only where one is.
std::string difference(const Graph& graph, TensorId tensor, const Layout& layout, const Expected& expected,
                       const std::vector<double>& found);

// The same graph and partition with small extents, one for each extent that there is: for checks against the reference
// where the real ones would take too long.
Graph shrunken(const Graph& graph);
Partition shrunken(const Partition& partition, const Graph& small);

}  // namespace millrace
