// Building blocks of transformers, of which random programs mostly consist. Tests:
// tests/random/random_programs_test.cpp.
#pragma once

#include "random/body.h"

namespace millrace::random_programs {

// Queries, keys and values projected, scaled, masked or not, softmax, dropout, and back: the paper's Fig. 1a with
// optional parts and axes in any order. Takes a value of at least two axes.
Value attention(Body& body, const Value& x);

// Two projections with an activation, dropout and biases in between.
Value feed_forward(Body& body, const Value& x);

// silu(x · gate) * (x · up), projected back.
Value swiglu(Body& body, const Value& x);

// The most operators that each may take.
inline constexpr int kAttentionOperators = 20;
inline constexpr int kFeedForwardOperators = 10;
inline constexpr int kSwigluOperators = 9;

}  // namespace millrace::random_programs
