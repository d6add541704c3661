// A layout conversion on a GPU: a nest without members, from port 0 to port 1. Test: tests/codegen/cuda_kernel_test.cpp
#pragma once

#include "codegen/cuda/kernel_statements.h"
#include "codegen/cuda/thread_mapping.h"

namespace millrace::codegen {

// W neighbours of a thread, at the point whose indices are declared.
Statements convert_vector(const ThreadMapping& map);

// A tile of shared memory for each block: reads along what is contiguous in one layout, and writes along what is
// contiguous in the other.
Statements convert_tile(const ThreadMapping& map, KernelStatements& kernel);

}  // namespace millrace::codegen
