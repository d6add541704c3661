// An attention for tests: a graph with its tensors and dropout, the partition, and layouts that differ from the order
// in which tensors are written. Used by tests/codegen/attention_kernel_test.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "ir/layout.h"

namespace millrace {

struct AttentionProblem {
  // Order of an operand's axes in memory, outermost first.
  enum class AxisOrder {
    batch_rows_columns,
    rows_batch_columns,
    reversed_batch_rows_columns,
    columns_batch_rows,  // as written
    batch_columns_rows
  };
  enum class MaskOrder { keys_last, queries_last, batch_last };

  DType dtype = DType::float16;
  bool backward = false;
  bool causal = false;
  double rate = 0;  // 0: no dropout
  std::vector<int64_t> batch = {2, 3};
  std::vector<size_t> groups;  // the batch indices that keys and values lack
  int64_t queries = 40;
  int64_t keys = 40;
  int64_t inner = 32;
  int64_t values = 32;
  AxisOrder inputs = AxisOrder::batch_rows_columns;     // q, k and v
  AxisOrder results = AxisOrder::batch_rows_columns;    // o and d_o
  AxisOrder gradients = AxisOrder::batch_rows_columns;  // d_q, d_k and d_v

  void set_order(AxisOrder all) { inputs = results = gradients = all; }
  bool is_group(size_t batch_index) const {
    return std::find(groups.begin(), groups.end(), batch_index) != groups.end();
  }
  MaskOrder mask_order = MaskOrder::keys_last;
  bool mask_bits = false;  // forward stores them for backward
  std::vector<double> scales = {0.125};
};

struct BuiltAttention {
  Graph graph;
  Partition partition;
  std::vector<Layout> layouts;
};

class AttentionBuilder {
 public:
  explicit AttentionBuilder(const AttentionProblem& problem) : problem_(problem) {}

  BuiltAttention run() {
    Attention& attention = built_.partition.attention;
    built_.partition.kind = PartitionKind::attention;
    built_.partition.name = "attention";
    attention.backward = problem_.backward;
    attention.causal = problem_.causal;
    attention.batch = problem_.batch;
    attention.queries = problem_.queries;
    attention.keys = problem_.keys;
    attention.inner = problem_.inner;
    attention.values = problem_.values;
    for (const int64_t extent : problem_.batch) batch_.push_back(dim("b", extent));
    queries_ = dim("Q", problem_.queries);
    keys_ = dim("K", problem_.keys);
    inner_ = dim("P", problem_.inner);
    values_ = dim("W", problem_.values);
    using Operand = Attention::Operand;
    const bool back = problem_.backward;
    add(Operand::q, "q", queries_, inner_, false);
    add(Operand::k, "k", keys_, inner_, false);
    add(Operand::v, "v", keys_, values_, false);
    add(Operand::o, "o", queries_, values_, !back);
    add_log_sums(!back);
    if (back) {
      add(Operand::d_o, "d_o", queries_, values_, false);
      add(Operand::d_q, "d_q", queries_, inner_, true);
      add(Operand::d_k, "d_k", keys_, inner_, true);
      add(Operand::d_v, "d_v", keys_, values_, true);
    }
    if (problem_.rate > 0) add_mask();
    for (const double scale : problem_.scales) {
      Tensor constant;
      constant.name = "scale";
      constant.role = TensorRole::constant;
      constant.value = scale;
      attention.scales.push_back(put(std::move(constant)));
    }
    built_.layouts = reads_;
    built_.layouts.insert(built_.layouts.end(), writes_.begin(), writes_.end());
    return std::move(built_);
  }

 private:
  DimId dim(const std::string& name, int64_t extent) {
    built_.graph.dims.push_back({name, extent});
    return DimId(built_.graph.dims.size() - 1);
  }
  TensorId put(Tensor tensor) {
    built_.graph.tensors.push_back(std::move(tensor));
    return TensorId(built_.graph.tensors.size() - 1);
  }
  TensorId tensor(const std::string& name, std::vector<DimId> dims, DType dtype) {
    Tensor made;
    made.name = name;
    made.dims = std::move(dims);
    made.dtype = dtype;
    return put(std::move(made));
  }
  void place(TensorId tensor, Layout layout, bool written) {
    (written ? built_.partition.writes : built_.partition.reads).push_back(tensor);
    (written ? writes_ : reads_).push_back(std::move(layout));
  }

  Layout layout_of(const Attention::Axes& axes, AttentionProblem::AxisOrder order) const {
    using AxisOrder = AttentionProblem::AxisOrder;
    const int row = axes.row();
    Layout layout;
    layout.order = axes.batch;
    std::erase(layout.order, -1);
    if (order == AxisOrder::reversed_batch_rows_columns) std::reverse(layout.order.begin(), layout.order.end());
    const bool rows_last = order == AxisOrder::columns_batch_rows || order == AxisOrder::batch_columns_rows;
    const bool other_first = order == AxisOrder::rows_batch_columns || order == AxisOrder::columns_batch_rows;
    layout.order.insert(other_first ? layout.order.begin() : layout.order.end(), rows_last ? axes.column : row);
    layout.order.push_back(rows_last ? row : axes.column);
    return layout;
  }
  AttentionProblem::AxisOrder order_of(Attention::Operand operand) const {
    if (operand >= Attention::d_q) return problem_.gradients;
    return operand == Attention::o || operand == Attention::d_o ? problem_.results : problem_.inputs;
  }

  // Axes are written as column, batch, row.
  void add(Attention::Operand operand, const std::string& name, DimId row, DimId column, bool written) {
    std::vector<DimId> dims = {column};
    Attention::Axes axes;
    axes.column = 0;
    for (size_t k = 0; k < batch_.size(); ++k) {
      const bool lacks = row == keys_ && problem_.is_group(k);
      axes.batch.push_back(lacks ? -1 : static_cast<int>(dims.size()));
      if (!lacks) dims.push_back(batch_[k]);
    }
    (row == queries_ ? axes.query : axes.key) = static_cast<int>(dims.size());
    dims.push_back(row);
    const TensorId made = tensor(name, dims, problem_.dtype);
    built_.partition.attention.tensors[operand] = made;
    built_.partition.attention.axes[operand] = axes;
    place(made, layout_of(axes, order_of(operand)), written);
  }

  void add_log_sums(bool written) {
    std::vector<DimId> dims = {queries_};
    dims.insert(dims.end(), batch_.begin(), batch_.end());
    Attention::Axes axes;
    axes.query = 0;
    for (size_t axis = 1; axis < dims.size(); ++axis) axes.batch.push_back(static_cast<int>(axis));
    const TensorId made = tensor("log_sums", dims, DType::float32);
    built_.partition.attention.tensors[Attention::log_sums] = made;
    built_.partition.attention.axes[Attention::log_sums] = axes;
    place(made, written_layout(built_.graph, made), written);
  }

  void add_mask() {
    std::vector<DimId> dims;
    Attention::Axes axes;
    const auto put_batch = [&] {
      for (const DimId dim : batch_) {
        axes.batch.push_back(static_cast<int>(dims.size()));
        dims.push_back(dim);
      }
    };
    const auto put_one = [&](int& axis, DimId dim) {
      axis = static_cast<int>(dims.size());
      dims.push_back(dim);
    };
    if (problem_.mask_order != AttentionProblem::MaskOrder::batch_last) put_batch();
    if (problem_.mask_order == AttentionProblem::MaskOrder::queries_last) {
      put_one(axes.key, keys_);
      put_one(axes.query, queries_);
    } else {
      put_one(axes.query, queries_);
      put_one(axes.key, keys_);
    }
    if (problem_.mask_order == AttentionProblem::MaskOrder::batch_last) put_batch();
    const TensorId dropped = tensor("dropped", dims, problem_.dtype);
    const TensorId mask = tensor("mask", dims, DType::boolean);
    Operator dropout;
    dropout.name = "dropout";
    dropout.kind = OperatorKind::dropout;
    dropout.space = dims;
    dropout.reduced.assign(dims.size(), false);
    dropout.outputs = {{dropped, in_order(dims.size())}, {mask, in_order(dims.size())}};
    dropout.value = problem_.rate;
    dropout.subsequence = 5;
    built_.graph.operators.push_back(std::move(dropout));
    built_.partition.attention.mask = mask;
    built_.partition.attention.mask_axes = axes;
    Layout layout = written_layout(built_.graph, mask);
    layout.storage = problem_.mask_bits ? MaskStorage::bits : MaskStorage::regenerated;
    place(mask, std::move(layout), !problem_.backward);
  }

  const AttentionProblem& problem_;
  BuiltAttention built_;
  std::vector<DimId> batch_;
  DimId queries_, keys_, inner_, values_;
  std::vector<Layout> reads_;
  std::vector<Layout> writes_;
};

inline BuiltAttention build_attention(const AttentionProblem& problem) { return AttentionBuilder(problem).run(); }

}  // namespace millrace
