// Fused attention by cuDNN: the graph of its operations that cuDNN recognizes as an attention.
// Test: tests/device/cuda/cudnn_attention_test.cpp
#pragma once

#include <memory>
#include <vector>

#include "device/attention_call.h"
#include "device/cuda/cudnn_graph.h"

namespace millrace {

// A tensor of the plan, and what it is: an operand of the call, or one of the others.
struct CudnnAttentionTensor {
  enum class Role {
    operand,
    scale,     // of the scores: a float
    one,       // the float 1
    hidden,    // the score of a hidden key: a float
    row_sums,  // scratch: a float for every query of every head
  };
  CudnnGraph::Id id = 0;
  Role role = Role::operand;
  AttentionCall::Operand operand = AttentionCall::q;
};

struct CudnnAttention {
  std::unique_ptr<CudnnPlan> plan;
  std::vector<CudnnAttentionTensor> tensors;
};

// Fails with the library's reason if it does not compute this attention, or not with the same bits every time.
Result<CudnnAttention> make_cudnn_attention(const Cudnn& library, const std::shared_ptr<cudnnContext>& handle,
                                            const AttentionCall& call);

}  // namespace millrace
