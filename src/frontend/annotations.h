// The types of parameters: `float16`, `dace.float16[P, H]`. Tests: tests/error/argument_types.py,
// tests/frontend/lower_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "frontend/builder.h"
#include "frontend/sizes.h"
#include "frontend/syntax.h"

namespace millrace {

// The type that a name such as float16 or np.float32 means, if it is one that tensors have.
std::optional<DType> tensor_type(const Expression& name);

// Whether a name is a type of integers or booleans that no tensor has, such as int8.
bool is_integer_type(const Expression& name);

// The type that an annotation names: float16, dace.float16. `chosen` replaces it if set. Nothing after an error.
std::optional<DType> annotated_dtype(const Expression& name, std::optional<DType> chosen, Diagnostics& diagnostics);

// The sizes of an annotation such as float16[P, H]. Nothing after an error.
std::optional<std::vector<DimId>> annotated_dims(const Expression& annotation, const Numbers& numbers, Builder& builder,
                                                 Diagnostics& diagnostics);

}  // namespace millrace
