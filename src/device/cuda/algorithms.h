// Every cuBLASLt algorithm that can compute a product.
// Test: tests/device/cuda/cuda_gpu_test.cpp
#pragma once

#include <vector>

#include "device/cuda/cublaslt.h"

namespace millrace {

// The heuristic's choices first, best first; each once.
Result<std::vector<GemmAlgorithm>> list_algorithms(const CublasLtProduct& product);

}  // namespace millrace
