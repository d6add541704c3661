#include "candidates/gemm_cost.h"

#include <algorithm>
#include <cmath>

#include "candidates/configs.h"

namespace millrace {
namespace {

// Speeds of a core, and of a GPU with and without tensor cores.
constexpr double kFlopPerSecond = 60e9;
constexpr double kCallSeconds = 5e-7;
constexpr double kGpuFlopPerSecond = 6e14;
constexpr double kGpuPlainFlopPerSecond = 4e13;
constexpr double kCopyBytesPerSecond = 10e9;  // of a core
constexpr double kOneThreadPoints = 1e5;      // a smaller product is computed by one thread

double elements(const Graph& graph, TensorId tensor) { return static_cast<double>(elements_of(graph, tensor)); }

double bytes(const Graph& graph, TensorId tensor) {
  return elements(graph, tensor) * static_cast<double>(bytes_of(graph.tensor(tensor).dtype));
}

}  // namespace

GemmCost::GemmCost(const Graph& graph, const Product& product, int threads)
    : threads_(threads), element_bytes_(static_cast<double>(bytes_of(graph.tensor(product.tensors[2].front()).dtype))) {
  for (size_t operand = 0; operand < 3; ++operand) {
    for (const TensorId tensor : product.tensors[operand]) {
      if (product.packed[operand]) bytes_ += 8 * elements(graph, tensor);
      bytes_on_gpu_ += (product.packed[operand] ? 3 : 1) * bytes(graph, tensor);
    }
  }
  if (product.adds()) bytes_ += 8 * elements(graph, product.added);
  if (product.companion().valid()) bytes_on_gpu_ += bytes(graph, product.companion());
}

double GemmCost::seconds(const GemmWork& work, bool threads_over_loops) const {
  const auto& [m, n, k, calls, unit_strides, copied_elements] = work;
  const auto filled = [](double x) { return x / (x + 8); };  // efficiency of short extents
  const double threads = !threads_over_loops && m * n * k < kOneThreadPoints ? 1 : threads_;
  const double flop = 2 * m * n * k / (filled(m) * filled(n) * filled(k));
  const double bytes = bytes_ + 2 * copied_elements * element_bytes_;
  return calls * (flop / kFlopPerSecond / threads + kCallSeconds) * (unit_strides ? 1 : 1.5) +
         bytes / kCopyBytesPerSecond;
}

double GemmCost::seconds_on_gpu(const GemmWork& work, bool tensor_cores) const {
  const auto& [m, n, k, calls, unit_strides, copied_elements] = work;
  const auto filled = [](double x, double tile) { return x / (std::ceil(x / tile) * tile); };
  const double flop = 2 * m * n * k * calls / (filled(m, 64) * filled(n, 64) * filled(k, 16));
  const double bytes = bytes_on_gpu_ + 2 * copied_elements * element_bytes_;
  return std::max(flop / (tensor_cores ? kGpuFlopPerSecond : kGpuPlainFlopPerSecond), bytes / kGpuBytesPerSecond) +
         kGpuLaunchSeconds;
}

}  // namespace millrace
