// The libraries that multiply matrices: candidates name one, and the device calls it. Tests:
// tests/device/blas_test.cpp, tests/candidates/gemm_configs_test.cpp
#pragma once

namespace millrace {

enum class GemmLibrary { openblas, blis, cublaslt };

}  // namespace millrace
