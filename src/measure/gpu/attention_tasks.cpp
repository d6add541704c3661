#include "measure/gpu/attention_tasks.h"

#include "base/position.h"

namespace millrace {

using oracle::Task;

AttentionTasks::AttentionTasks(const OracleContext& context, const Graph& graph, const Partition& partition,
                               GpuReferenceData& data)
    : context_(context),
      graph_(graph),
      partition_(partition),
      attention_(partition.attention),
      data_(data),
      extents_(attention_.batch) {
  query_ = extents_.size();
  key_ = query_ + 1;
  inner_ = query_ + 2;
  value_ = query_ + 3;
  extents_.insert(extents_.end(), {attention_.queries, attention_.keys, attention_.inner, attention_.values});
}

void AttentionTasks::choose_chunk() {
  constexpr int64_t kShareOfMemory = 16;
  constexpr int64_t kBytesPerScore = 2 * sizeof(double) + 2 * kBytesOfNumber;
  const int64_t most = std::max<int64_t>(context_.gpu.info().memory_bytes / kShareOfMemory, 1);
  const int64_t bytes = kBytesPerScore + std::ssize(attention_.score.nodes) * kBytesOfNumber;
  int64_t points = attention_.queries * attention_.keys;
  for (size_t k = 0; k < attention_.batch.size(); ++k) points *= is_summed(k) ? attention_.batch[k] : 1;
  for (size_t k = attention_.batch.size(); k-- > 0;) {
    const bool is_group = is_summed(k);
    const bool fits = looped_.empty() && points * attention_.batch[k] * bytes <= most;
    if (!is_group && fits) points *= attention_.batch[k];
    (is_group || fits ? chunk_ : looped_).push_back(k);
  }
  std::sort(chunk_.begin(), chunk_.end());
  std::sort(looped_.begin(), looped_.end());
}

AttentionTasks::Indices AttentionTasks::with_batch(const Indices& indices) const {
  const auto has = [&](size_t index) { return std::find(indices.begin(), indices.end(), index) != indices.end(); };
  const bool of_keys = has(key_) && !has(query_);
  Indices all;
  for (const size_t k : chunk_) {
    if (!of_keys || !attention_.is_group(k)) all.push_back(k);
  }
  all.insert(all.end(), indices.begin(), indices.end());
  return all;
}

AttentionTasks::Indices AttentionTasks::queries_of_group() const {
  Indices all;
  for (size_t k = 0; k < attention_.batch.size(); ++k) {
    if (attention_.is_group(k)) all.push_back(k);
  }
  all.push_back(query_);
  return all;
}

Walk AttentionTasks::walk_of(TensorId tensor, const AttentionAxes& axes, size_t row, size_t column, int row_axis,
                             int column_axis) const {
  const std::vector<int64_t> strides = strides_of(graph_, tensor, written_layout(graph_, tensor));
  Walk walk{std::vector<int64_t>(extents_.size(), 0), 0};
  const auto set = [&](size_t index, int axis) {
    if (axis >= 0) walk.strides[index] = strides[as_index(axis)];
  };
  for (size_t k = 0; k < axes.batch.size(); ++k) set(k, axes.batch[k]);
  set(row, row_axis);
  set(column, column_axis);
  return walk;
}

Walk AttentionTasks::walk_of(Attention::Operand operand) const {
  const AttentionAxes& axes = attention_.axes[operand];
  const bool inner =
      operand == Attention::q || operand == Attention::k || operand == Attention::d_q || operand == Attention::d_k;
  return walk_of(attention_.tensors[operand], axes, axes.query >= 0 ? query_ : key_, inner ? inner_ : value_,
                 axes.row(), axes.column);
}

Placed AttentionTasks::placed(const GpuMemory& values, Walk walk) {
  return {OracleTensor::of_values(static_cast<double*>(values.data())), std::move(walk)};
}

Placed AttentionTasks::input(Attention::Operand operand) const {
  return placed(data_.inputs[position_in(partition_.reads, attention_.tensors[operand])], walk_of(operand));
}

Result<Placed> AttentionTasks::temporary(oracle::Format format, const Indices& indices) {
  const Indices all = with_batch(indices);
  const int64_t bytes = format == oracle::kBounded ? kBytesOfNumber : static_cast<int64_t>(sizeof(double));
  Result<GpuMemory> made = context_.memory(points_of(extents_, all) * bytes);
  if (!made) return made.error();
  temporaries_.push_back(std::move(*made));
  Placed placed_there = placed(temporaries_.back(), row_major(extents_, all));
  placed_there.tensor.format = format;
  return placed_there;
}

Result<Done> AttentionTasks::task(TaskKind kind, int formula, const Indices& outer, const Indices& inner,
                                  const std::vector<const Placed*>& inputs, const std::vector<const Placed*>& outputs,
                                  const Change& change) const {
  return task_over(kind, formula, with_batch(outer), inner, inputs, outputs, change);
}

Result<Done> AttentionTasks::task_over(TaskKind kind, int formula, const Indices& outer, const Indices& inner,
                                       const std::vector<const Placed*>& inputs,
                                       const std::vector<const Placed*>& outputs, const Change& change) const {
  std::vector<Walk> read;
  std::vector<Walk> written;
  for (const Placed* each : inputs) read.push_back(each->walk);
  for (const Placed* each : outputs) written.push_back(each->walk);
  Task made = make_task(formula, extents_, outer, inner, read, written);
  for (size_t k = 0; k < inputs.size(); ++k) place_tensor(inputs[k]->tensor, made.in[k]);
  for (size_t k = 0; k < outputs.size(); ++k) place_tensor(outputs[k]->tensor, made.out[k]);
  if (change) change(made);
  return context_.oracle.run(kind, made, context_.memory);
}

Result<Done> AttentionTasks::map(int formula, const Indices& indices, const std::vector<const Placed*>& inputs,
                                 const Placed& output, const Change& change) const {
  return task(TaskKind::map, formula, indices, {}, inputs, {&output}, change);
}

Result<Done> AttentionTasks::fold(oracle::Term term, const Indices& indices, size_t over,
                                  const std::vector<const Placed*>& inputs, const Placed& output) const {
  return task(TaskKind::fold, term, indices, {over}, inputs, {&output});
}

Result<Done> AttentionTasks::contract(const Indices& indices, const Indices& over, const Placed& a, const Placed& b,
                                      const Placed& output) const {
  return task(TaskKind::contract, oracle::kProduct, indices, over, {&a, &b}, {&output});
}

Result<Done> AttentionTasks::linear(const Indices& indices, const Placed& a, double c0, const Placed& b, double c1,
                                    double c2, const Placed& output) const {
  return map(oracle::kLinear, indices, {&a, &b}, output, [&](Task& made) {
    made.numbers[0] = c0;
    made.numbers[1] = c1;
    made.numbers[2] = c2;
  });
}

Result<Done> AttentionTasks::in_order(const std::vector<std::function<Result<Done>()>>& steps) {
  for (const auto& step : steps) {
    if (Result<Done> done = step(); !done) return done;
  }
  return Done{};
}

Placed AttentionTasks::term_values(const AttentionTensor& term) const {
  const GpuMemory& values = data_.inputs[position_in(partition_.reads, term.tensor)];
  return placed(values, walk_of(term.tensor, term.axes, query_, key_, term.axes.query, term.axes.key));
}

Placed AttentionTasks::at_point(Placed operand) const {
  for (size_t k = 0; k < point_.size(); ++k) operand.walk.first += operand.walk.strides[looped_[k]] * point_[k];
  return operand;
}

}  // namespace millrace
