// The formulas of an attention's scores as the struct X of prelude/cpu_attention_scores.h.
// Test: tests/codegen/cpu_attention_test.cpp
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

class CpuScoreFormulas {
 public:
  // `layouts`: one for each tensor of the partition.
  CpuScoreFormulas(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts)
      : graph_(graph), partition_(partition), score_(partition.attention.score), layouts_(layouts) {}

  // Adds the numbers and strides that the kernel takes.
  void add_values(std::vector<KernelValue>& values);
  // The definition of the struct `name`.
  std::string definition(const std::string& name) const;
  // Its members for one head. head_offset(axes, first): the text of the head's offset in a tensor with these axes,
  // whose strides along the batch indices are the kernel's values from `first` on.
  using HeadOffset = std::function<std::string(const Attention::Axes& axes, size_t first)>;
  std::string members(const HeadOffset& head_offset) const;

 private:
  size_t position_of(TensorId tensor) const;
  std::string function(const std::string& name, const std::string& parameters, size_t result) const;
  // A node that is a number of the kernel.
  bool has_number(size_t node) const;

  const Graph& graph_;
  const Partition& partition_;
  const ScoreExpression& score_;
  const std::vector<Layout>& layouts_;
  std::vector<size_t> numbers_;  // per node: the position of its number among the values
  std::vector<size_t> strides_;  // per term: the position of its strides: queries, keys, then the batch indices
};

}  // namespace millrace
