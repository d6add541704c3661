#include "codegen/cuda/attention_mask.h"

#include <algorithm>
#include <cmath>

#include "base/position.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr int64_t kPhiloxBlock = 8;  // neighbours of a mask in one Philox block
constexpr int64_t kUnsignedRange = int64_t{1} << 32;

// Elements between neighbours along an axis; 0 without the axis.
int64_t stride_or_zero(const std::vector<int64_t>& strides, int axis) { return axis < 0 ? 0 : strides[as_index(axis)]; }

}  // namespace

void AttentionMaskText::add_values(KernelText& kernel) const {
  const Operator& dropout = *dropout_of(graph_, attention_.mask);
  const double rounded = std::min(std::floor(dropout.value * 65536 + 0.5), 65535.0);
  kernel.values.push_back({TensorId(), rounded * 65536});
  kernel.values.push_back({TensorId(), 1.0 / (1.0 - dropout.value)});
  kernel.subsequences.push_back(dropout.subsequence);
}

bool AttentionMaskText::has_few_blocks() const {
  return elements_of(graph_, attention_.mask) / kPhiloxBlock + 65536 < kUnsignedRange;
}

// Mask elements are numbered in the order in which the program writes the tensor.
std::vector<int64_t> AttentionMaskText::strides() const {
  return strides_of(graph_, attention_.mask, written_layout(graph_, attention_.mask));
}

// The mask's position among the partition's tensors.
size_t AttentionMaskText::position() const { return position_in(tensors_of(partition_), attention_.mask); }

// Whether forward stores the mask for backward, as bits.
bool AttentionMaskText::stores_bits() const {
  return position() < layouts_.size() && layouts_[position()].storage == MaskStorage::bits;
}

// Whether the elements of every Philox block are keys of one query.
bool AttentionMaskText::blocks_are_keys() const {
  const std::vector<int64_t> all = strides();
  const Attention::Axes& axes = attention_.mask_axes;
  if (stride_or_zero(all, axes.key) != 1 || attention_.keys % kPhiloxBlock != 0) return false;
  const auto aligned = [&](int axis) { return stride_or_zero(all, axis) % kPhiloxBlock == 0; };
  return (attention_.queries == 1 || aligned(axes.query)) &&
         std::all_of(axes.batch.begin(), axes.batch.end(), [&](int axis) {
           return axis < 0 || aligned(axis) || graph_.extent(graph_.tensor(attention_.mask).dims[as_index(axis)]) == 1;
         });
}

std::string AttentionMaskText::constants() const {
  const auto constant = [](const char* type, const char* name, int64_t value) {
    return concat("  static constexpr ", type, " ", name, " = ", value, ";\n");
  };
  const std::vector<int64_t> all = strides();
  return concat(constant("bool", "kMaskInBlocks", blocks_are_keys() ? 1 : 0),
                constant("bool", "kMaskBits", stores_bits() ? 1 : 0),
                constant("mr::u64", "kMaskQuery", stride_or_zero(all, attention_.mask_axes.query)),
                constant("mr::u64", "kMaskKey", stride_or_zero(all, attention_.mask_axes.key)));
}

std::string AttentionMaskText::initializer(const ScoreFormulas::HeadOffset& offset_of) const {
  if (!attention_.mask.valid()) return "const mr::NoDropout mask;";
  const size_t threshold = attention_.scales.size();  // the position of the first of add_values
  const std::vector<int64_t> all = strides();
  const std::string offset = offset_of(attention_.mask_axes, [&](size_t k) {
    return std::to_string(stride_or_zero(all, attention_.mask_axes.batch[k]));
  });
  return concat("const mr::DropoutMask<S> mask{mr::Dropout(args.state, args.subsequences[0], args.values[", threshold,
                "], args.values[", threshold + 1, "]), mr::u64(", offset, "), ",
                stores_bits() ? concat("static_cast<mr::u8*>(args.tensors[", position(), "])") : "nullptr", "};");
}

}  // namespace millrace
