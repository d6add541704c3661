// The formulas of an attention's scores as the struct X of prelude/cuda_attention_score.h.
// Test: tests/measure/attention_trial_test.cpp
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

// An integer among the numbers of a launch. The prelude's decode_integer is the inverse.
inline double encode_integer(int64_t number) { return 0x1p52 + static_cast<double>(number); }

class ScoreFormulas {
 public:
  // `layouts`: one for each tensor of the partition. `integer`: the type of offsets.
  ScoreFormulas(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                std::string integer);

  // Adds the numbers and strides that kernels take.
  void add_values(std::vector<KernelValue>& values);
  // The definition of MILLRACE_KERNEL_score.
  std::string definition() const;
  // The alignment of 8 neighbouring keys, in bytes; 0 if they are not next to each other, or not aligned. `strides`:
  // those of its axes.
  int64_t alignment(const AttentionTensor& term, const std::vector<int64_t>& strides) const;
  // Its members for one head. offset_of(axes, stride(k)): the text of the head's offset in a tensor with these axes,
  // given the text of each batch index's stride.
  using HeadOffset = std::function<std::string(const Attention::Axes&, const std::function<std::string(size_t)>&)>;
  std::string initializer(const HeadOffset& offset_of) const;

 private:
  size_t position_of(TensorId tensor) const;
  std::vector<int64_t> strides_of_term(const AttentionTensor& term) const;
  std::string term_type(const AttentionTensor& term) const;
  std::string function(const std::string& name, const std::string& parameters, size_t result) const;
  bool hides_scores() const;

  const Graph& graph_;
  const Partition& partition_;
  const ScoreExpression& score_;
  const std::vector<Layout>& layouts_;
  std::string integer_;
  std::vector<size_t> numbers_;  // per node: the position of its number among the values
  std::vector<size_t> strides_;  // per term: the position of its strides, queries, keys and then the batch indices
};

}  // namespace millrace
