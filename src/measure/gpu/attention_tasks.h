// Tasks of the oracle over the indices of a fused attention: its operands, temporaries, and the heads that are computed
// together. gpu_attention.cpp says which tasks. Test: tests/measure/gpu_reference_test.cpp
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "measure/gpu/gpu_reference.h"
#include "measure/gpu/gpu_values.h"

namespace millrace {

// An operand of a task: how it is stored, and how it moves along the attention's indices.
struct Placed {
  OracleTensor tensor;  // owns no memory
  Walk walk;
};

inline Placed one_number(double value, size_t indices) {
  return {OracleTensor::of_number(value), {std::vector<int64_t>(indices, 0), 0}};
}

class AttentionTasks {
 public:
  AttentionTasks(const OracleContext& context, const Graph& graph, const Partition& partition, GpuReferenceData& data);

 protected:
  using Indices = std::vector<size_t>;
  using Change = std::function<void(oracle::Task&)>;

  // Whether the heads along a batch index share a gradient: that of their keys, or of a term of the scores.
  bool is_summed(size_t index) const { return attention_.is_group(index) || lacks_term(index); }
  bool lacks_term(size_t index) const { return attention_.d_term.valid() && attention_.d_term_axes.batch[index] < 0; }
  // All heads of a group together, since the gradients of their keys are one sum; and as many other trailing batch
  // indices as fit.
  void choose_chunk();
  // The batch indices of the chunk and these indices. Tensors that run along keys and not along queries lack the
  // indices of groups.
  Indices with_batch(const Indices& indices) const;
  // The queries of all heads of a group.
  Indices queries_of_group() const;
  Walk walk_of(TensorId tensor, const AttentionAxes& axes, size_t row, size_t column, int row_axis,
               int column_axis) const;
  Walk walk_of(Attention::Operand operand) const;
  static Placed placed(const GpuMemory& values, Walk walk);
  Placed input(Attention::Operand operand) const;
  // A temporary along the chunk and these indices.
  Result<Placed> temporary(oracle::Format format, const Indices& indices);
  Result<Done> task(TaskKind kind, int formula, const Indices& outer, const Indices& inner,
                    const std::vector<const Placed*>& inputs, const std::vector<const Placed*>& outputs,
                    const Change& change = {}) const;
  // The same over these indices alone.
  Result<Done> task_over(TaskKind kind, int formula, const Indices& outer, const Indices& inner,
                         const std::vector<const Placed*>& inputs, const std::vector<const Placed*>& outputs,
                         const Change& change) const;
  Result<Done> map(int formula, const Indices& indices, const std::vector<const Placed*>& inputs, const Placed& output,
                   const Change& change = {}) const;
  Result<Done> fold(oracle::Term term, const Indices& indices, size_t over, const std::vector<const Placed*>& inputs,
                    const Placed& output) const;
  Result<Done> contract(const Indices& indices, const Indices& over, const Placed& a, const Placed& b,
                        const Placed& output) const;
  // c0 · a + c1 · |b| + c2
  Result<Done> linear(const Indices& indices, const Placed& a, double c0, const Placed& b, double c1, double c2,
                      const Placed& output) const;
  // Runs all of them until one fails.
  static Result<Done> in_order(const std::vector<std::function<Result<Done>()>>& steps);
  Placed term_values(const AttentionTensor& term) const;
  // The operand at the looped batch indices' point.
  Placed at_point(Placed operand) const;

  const OracleContext& context_;
  const Graph& graph_;
  const Partition& partition_;
  const Attention& attention_;
  GpuReferenceData& data_;
  std::vector<int64_t> extents_;  // of the batch indices, the queries, keys, inner index and values
  size_t query_ = 0;
  size_t key_ = 0;
  size_t inner_ = 0;
  size_t value_ = 0;
  Indices chunk_;               // the batch indices that are processed together
  Indices looped_;              // the others
  std::vector<int64_t> point_;  // of looped_
  std::vector<GpuMemory> temporaries_;
};

}  // namespace millrace
