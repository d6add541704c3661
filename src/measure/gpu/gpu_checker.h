// Values into a GPU's tensors and out of them, and comparisons there: what candidates on a GPU are checked with.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "device/gpu_memory.h"
#include "ir/layout.h"

namespace millrace {

// src/measure/gpu/check_kernels.h.
std::string_view gpu_check_kernels();

// A tensor in memory, as the check kernels know it: their numbers.
std::vector<double> check_numbers(const Graph& graph, TensorId tensor, const Layout& layout);

// Values as they are, or without their signs, or all of them negative.
enum class PutAs { values, magnitudes, negative_magnitudes };

class GpuChecker {
 public:
  static Result<GpuChecker> make(Gpu& gpu, const GpuCompiler& compiler);

  // `values`: row-major doubles on the device, there and everywhere below.
  Result<Done> put(const Graph& graph, TensorId tensor, const Layout& layout, const GpuMemory& values, PutAs as,
                   void* to) const;
  Result<Done> take(const Graph& graph, TensorId tensor, const Layout& layout, void* from,
                    const GpuMemory& values) const;
  // The first element that is further off than it may be.
  Result<std::optional<int64_t>> first_wrong(const Graph& graph, TensorId tensor, const Layout& layout, void* found,
                                             const GpuMemory& values, const GpuMemory& tolerances) const;
  // Magnitudes of sums → tolerances: of(magnitude) · magnitude + relative · |value| + absolute.
  Result<Done> allow(int64_t elements, const GpuMemory& values, const GpuMemory& magnitudes, double of_magnitude,
                     double relative, double absolute) const;

 private:
  explicit GpuChecker(Gpu& gpu) : gpu_(&gpu) {}

  Gpu* gpu_;
  std::unique_ptr<GpuLaunch> put_;
  std::unique_ptr<GpuLaunch> take_;
  std::unique_ptr<GpuLaunch> compare_;
  std::unique_ptr<GpuLaunch> allow_;
  GpuMemory first_;  // of compare: one number
};

}  // namespace millrace
