// Random elementwise expressions: functions, arithmetic with broadcasting, None-indexing, biases, comparisons.
#pragma once

#include <vector>

#include "random/body.h"

namespace millrace::random_programs {

// The value, scaled down if its bound is large: otherwise chains of products would grow beyond comparison.
Value tame(Body& body, const Value& value);

// A random function of one value; `activation` only draws functions of feed-forward layers.
Value unary(Body& body, const Value& value);
Value activation(Body& body, const Value& value);

// Arithmetic of two values that broadcast together.
Value combine(Body& body, const Value& a, const Value& b);
Value sum_of(Body& body, const Value& a, const Value& b);
Value product_of(Body& body, const Value& a, const Value& b);

// A value that broadcasts with this one: same shape, fewer axes, axes of extent one, or with None.
Value partner(Body& body, const Value& value);

// Arithmetic with a number, a size or a by-value scalar.
Value scaled(Body& body, const Value& value);

// value + b[:, None] for a new argument b along some of its axes.
Value biased(Body& body, const Value& value);

// `value` indexed so that its axes are at `positions` (ascending) of `rank` axes.
Value indexed(Body& body, const Value& value, const std::vector<size_t>& positions, size_t rank);

// `value` with one None more, somewhere.
Value expanded(Body& body, const Value& value);

// np.where with a comparison that rounding cannot decide.
Value selected(Body& body, const Value& value);

}  // namespace millrace::random_programs
