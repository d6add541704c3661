// A library with the functions of MKL that Millrace calls, so that the tests of its products run without MKL: plain
// loops, and the thread counts and layers that a caller set. Test: tests/device/blas_test.cpp
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int kTransposed = 112;
thread_local int threads_of_this_thread = 0;

struct Matrix {
  int transpose;
  int leading;
  long at(int row, int column) const {
    return transpose == kTransposed ? static_cast<long>(column) * leading + row
                                    : static_cast<long>(row) * leading + column;
  }
};

template <class Real>
void multiply(Matrix in_a, Matrix in_b, int m, int n, int k, Real alpha, const Real* a, const Real* b, Real beta,
              Real* c, int ldc) {
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      Real sum = 0;
      for (int l = 0; l < k; ++l) sum += a[in_a.at(i, l)] * b[in_b.at(l, j)];
      Real& result = c[static_cast<long>(i) * ldc + j];
      result = alpha * sum + (beta == 0 ? 0 : beta * result);
    }
  }
}

float widened(uint16_t half) {
  const uint32_t bits = uint32_t{half} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The elements of a matrix that has `rows` rows and `columns` columns.
std::vector<float> widened(Matrix in, int rows, int columns, const uint16_t* halves) {
  const long last = in.at(rows - 1, columns - 1);
  std::vector<float> wide;
  for (long at = 0; at <= last; ++at) wide.push_back(widened(halves[at]));
  return wide;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): these are MKL's names
extern "C" {

int MKL_Set_Interface_Layer(int layer) { return layer; }
int MKL_Set_Threading_Layer(int layer) { return layer; }
void MKL_Set_Dynamic(int) {}
void MKL_Get_Version_String(char* text, int length) { std::snprintf(text, static_cast<size_t>(length), "emulated  "); }

int MKL_Set_Num_Threads_Local(int threads) {
  const int before = threads_of_this_thread;
  threads_of_this_thread = threads;
  return before;
}

void cblas_sgemm(int, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc) {
  multiply({transpose_a, lda}, {transpose_b, ldb}, m, n, k, alpha, a, b, beta, c, ldc);
}

void cblas_dgemm(int, int transpose_a, int transpose_b, int m, int n, int k, double alpha, const double* a, int lda,
                 const double* b, int ldb, double beta, double* c, int ldc) {
  multiply({transpose_a, lda}, {transpose_b, ldb}, m, n, k, alpha, a, b, beta, c, ldc);
}

// There is none for float16, as in versions before 2024.
void cblas_gemm_bf16bf16f32(int, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const uint16_t* a,
                            int lda, const uint16_t* b, int ldb, float beta, float* c, int ldc) {
  const Matrix in_a{transpose_a, lda};
  const Matrix in_b{transpose_b, ldb};
  multiply(in_a, in_b, m, n, k, alpha, widened(in_a, m, k, a).data(), widened(in_b, k, n, b).data(), beta, c, ldc);
}
}
// NOLINTEND(readability-identifier-naming)
