// The rows of an attention's operand that are computed from tensors in memory, or stored after a computation, as a
// struct of prelude/cpu_attention_rows.h. Test: tests/codegen/cpu_attention_test.cpp
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

class CpuRowFormulas {
 public:
  // `layouts`: one for each tensor of the partition.
  CpuRowFormulas(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                 Attention::Operand operand)
      : graph_(graph),
        partition_(partition),
        rows_(partition.attention.rows[operand]),
        layouts_(layouts),
        operand_(operand) {}

  bool empty() const { return rows_.empty(); }
  // Adds the numbers and strides that the kernel takes.
  void add_values(std::vector<KernelValue>& values);
  // The definition of the struct `name`.
  std::string definition(const std::string& name) const;
  // Its members for one head, except the matrix that it stores. head_offset(axes, first): the text of the head's offset
  // in a tensor with these axes, whose strides along the batch indices are the kernel's values from `first` on.
  using HeadOffset = std::function<std::string(const Attention::Axes& axes, size_t first)>;
  std::string members(const HeadOffset& head_offset) const;

 private:
  bool is_stored() const { return partition_.attention.writes(operand_); }
  std::string element_type(size_t term) const;
  size_t position_of(TensorId tensor) const;
  std::vector<int64_t> strides_of_term(size_t term) const;
  std::string value_text(const RowPiece& piece, size_t piece_number, size_t node) const;
  std::string piece_text(size_t number) const;

  const Graph& graph_;
  const Partition& partition_;
  const RowExpression& rows_;
  const std::vector<Layout>& layouts_;
  Attention::Operand operand_;
  // Positions among the kernel's values.
  std::vector<size_t> strides_;             // per term: of its rows, then of the batch indices
  std::vector<std::vector<size_t>> nodes_;  // per piece and node: its number, or the offset and the step of an element
};

}  // namespace millrace
