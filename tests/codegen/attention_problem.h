// An attention for tests: a graph with its tensors and dropout, the partition, and layouts that differ from how tensors
// are written.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "ir/layout.h"

namespace millrace {

struct AttentionProblem {
  // How operands lie, outermost first.
  enum class Lying {
    batch_rows_columns,
    rows_batch_columns,
    reversed_batch_rows_columns,
    columns_batch_rows,  // as they are written
    batch_columns_rows
  };
  enum class MaskOrder { keys_last, queries_last, batch_last };

  DType dtype = DType::float16;
  bool backward = false;
  bool causal = false;
  double rate = 0;  // 0: no dropout
  std::vector<int64_t> batch = {2, 3};
  int64_t queries = 40;
  int64_t keys = 40;
  int64_t inner = 32;
  int64_t values = 32;
  Lying lying = Lying::batch_rows_columns;      // q, k and v
  Lying results = Lying::batch_rows_columns;    // o and d_o
  Lying gradients = Lying::batch_rows_columns;  // d_q, d_k and d_v

  void set_lying(Lying all) { lying = results = gradients = all; }
  MaskOrder mask_order = MaskOrder::keys_last;
  bool mask_bits = false;  // forward leaves them for backward
  std::vector<double> scales = {0.125};
};

struct MadeAttention {
  Graph graph;
  Partition partition;
  std::vector<Layout> layouts;
};

class AttentionMaker {
 public:
  explicit AttentionMaker(const AttentionProblem& problem) : problem_(problem) {}

  MadeAttention run() {
    Attention& attention = made_.partition.attention;
    made_.partition.kind = PartitionKind::attention;
    made_.partition.name = "attention";
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
    using Of = Attention::Operand;
    const bool back = problem_.backward;
    add(Of::q, "q", queries_, inner_, false);
    add(Of::k, "k", keys_, inner_, false);
    add(Of::v, "v", keys_, values_, false);
    add(Of::o, "o", queries_, values_, !back);
    add_log_sums(!back);
    if (back) {
      add(Of::d_o, "d_o", queries_, values_, false);
      add(Of::d_q, "d_q", queries_, inner_, true);
      add(Of::d_k, "d_k", keys_, inner_, true);
      add(Of::d_v, "d_v", keys_, values_, true);
    }
    if (problem_.rate > 0) add_mask();
    for (const double scale : problem_.scales) {
      Tensor constant;
      constant.name = "scale";
      constant.role = TensorRole::constant;
      constant.value = scale;
      attention.scales.push_back(put(std::move(constant)));
    }
    made_.layouts = reads_;
    made_.layouts.insert(made_.layouts.end(), writes_.begin(), writes_.end());
    return std::move(made_);
  }

 private:
  DimId dim(const std::string& name, int64_t extent) {
    made_.graph.dims.push_back({name, extent});
    return DimId(made_.graph.dims.size() - 1);
  }
  TensorId put(Tensor tensor) {
    made_.graph.tensors.push_back(std::move(tensor));
    return TensorId(made_.graph.tensors.size() - 1);
  }
  TensorId tensor(const std::string& name, std::vector<DimId> dims, DType dtype) {
    Tensor made;
    made.name = name;
    made.dims = std::move(dims);
    made.dtype = dtype;
    return put(std::move(made));
  }
  void place(TensorId tensor, Layout layout, bool written) {
    (written ? made_.partition.writes : made_.partition.reads).push_back(tensor);
    (written ? writes_ : reads_).push_back(std::move(layout));
  }

  Layout layout_of(const Attention::Axes& axes, AttentionProblem::Lying lying) const {
    using Lying = AttentionProblem::Lying;
    const int row = axes.row();
    Layout layout;
    layout.order = axes.batch;
    if (lying == Lying::reversed_batch_rows_columns) std::reverse(layout.order.begin(), layout.order.end());
    const bool rows_last = lying == Lying::columns_batch_rows || lying == Lying::batch_columns_rows;
    const bool other_first = lying == Lying::rows_batch_columns || lying == Lying::columns_batch_rows;
    layout.order.insert(other_first ? layout.order.begin() : layout.order.end(), rows_last ? axes.column : row);
    layout.order.push_back(rows_last ? row : axes.column);
    return layout;
  }
  AttentionProblem::Lying lying_of(Attention::Operand operand) const {
    if (operand >= Attention::d_q) return problem_.gradients;
    return operand == Attention::o || operand == Attention::d_o ? problem_.results : problem_.lying;
  }

  // Written as column, batch, row.
  void add(Attention::Operand operand, const std::string& name, DimId row, DimId column, bool written) {
    std::vector<DimId> dims = {column};
    dims.insert(dims.end(), batch_.begin(), batch_.end());
    dims.push_back(row);
    const int rank = static_cast<int>(dims.size());
    Attention::Axes axes;
    axes.column = 0;
    (row == queries_ ? axes.query : axes.key) = rank - 1;
    for (int axis = 1; axis + 1 < rank; ++axis) axes.batch.push_back(axis);
    const TensorId made = tensor(name, dims, problem_.dtype);
    made_.partition.attention.tensors[operand] = made;
    made_.partition.attention.axes[operand] = axes;
    place(made, layout_of(axes, lying_of(operand)), written);
  }

  void add_log_sums(bool written) {
    std::vector<DimId> dims = {queries_};
    dims.insert(dims.end(), batch_.begin(), batch_.end());
    Attention::Axes axes;
    axes.query = 0;
    for (size_t axis = 1; axis < dims.size(); ++axis) axes.batch.push_back(static_cast<int>(axis));
    const TensorId made = tensor("log_sums", dims, DType::float32);
    made_.partition.attention.tensors[Attention::log_sums] = made;
    made_.partition.attention.axes[Attention::log_sums] = axes;
    place(made, written_layout(made_.graph, made), written);
  }

  void add_mask() {
    std::vector<DimId> dims;
    Attention::Axes axes;
    const auto put_batch = [&] {
      for (const DimId of : batch_) {
        axes.batch.push_back(static_cast<int>(dims.size()));
        dims.push_back(of);
      }
    };
    const auto put_one = [&](int& axis, DimId of) {
      axis = static_cast<int>(dims.size());
      dims.push_back(of);
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
    made_.graph.operators.push_back(std::move(dropout));
    made_.partition.attention.mask = mask;
    made_.partition.attention.mask_axes = axes;
    Layout layout = written_layout(made_.graph, mask);
    layout.storage = problem_.mask_bits ? MaskStorage::bits : MaskStorage::regenerated;
    place(mask, std::move(layout), !problem_.backward);
  }

  const AttentionProblem& problem_;
  MadeAttention made_;
  std::vector<DimId> batch_;
  DimId queries_, keys_, inner_, values_;
  std::vector<Layout> reads_;
  std::vector<Layout> writes_;
};

inline MadeAttention made_attention(const AttentionProblem& problem) { return AttentionMaker(problem).run(); }

}  // namespace millrace
