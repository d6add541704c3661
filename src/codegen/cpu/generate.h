// (part, layouts, kernel way) → C++ for the machine's compiler. Test: tests/codegen/cpu_kernel_test.cpp
#pragma once

#include <string_view>

#include "candidates/candidates.h"
#include "codegen/kernel_text.h"

namespace millrace {

// `layouts`: one a tensor of the part, its reads and then its writes.
KernelText generate_cpu_kernel(const Graph& graph, const Part& part, const std::vector<Layout>& layouts,
                               const KernelWay& way);

// src/codegen/prelude/cpu_prelude.h, which stands before the kernels of a batch.
std::string_view cpu_prelude();

}  // namespace millrace
