#include "measure/gpu/gpu_values.h"

namespace millrace {

void round_to(DType dtype, oracle::Task& task) {
  switch (dtype) {
    case DType::float16: task.mantissa = 10, task.exponent = -14; return;
    case DType::bfloat16: task.mantissa = 7, task.exponent = -126; return;
    case DType::float32: task.mantissa = 23, task.exponent = -126; return;
    case DType::float64:
    case DType::boolean:
    case DType::int32:
    case DType::int64: return;
  }
}

StorageError storage_error_of(DType dtype) {
  const double absolute = storage_error(dtype, 0);
  return {storage_error(dtype, 1) - absolute, absolute};
}

void place_values(const GpuMemory& memory, oracle::Operand& operand) {
  operand.format = oracle::kExact;
  operand.data = static_cast<double*>(memory.data());
}

void place_tensor(const OracleTensor& tensor, oracle::Operand& operand) {
  operand.format = tensor.format;
  operand.number = tensor.number;
  operand.relative = tensor.relative;
  operand.absolute = tensor.absolute;
  operand.data = tensor.data;
}

Result<GpuMemory> allocate_doubles(const OracleContext& context, int64_t elements) {
  return context.memory(elements * static_cast<int64_t>(sizeof(double)));
}

Result<bool> take_expected(const OracleContext& context, const OracleTensor& computed, int64_t elements, DType dtype,
                           double bounds, ExpectedOnGpu& expected) {
  for (GpuMemory* memory : {&expected.values, &expected.tolerances}) {
    Result<GpuMemory> made = allocate_doubles(context, elements);
    if (!made) return made.error();
    *memory = std::move(*made);
  }
  Result<GpuMemory> first = context.memory(sizeof(uint64_t));
  if (!first) return first.error();
  if (Result<Done> filled = context.gpu.fill(first->data(), 0xff, sizeof(uint64_t)); !filled) return filled.error();
  oracle::Task task = make_flat_task(oracle::kTolerance, elements, 1, 2);
  place_tensor(computed, task.in[0]);
  place_values(expected.values, task.out[0]);
  place_values(expected.tolerances, task.out[1]);
  task.first_nonfinite = static_cast<unsigned long long*>(first->data());
  task.scale = bounds;
  task.numbers[0] = storage_error_of(dtype).relative;
  task.numbers[1] = storage_error_of(dtype).absolute;
  if (Result<Done> ran = context.oracle.run(TaskKind::map, task, context.memory); !ran) return ran.error();
  uint64_t found = 0;
  if (Result<Done> copied = context.gpu.copy_out(&found, first->data(), sizeof(found)); !copied) return copied.error();
  return found == ~uint64_t{0};
}

}  // namespace millrace
