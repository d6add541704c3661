// The functions that a library can apply at the end of a product. Tests: tests/candidates/.
#pragma once

namespace millrace {

enum class Activation {
  none,
  relu,           // max(x, 0)
  exact_gelu,     // by erf
  gelu,           // the tanh approximation; its input can be written too, to an auxiliary matrix
  gelu_gradient,  // x · gelu'(y), with y read from the auxiliary matrix
};

inline bool is_gelu(Activation activation) {
  return activation == Activation::gelu || activation == Activation::exact_gelu;
}

// The strides of the auxiliary matrix between columns and between matrices of a batch must be multiples of this
// (cublasLt.h, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD).
inline constexpr int kAuxiliaryStep = 8;

}  // namespace millrace
