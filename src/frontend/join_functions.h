// The shape functions that join tensors: concatenate, stack, pad, roll. Tests: tests/frontend/views_test.cpp.
#pragma once

#include "frontend/shape_call.h"

namespace millrace {

Value call_concatenate(const ShapeCall& call);
Value call_stack(const ShapeCall& call);
Value call_pad(const ShapeCall& call);
Value call_roll(const ShapeCall& call);

// The tensor as one axis.
std::optional<View> raveled(const View& view, const ShapeCall& call);

}  // namespace millrace
