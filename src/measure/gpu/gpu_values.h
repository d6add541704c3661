// Tasks over whole tensors of doubles: drawing, rounding to a storage type, and the tolerances of what was computed.
// Test: tests/measure/gpu_reference_test.cpp
#pragma once

#include "measure/gpu/gpu_reference.h"
#include "oracle/task_maker.h"

namespace millrace {

// Makes a task's kExact, kDraw or kRound results those of a storage type.
void round_to(DType dtype, oracle::Task& task);

// The error from storing a value: relative · |value| + absolute.
struct StorageError {
  double relative = 0;
  double absolute = 0;
};
StorageError storage_error_of(DType dtype);

// Row-major doubles as an operand.
void place_values(const GpuMemory& memory, oracle::Operand& operand);
void place_tensor(const OracleTensor& tensor, oracle::Operand& operand);

Result<GpuMemory> allocate_doubles(const OracleContext& context, int64_t elements);

// Takes the values of a computed tensor, and its tolerances: `bounds` times its error plus the error from storing it.
// Returns whether all values are finite.
Result<bool> take_expected(const OracleContext& context, const OracleTensor& computed, int64_t elements, DType dtype,
                           double bounds, ExpectedOnGpu& expected);

}  // namespace millrace
