#include "codegen/lower.h"

#include <algorithm>

#include "codegen/cpu/attention.h"
#include "codegen/cpu/generate.h"
#include "codegen/cuda/attention.h"
#include "codegen/cuda/cudnn_call.h"
#include "codegen/cuda/generate.h"
#include "codegen/cuda/unfold.h"

namespace millrace {
namespace {

LaunchNumber number_of(const Graph& graph, TensorId scalar, double value) {
  if (!scalar.valid()) return {-1, value};
  if (graph.tensor(scalar).role == TensorRole::constant) return {-1, graph.tensor(scalar).value};
  const auto at = std::find(graph.arguments.begin(), graph.arguments.end(), scalar);
  return {static_cast<int>(at - graph.arguments.begin()), 0};
}

class GemmLowering {
 public:
  GemmLowering(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
               const GemmConfig& config)
      : graph_(graph), partition_(partition), product_(partition.product), layouts_(layouts), config_(config) {}

  Launch run() {
    Launch launch;
    for (size_t operand = 0; operand < 3; ++operand) {
      launch.operands[operand] = positions(operand);
      launch.packed[operand] = product_.packed[operand];
      launch.operand_bytes[operand] = tensor_bytes(operand);
    }
    if (product_.vector) {
      launch.vectors = positions(kVectorOperand);
      launch.packed_vectors = product_.packed[kVectorOperand];
      launch.vector_bytes = tensor_bytes(kVectorOperand);
    }
    if (config_.unfolded != kNoIndex) unfold(launch);
    if (product_.adds()) launch.added = position(product_.added, false);
    if (product_.auxiliary.valid()) launch.auxiliary = position(product_.auxiliary, product_.writes_auxiliary());
    GemmCall& call = launch.gemm;
    call.scaled = !product_.scales.empty();
    call.adds = product_.adds();
    call.library = config_.library;
    call.algorithm = config_.algorithm;
    call.tensor_cores = config_.tensor_cores;
    call.type = stored_type(graph_.tensor(product_.tensors[2].front()).dtype);
    call.m = extent(config_.m);
    call.n = extent(config_.n);
    call.k = extent(config_.k);
    call.a_m = stride(0, config_.m);
    call.a_k = stride(0, config_.k);
    call.b_k = stride(1, config_.k);
    call.b_n = stride(1, config_.n);
    call.c_m = stride(2, config_.m);
    call.c_n = stride(2, config_.n);
    call.a_first = first(0);
    call.b_first = first(1);
    for (size_t index = 0; index < product_.indices.size(); ++index) {
      if (in(config_.m, index) || in(config_.n, index) || in(config_.k, index)) continue;
      call.loops.push_back({product_.indices[index].extent, stride_of(0, index), stride_of(1, index),
                            stride_of(2, index), product_.vector ? stride_of(kVectorOperand, index) : 0});
    }
    if (product_.vector) set_vector(call);
    call.activation = product_.activation;
    call.has_auxiliary = product_.auxiliary.valid();
    if (call.library == GemmLibrary::cublaslt) merge_loops(call.loops);
    call.threads_over_loops = config_.threads_over_loops;
    call.threads = config_.threads;
    call.a_elements = launch.unfolded[0].empty() ? elements(0) : launch.unfolded[0].elements();
    call.b_elements = launch.unfolded[1].empty() ? elements(1) : launch.unfolded[1].elements();
    call.c_elements = elements(2);
    for (const TensorId scale : product_.scales) launch.numbers.push_back(number_of(graph_, scale, 1));
    return launch;
  }

 private:
  void set_vector(GemmCall& call) const {
    switch (product_.vector->role) {
      case ProductVector::Role::bias: call.vector = GemmVector::bias; break;
      case ProductVector::Role::gradient_of_a: call.vector = GemmVector::gradient_of_a; break;
      case ProductVector::Role::gradient_of_b: call.vector = GemmVector::gradient_of_b; break;
    }
    call.v_m = config_.m.empty() ? 0 : stride(kVectorOperand, config_.m);
    call.v_n = config_.n.empty() ? 0 : stride(kVectorOperand, config_.n);
    call.v_elements = elements(kVectorOperand);
  }

  // The axes of the copy, in the order of its indices. After this, strides are those of the copy.
  void unfold(Launch& launch) {
    const size_t operand = as_index(config_.unfolded);
    const std::vector<int64_t> strides = strides_in_source(operand);
    const std::vector<int> indices = unfolded_indices(product_, config_, strides, strides_in_source(2));
    StridedCopy& copy = launch.unfolded.at(operand);
    copy.first = first(operand);
    for (const int index : indices) copy.add({product_.indices[as_index(index)].extent, strides[as_index(index)]});
    strides_of_copy_ = unfolded_strides(product_, indices);
  }

  std::vector<int64_t> strides_in_source(size_t operand) const {
    std::vector<int64_t> strides;
    for (size_t index = 0; index < product_.indices.size(); ++index) strides.push_back(stride_of(operand, index));
    return strides;
  }

  bool is_copied(size_t operand) const {
    return !strides_of_copy_.empty() && static_cast<int>(operand) == config_.unfolded;
  }

  std::vector<int> positions(size_t operand) const {
    std::vector<int> found;
    for (const TensorId tensor : product_.operand(operand))
      found.push_back(position(tensor, product_.is_written(operand)));
    return found;
  }

  int64_t tensor_bytes(size_t operand) const {
    const TensorId first = product_.operand(operand).front();
    return elements_of(graph_, first) * bytes_of(graph_.tensor(first).dtype);
  }

  // Merges loops that are contiguous in all tensors into one batch.
  static void merge_loops(std::vector<GemmLoop>& loops) {
    std::sort(loops.begin(), loops.end(), [](const GemmLoop& l, const GemmLoop& r) { return l.c > r.c; });
    for (size_t k = loops.size(); k-- > 1;) {
      const GemmLoop inner = loops[k];
      GemmLoop& outer = loops[k - 1];
      if (outer.a != inner.a * inner.extent || outer.b != inner.b * inner.extent || outer.c != inner.c * inner.extent ||
          outer.v != inner.v * inner.extent)
        continue;
      outer = {outer.extent * inner.extent, inner.a, inner.b, inner.c, inner.v};
      loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }

  static bool in(const std::vector<int>& chain, size_t index) {
    return std::find(chain.begin(), chain.end(), static_cast<int>(index)) != chain.end();
  }

  int position(TensorId tensor, bool written) const {
    const std::vector<TensorId>& list = written ? partition_.writes : partition_.reads;
    const auto at = std::find(list.begin(), list.end(), tensor) - list.begin();
    return static_cast<int>(at + (written ? static_cast<std::ptrdiff_t>(partition_.reads.size()) : 0));
  }

  int64_t elements(size_t operand) const {
    return elements_of(graph_, product_.operand(operand).front()) *
           static_cast<int64_t>(product_.operand(operand).size());
  }

  int64_t extent(const std::vector<int>& chain) const {
    int64_t points = 1;
    for (const int index : chain) points *= product_.indices[as_index(index)].extent;
    return points;
  }

  int64_t first(size_t operand) const {
    if (is_copied(operand)) return 0;
    const int at = position(product_.operand(operand).front(), product_.is_written(operand));
    return origin_of(graph_, product_, operand, layouts_[as_index(at)]);
  }

  int64_t stride_of(size_t operand, size_t index) const {
    if (is_copied(operand)) return strides_of_copy_[index];
    const int at = position(product_.operand(operand).front(), product_.is_written(operand));
    return stride_along(graph_, product_, operand, index, layouts_[as_index(at)]);
  }

  // The stride along merged indices. A product without them has extent one, so that any stride is right.
  int64_t stride(size_t operand, const std::vector<int>& chain) const {
    return chain.empty() ? 1 : stride_of(operand, static_cast<size_t>(chain.back()));
  }

  const Graph& graph_;
  const Partition& partition_;
  const Product& product_;
  const std::vector<Layout>& layouts_;
  const GemmConfig& config_;
  std::vector<int64_t> strides_of_copy_;  // of the unfolded operand
};

KernelText text_of(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                   const Config& config) {
  if (const auto* attention = std::get_if<AttentionConfig>(&config))
    return generate_cuda_attention(graph, partition, layouts, *attention);
  if (const auto* attention = std::get_if<CpuAttentionConfig>(&config))
    return generate_cpu_attention(graph, partition, layouts, *attention);
  const auto& kernel = std::get<KernelConfig>(config);
  return kernel.gpu ? generate_cuda_kernel(graph, partition, layouts, kernel)
                    : generate_cpu_kernel(graph, partition, layouts, kernel);
}

Launch lower_cudnn(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts) {
  Launch launch;
  launch.attention = cudnn_call(graph, partition, layouts);
  for (const TensorId scale : partition.attention.scales) launch.numbers.push_back(number_of(graph, scale, 1));
  return launch;
}

// On a GPU, a kernel makes the copy.
void add_unfolding(Launch& launch, size_t tensors) {
  launch.tensor_count = static_cast<int64_t>(tensors);
  KernelText text = generate_unfold(launch);
  launch.kernel = std::move(text.text);
  launch.grids = std::move(text.grids);
}

}  // namespace

Launch lower(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts, const Config& config) {
  if (const auto* gemm = std::get_if<GemmConfig>(&config)) {
    Launch launch = GemmLowering(graph, partition, layouts, *gemm).run();
    if (launch.is_unfolded() && gemm->library == GemmLibrary::cublaslt) add_unfolding(launch, layouts.size());
    return launch;
  }
  if (std::holds_alternative<CudnnConfig>(config)) return lower_cudnn(graph, partition, layouts);
  KernelText text = text_of(graph, partition, layouts, config);
  Launch launch;
  launch.grids = std::move(text.grids);
  launch.tensor_count = static_cast<int64_t>(layouts.size());
  launch.kernel = std::move(text.text);
  if (const auto* kernel = std::get_if<KernelConfig>(&config)) launch.threads = kernel->threads;
  if (const auto* attention = std::get_if<CpuAttentionConfig>(&config)) launch.threads = attention->threads;
  launch.scratch_bytes = text.scratch_bytes;
  launch.subsequences = std::move(text.subsequences);
  for (const KernelValue& value : text.values) launch.numbers.push_back(number_of(graph, value.scalar, value.value));
  return launch;
}

}  // namespace millrace
