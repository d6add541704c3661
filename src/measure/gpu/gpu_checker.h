// Writes, reads and compares tensors and memory on a GPU, to check candidates there. Test:
// tests/measure/gpu_trial_test.cpp
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "device/gpu_memory.h"
#include "ir/layout.h"

namespace millrace {

// The text of src/measure/gpu/check_kernels.h.
std::string_view gpu_check_kernels();

// The check kernels' arguments for a tensor.
std::vector<double> check_numbers(const Graph& graph, TensorId tensor, const Layout& layout);

// What to write: values, their magnitudes, or their negated magnitudes.
enum class PutAs { values, magnitudes, negative_magnitudes };

struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};

class GpuChecker {
 public:
  static Result<GpuChecker> make(Gpu& gpu, const GpuCompiler& compiler);

  // `values`, here and below: row-major doubles on the device.
  Result<Done> put(const Graph& graph, TensorId tensor, const Layout& layout, const GpuMemory& values, PutAs as,
                   void* to) const;
  Result<Done> take(const Graph& graph, TensorId tensor, const Layout& layout, void* from,
                    const GpuMemory& values) const;
  // The first element that exceeds its tolerance.
  Result<std::optional<int64_t>> first_wrong(const Graph& graph, TensorId tensor, const Layout& layout, void* found,
                                             const GpuMemory& values, const GpuMemory& tolerances) const;
  // The first byte in which two blocks differ outside of `ranges`, which are sorted. `bytes`: a multiple of 8.
  Result<std::optional<int64_t>> first_change(char* found, char* before, int64_t bytes,
                                              const std::vector<ByteRange>& ranges) const;
  // Magnitudes of sums → tolerances: per_magnitude · magnitude + relative · |value| + absolute.
  Result<Done> allow(int64_t elements, const GpuMemory& values, const GpuMemory& magnitudes, double per_magnitude,
                     double relative, double absolute) const;

 private:
  explicit GpuChecker(Gpu& gpu) : gpu_(&gpu) {}

  Result<Done> forget_first() const;
  Result<std::optional<int64_t>> read_first() const;

  Gpu* gpu_;
  std::unique_ptr<GpuLaunch> put_;
  std::unique_ptr<GpuLaunch> take_;
  std::unique_ptr<GpuLaunch> compare_;
  std::unique_ptr<GpuLaunch> allow_;
  std::unique_ptr<GpuLaunch> change_;
  GpuMemory first_;  // compare and change write the first wrong element here
};

}  // namespace millrace
