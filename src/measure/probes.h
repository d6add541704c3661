// Elements of a product, straight from its definition: for products that are too large for the reference.
#pragma once

#include <vector>

#include "measure/reference_data.h"

namespace millrace {

struct Probe {
  size_t output = 0;   // which of the tensors that the partition writes
  size_t element = 0;  // of it, row-major
  double value = 0;
  double magnitude = 0;  // Σ|a||b|, and |bias| or what is added: what rounding is measured against; and behind a GELU
                         // what that makes of it
};

// `count` elements by chance, of the inputs that `truth` has; and as many of the gradient of a bias, and of the
// auxiliary matrix, where the partition makes one.
std::vector<Probe> probes_of(const Graph& graph, const Partition& partition, const ReferenceData& reference_data,
                             size_t count);

// What a product is multiplied by.
double factor_of(const Graph& graph, const Partition& partition, const ReferenceData& reference_data);

// Whether a tensor that the partition reads is added to the product, as a bias or as a whole: the factor is not its
// own.
bool is_added(const Partition& partition, TensorId tensor);

// How many products an element is the sum of.
double depth_of(const Partition& partition);

// How far from each other two such elements of a tensor that the partition writes may lie, of this magnitude, as
// computed and stored. Of the form c + d · magnitude + e · |value|. The partition's inputs lie between -1 and 1.
double tolerance_of(const Graph& graph, const Partition& partition, TensorId tensor, double magnitude, double value);

}  // namespace millrace
