// GNU's OpenMP, which the libraries of matrix products use, and its settings during a product.
// Test: tests/device/blas_test.cpp
#pragma once

// Clang and its tools do not find <omp.h>.
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_max_threads();
int omp_get_thread_limit();
int omp_get_thread_num();
void omp_set_dynamic(int dynamic);
int omp_get_dynamic();
}

namespace millrace {

// Restores the caller's OpenMP settings at the end. With fewer threads than requested, BLIS ends the process and
// OpenBLAS hangs, so OpenMP must not choose the number itself.
class OpenMpSettings {
 public:
  OpenMpSettings() : threads_(omp_get_max_threads()), dynamic_(omp_get_dynamic()) { omp_set_dynamic(0); }
  OpenMpSettings(const OpenMpSettings&) = delete;
  OpenMpSettings& operator=(const OpenMpSettings&) = delete;
  ~OpenMpSettings() {
    omp_set_dynamic(dynamic_);
    omp_set_num_threads(threads_);
  }

 private:
  int threads_;
  int dynamic_;
};

}  // namespace millrace
