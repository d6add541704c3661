// Random reductions and normalizations: np.sum, mean, max, min, softmax, layernorm, rmsnorm; and dropout.
#pragma once

#include <cstddef>

#include "random/body.h"

namespace millrace::random_programs {

// np.sum, mean, max or min over some axes or all, with and without keepdims.
Value reduced(Body& body, const Value& value);

// Softmax along a given axis, or along any.
Value softmax_along(Body& body, const Value& value, size_t axis);
Value softmax_somewhere(Body& body, const Value& value);

// layernorm or rmsnorm along some axis, with new parameters.
Value normalized(Body& body, const Value& value);

Value dropped(Body& body, const Value& value);

}  // namespace millrace::random_programs
