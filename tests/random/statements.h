// Random statements around a value: loops, lists, branches, nested tuples and methods, which lowering writes out.
#pragma once

#include "random/body.h"

namespace millrace::random_programs {

// The most operators that written_out adds.
inline constexpr int kWrittenOutOperators = 6;

// Writes one of them and adds the values that it assigns.
void written_out(Body& body, const Value& value);

}  // namespace millrace::random_programs
