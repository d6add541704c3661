// What cuDNN can compute of an attention. It has one index of batches and one of heads, so ours are merged into these.
#include <algorithm>
#include <bit>
#include <set>

#include "base/text.h"
#include "candidates/candidates.h"

namespace millrace {
namespace {

using Operand = Attention::Operand;

constexpr size_t kMostIndices = 8;  // of a batch that are tried in every combination

class CudnnAxesFinder {
 public:
  CudnnAxesFinder(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts)
      : graph_(graph), partition_(partition), attention_(partition.attention), layouts_(layouts) {}

  std::optional<CudnnAxes> run() {
    for (size_t operand = 0; operand < Attention::kOperands; ++operand) {
      if (!attention_.tensors[operand].valid()) continue;
      operands_.push_back(static_cast<Operand>(operand));
      strides_[operand] = strides_of_operand(static_cast<Operand>(operand));
      if (operand != Operand::log_sums && column_stride(static_cast<Operand>(operand)) != 1) return std::nullopt;
    }
    std::vector<size_t> alone;
    for (size_t k = 0; k < attention_.batch.size(); ++k) {
      if (attention_.batch[k] > 1) (attention_.is_group(k) ? members_ : alone).push_back(k);
    }
    for (std::vector<size_t>* const indices : {&alone, &members_}) sort_by_stride(*indices);
    return alone.size() > kMostIndices ? std::nullopt : split(alone);
  }

 private:
  std::vector<int64_t> strides_of_operand(Operand operand) const {
    return strides_of(graph_, attention_.tensors[operand], layouts_[position_of(partition_, operand)]);
  }

  // Along an axis; 0 without the axis.
  int64_t stride(Operand operand, int axis) const { return axis < 0 ? 0 : strides_[operand][as_index(axis)]; }
  int64_t column_stride(Operand operand) const { return stride(operand, attention_.axes[operand].column); }
  int64_t batch_stride(Operand operand, size_t index) const {
    return stride(operand, attention_.axes[operand].batch[index]);
  }
  bool has_group(Operand operand) const { return attention_.axes[operand].query >= 0; }

  // The indices as q stores them, outermost first: no other order can be merged.
  void sort_by_stride(std::vector<size_t>& indices) const {
    std::sort(indices.begin(), indices.end(),
              [&](size_t l, size_t r) { return batch_stride(Operand::q, l) > batch_stride(Operand::q, r); });
  }

  bool can_merge(Operand operand, const std::vector<size_t>& indices) const {
    for (size_t k = 1; k < indices.size(); ++k) {
      const int64_t inner = batch_stride(operand, indices[k]);
      if (batch_stride(operand, indices[k - 1]) != attention_.batch[indices[k]] * inner) return false;
    }
    return true;
  }

  // The indices of an operand's heads: those of the keys' heads, then those within a group.
  std::vector<size_t> heads_of(Operand operand, const std::vector<size_t>& key_heads) const {
    std::vector<size_t> heads = key_heads;
    if (has_group(operand)) heads.insert(heads.end(), members_.begin(), members_.end());
    return heads;
  }

  int64_t extent(const std::vector<size_t>& indices) const {
    int64_t count = 1;
    for (const size_t index : indices) count *= attention_.batch[index];
    return count;
  }

  // The stride along merged indices; if there are none, a stride that is never used.
  int64_t merged_stride(Operand operand, const std::vector<size_t>& indices) const {
    return indices.empty() ? elements_of(graph_, attention_.tensors[operand]) : batch_stride(operand, indices.back());
  }

  std::optional<CudnnAxes> merged(const std::vector<size_t>& batches, const std::vector<size_t>& key_heads) const {
    CudnnAxes made{extent(batches), extent(key_heads) * extent(members_), extent(key_heads), {}};
    for (const Operand operand : operands_) {
      const std::vector<size_t> heads = heads_of(operand, key_heads);
      if (!can_merge(operand, batches) || !can_merge(operand, heads)) return std::nullopt;
      const int64_t column = operand == Operand::log_sums ? 1 : column_stride(operand);
      made.strides[operand] = {merged_stride(operand, batches), merged_stride(operand, heads),
                               stride(operand, attention_.axes[operand].row()), column};
    }
    return made;
  }

  // Which of the indices are heads: one, if possible the innermost; else more; else none.
  std::optional<CudnnAxes> split(const std::vector<size_t>& indices) const {
    const size_t count = indices.size();
    for (size_t step = 1; step <= count + 1; ++step) {
      const auto wanted = static_cast<int>(step % (count + 1));
      for (uint32_t chosen = 0; chosen < uint32_t{1} << count; ++chosen) {
        if (std::popcount(chosen) != wanted) continue;
        std::vector<size_t> batches;
        std::vector<size_t> heads;
        for (size_t k = 0; k < count; ++k)
          ((chosen >> (count - 1 - k) & 1U) != 0 ? heads : batches).push_back(indices[k]);
        if (std::optional<CudnnAxes> found = merged(batches, heads)) return found;
      }
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const Partition& partition_;
  const Attention& attention_;
  const std::vector<Layout>& layouts_;
  std::vector<Operand> operands_;
  std::array<std::vector<int64_t>, Attention::kOperands> strides_;
  std::vector<size_t> members_;  // batch indices within a group of heads
};

}  // namespace

std::optional<CudnnAxes> cudnn_axes(const Graph& graph, const Partition& partition,
                                    const std::vector<Layout>& layouts) {
  return CudnnAxesFinder(graph, partition, layouts).run();
}

// Lists the features that are known to be the same in cuDNN. An attention with any other feature is rejected.
std::optional<std::string> why_not_by_cudnn(const Graph& graph, const Partition& partition) {
  const Attention& attention = partition.attention;
  if (attention.has_row_expressions()) return "cuDNN: an attention that computes rows of its queries or keys";
  for (const OperatorId id : attention.backward ? partition.repeats : partition.operators) {
    const OperatorKind kind = graph.operators[id.at()].kind;
    switch (kind) {
      case OperatorKind::contraction:
      case OperatorKind::causal_mask:
      case OperatorKind::softmax:
      case OperatorKind::log_sum_exp: break;
      default: return concat("cuDNN: an attention with ", info_of(kind).name);
    }
  }
  const std::vector<TensorId> tensors = tensors_of(partition);
  std::set<TensorId> operands;
  for (const TensorId tensor : attention.tensors) {
    if (tensor.valid()) operands.insert(tensor);
  }
  if (operands.size() != (attention.backward ? Attention::kOperands : size_t{Operand::log_sums} + 1))
    return "cuDNN: an attention that lacks an operand, or has one twice";
  if (operands != std::set<TensorId>(tensors.begin(), tensors.end())) return "cuDNN: an attention with another operand";
  return std::nullopt;
}

}  // namespace millrace
