// A function that a library takes at the end of a product.
#pragma once

namespace millrace {

enum class Activation {
  none,
  relu,           // max(x, 0)
  gelu,           // by tanh. What it is taken of can be written too: a matrix beside the result, the auxiliary one
  gelu_gradient,  // x · gelu'(y) of such a y, the auxiliary matrix, which is read
};

// Neighbours in memory that a library takes the auxiliary matrix by: a multiple of these lies between its columns, and
// between those of a batch (cublasLt.h, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
inline constexpr int kAuxiliaryStep = 8;

}  // namespace millrace
