#include "measure/timing_class.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "base/text.h"
#include "codegen/lower.h"

namespace millrace {
namespace {

constexpr int64_t kLineBytes = 128;  // a cache line, fetched as a whole

// The innermost axes of a tensor that together fill a cache line.
std::string line_of(const Graph& graph, TensorId tensor, const Layout& layout) {
  if (layout.storage != MaskStorage::words) return layout.storage == MaskStorage::bits ? "bits" : "regenerated";
  const Tensor& stored = graph.tensor(tensor);
  std::string text;
  int64_t bytes = bytes_of(stored.dtype);
  for (auto axis = layout.order.rbegin(); axis != layout.order.rend() && bytes < kLineBytes; ++axis) {
    const int64_t extent = graph.extent(stored.dims[as_index(*axis)]);
    if (extent == 1) continue;
    text += concat(*axis, ".");
    bytes *= extent;
  }
  return text;
}

// Keeps only the loops that together fill a cache line of the narrowest type, from the vector's loop outwards.
KernelConfig without_far_loops(const Graph& graph, const Partition& partition, KernelConfig config) {
  const std::vector<int> loops = std::move(config.loops);
  config.loops.clear();
  int64_t bytes = narrowest_bytes(graph, partition);
  auto loop = std::find(loops.rbegin(), loops.rend(), config.vector);
  if (loop == loops.rend()) loop = loops.rbegin();
  for (; loop != loops.rend() && bytes < kLineBytes; ++loop) {
    config.loops.push_back(*loop);
    bytes *= partition.space[as_index(*loop)].extent;
  }
  return config;
}

// The arguments of a library call. For a named algorithm it only matters whether each stride is 0, 1 or more.
std::string call_text(const Launch& launch) {
  const GemmCall& call = launch.gemm;
  const int64_t largest = call.algorithm.id < 0 ? std::numeric_limits<int64_t>::max() : 2;
  std::string text = concat(call.m, " ", call.n, " ", call.k);
  const auto add = [&](std::initializer_list<int64_t> strides) {
    for (const int64_t stride : strides) text += concat(" ", std::min(stride, largest));
  };
  add({call.a_m, call.a_k, call.b_k, call.b_n, call.c_m, call.c_n, call.v_m, call.v_n});
  for (const GemmLoop& loop : call.loops) {
    text += concat(" loop ", loop.extent);
    add({loop.a, loop.b, loop.c, loop.v});
  }
  for (const bool packed : {launch.packed[0], launch.packed[1], launch.packed[2], launch.packed_vectors})
    text += packed ? " packed" : " -";
  for (const StridedCopy& copy : launch.unfolded)
    for (const CopyAxis& axis : copy.axes) text += concat(" copied ", axis.extent, " by ", axis.stride);
  return text;
}

}  // namespace

std::string timing_class_key(const Graph& graph, const std::vector<TensorDomain>& domains, const Partition& partition,
                             const Candidate& candidate) {
  const std::vector<Layout> layouts = layouts_of(domains, partition, candidate);
  Config config = candidate.config;
  std::string text;
  if (auto* const gemm = std::get_if<GemmConfig>(&config)) {
    text = call_text(lower(graph, partition, layouts, config));
    for (std::vector<int>* const indices : {&gemm->m, &gemm->n, &gemm->k}) indices->clear();
  } else {
    const std::vector<TensorId> tensors = tensors_of(partition);
    for (size_t k = 0; k < tensors.size(); ++k) text += concat(line_of(graph, tensors[k], layouts[k]), " ");
    if (auto* const kernel = std::get_if<KernelConfig>(&config))
      *kernel = without_far_loops(graph, partition, std::move(*kernel));
  }
  return concat(text, "; ", print_config(config));
}

}  // namespace millrace
