// Single elements of a product, computed from its definition: for products that are too large for the reference. Test:
// tests/measure/trial_test.cpp, tests/measure/gpu_trial_test.cpp
#pragma once

#include <vector>

#include "measure/reference_data.h"

namespace millrace {

struct Probe {
  size_t output = 0;   // position among the tensors that the partition writes
  size_t element = 0;  // row-major
  double value = 0;
  // Σ|a||b| plus |bias| or |added element|, for the error bound; for a GELU, the GELU of that.
  double magnitude = 0;
};

// `count` random elements of the result, computed from the inputs in `reference_data`; and as many of a bias's gradient
// and of the auxiliary matrix, if the partition writes them.
std::vector<Probe> probes_of(const Graph& graph, const Partition& partition, const ReferenceData& reference_data,
                             size_t count);

// The factor that scales a product.
double factor_of(const Graph& graph, const Partition& partition, const ReferenceData& reference_data);

// Whether the partition adds a tensor to the product, as a bias or as a matrix. The scale factor does not apply to it.
bool is_added(const Partition& partition, TensorId tensor);

// The number of products summed per element.
double depth_of(const Partition& partition);

// The largest difference between two kernels' results for an element of this magnitude and value, as stored. It has the
// form c + d · magnitude + e · |value|. The partition's inputs must be between -1 and 1.
double tolerance_of(const Graph& graph, const Partition& partition, TensorId tensor, double magnitude, double value);

}  // namespace millrace
