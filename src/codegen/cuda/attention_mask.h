// The dropout mask of an attention as the struct DropoutMask of prelude/cuda_attention_mask.h.
// Test: tests/codegen/attention_kernel_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "codegen/cuda/attention_score.h"
#include "codegen/kernel_text.h"

namespace millrace {

class AttentionMaskText {
 public:
  // `layouts`: one for each tensor of the partition.
  AttentionMaskText(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts)
      : graph_(graph), partition_(partition), attention_(partition.attention), layouts_(layouts) {}

  // Adds the dropout's probability and subsequence. All but `initializer` require a mask.
  void add_values(KernelText& kernel) const;
  // Whether 32 bits can count the mask's Philox blocks.
  bool has_few_blocks() const;
  // Members of the kernel's struct of sizes.
  std::string constants() const;
  // The definition of the variable `mask` for one head.
  std::string initializer(const ScoreFormulas::HeadOffset& offset_of) const;

 private:
  std::vector<int64_t> strides() const;
  size_t position() const;
  bool stores_bits() const;
  bool blocks_are_keys() const;

  const Graph& graph_;
  const Partition& partition_;
  const Attention& attention_;
  const std::vector<Layout>& layouts_;
};

}  // namespace millrace
