// What each named function does with its arguments; functions.cpp has the table of signatures.
// Tests: tests/frontend/functions_test.cpp.
#pragma once

#include "frontend/function_call.h"

namespace millrace {

// elementwise_functions.cpp
Value call_map(const FunctionCall& call, OperatorKind kind);
Value call_swapped(const FunctionCall& call, OperatorKind kind);
Value call_square(const FunctionCall& call, OperatorKind kind);
Value call_power(const FunctionCall& call, OperatorKind kind);
Value call_where(const FunctionCall& call, OperatorKind kind);
Value call_clip(const FunctionCall& call, OperatorKind kind);
Value call_exp2(const FunctionCall& call, OperatorKind kind);
Value call_log2(const FunctionCall& call, OperatorKind kind);
Value call_log10(const FunctionCall& call, OperatorKind kind);
Value call_reciprocal(const FunctionCall& call, OperatorKind kind);
Value call_dropout(const FunctionCall& call, OperatorKind kind);
Value call_causal_mask(const FunctionCall& call, OperatorKind kind);

// reduction_functions.cpp
Value call_reduction(const FunctionCall& call, OperatorKind kind);
Value call_mean(const FunctionCall& call, OperatorKind kind);
Value call_var(const FunctionCall& call, OperatorKind kind);
Value call_std(const FunctionCall& call, OperatorKind kind);
Value call_prod(const FunctionCall& call, OperatorKind kind);
Value call_norm(const FunctionCall& call, OperatorKind kind);
Value call_logsumexp(const FunctionCall& call, OperatorKind kind);

// normalization_functions.cpp
Value call_softmax(const FunctionCall& call, OperatorKind kind);
Value call_log_softmax(const FunctionCall& call, OperatorKind kind);
Value call_layernorm(const FunctionCall& call, OperatorKind kind);
Value call_rmsnorm(const FunctionCall& call, OperatorKind kind);
Value call_batchnorm(const FunctionCall& call, OperatorKind kind);
Value call_groupnorm(const FunctionCall& call, OperatorKind kind);

// product_functions.cpp
Value call_matmul(const FunctionCall& call, OperatorKind kind);
Value call_dot(const FunctionCall& call, OperatorKind kind);
Value call_inner(const FunctionCall& call, OperatorKind kind);
Value call_vdot(const FunctionCall& call, OperatorKind kind);
Value call_outer(const FunctionCall& call, OperatorKind kind);
Value call_tensordot(const FunctionCall& call, OperatorKind kind);

// convolution_functions.cpp
Value call_conv1d(const FunctionCall& call, OperatorKind kind);
Value call_conv2d(const FunctionCall& call, OperatorKind kind);
Value call_depthwise(const FunctionCall& call, OperatorKind kind);
Value call_max_pool2d(const FunctionCall& call, OperatorKind kind);
Value call_avg_pool2d(const FunctionCall& call, OperatorKind kind);
// gather_functions.cpp
Value call_take(const FunctionCall& call, OperatorKind kind);
Value call_take_along_axis(const FunctionCall& call, OperatorKind kind);
Value call_cross_entropy(const FunctionCall& call, OperatorKind kind);

// array_functions.cpp
Value call_zeros(const FunctionCall& call, OperatorKind kind);
Value call_ones(const FunctionCall& call, OperatorKind kind);
Value call_full(const FunctionCall& call, OperatorKind kind);
Value call_zeros_like(const FunctionCall& call, OperatorKind kind);
Value call_ones_like(const FunctionCall& call, OperatorKind kind);
Value call_full_like(const FunctionCall& call, OperatorKind kind);
Value call_arange(const FunctionCall& call, OperatorKind kind);
Value call_eye(const FunctionCall& call, OperatorKind kind);
Value call_cumsum(const FunctionCall& call, OperatorKind kind);
Value call_tril(const FunctionCall& call, OperatorKind kind);
Value call_triu(const FunctionCall& call, OperatorKind kind);

}  // namespace millrace
