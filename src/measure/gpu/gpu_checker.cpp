#include "measure/gpu/gpu_checker.h"

#include <array>

#include "base/stored_type.h"
#include "base/text.h"
#include "codegen/cuda/generate.h"

namespace millrace {
namespace {

// The layout of the arguments in check_kernels.h.
constexpr size_t kMostRank = 12;
constexpr size_t kNumbers = 2 + 2 * kMostRank + 3;
constexpr size_t kStoredAt = 2 + 2 * kMostRank;
constexpr size_t kRunAt = kStoredAt + 1;
constexpr size_t kExtraAt = kStoredAt + 2;
constexpr int kThreads = 256;
constexpr int64_t kBlocksPerMultiprocessor = 16;

double stored_code(DType dtype) {
  switch (dtype) {
    case DType::float64: return 0;
    case DType::float32: return 1;
    case DType::float16: return 2;
    case DType::bfloat16: return 3;
    case DType::boolean: return 4;
    case DType::int32: return 6;
    case DType::int64: return 7;
  }
  return 0;
}

constexpr double kStoredAsBits = 5;

}  // namespace

std::vector<double> check_numbers(const Graph& graph, TensorId tensor, const Layout& layout) {
  std::vector<double> numbers(kNumbers, 0);
  const std::vector<DimId>& dims = graph.tensor(tensor).dims;
  numbers[0] = static_cast<double>(elements_of(graph, tensor));
  numbers[1] = static_cast<double>(dims.size());
  const bool bits = layout.storage == MaskStorage::bits;
  const std::vector<int64_t> strides = bits ? std::vector<int64_t>(dims.size(), 0) : strides_of(graph, tensor, layout);
  for (size_t axis = 0; axis < dims.size() && axis < kMostRank; ++axis) {
    numbers[2 + axis] = static_cast<double>(graph.extent(dims[axis]));
    numbers[2 + kMostRank + axis] = static_cast<double>(strides[axis]);
  }
  numbers[kStoredAt] = bits ? kStoredAsBits : stored_code(graph.tensor(tensor).dtype);
  numbers[kRunAt] = dims.empty() ? 1 : static_cast<double>(graph.extent(dims.back()));
  return numbers;
}

Result<GpuChecker> GpuChecker::make(Gpu& gpu, const GpuCompiler& compiler) {
  const std::string source = concat(cuda_hardware(), cuda_prelude(), gpu_check_kernels());
  const Result<std::string> cubin = compiler.compile(source, gpu.info().architecture());
  if (!cubin) return cubin.error();
  GpuChecker made(gpu);
  for (const auto& [launch, name] :
       {std::pair(&made.put_, "put"), std::pair(&made.take_, "take"), std::pair(&made.compare_, "compare"),
        std::pair(&made.allow_, "allow"), std::pair(&made.change_, "change")}) {
    Launch kernel;
    kernel.kernel = source;
    kernel.tensor_count = 4;
    kernel.grids = {
        {concat("MILLRACE_KERNEL_", name), gpu.info().multiprocessors * kBlocksPerMultiprocessor, kThreads}};
    for (size_t k = 0; k < kNumbers; ++k) kernel.numbers.push_back({static_cast<int>(k), 0});
    Result<std::unique_ptr<GpuLaunch>> prepared = gpu.prepare(kernel, *cubin);
    if (!prepared) return prepared.error();
    *launch = std::move(*prepared);
  }
  Result<GpuMemory> first = GpuMemory::allocate(gpu, sizeof(uint64_t));
  if (!first) return first.error();
  made.first_ = std::move(*first);
  return made;
}

Result<Done> GpuChecker::put(const Graph& graph, TensorId tensor, const Layout& layout, const GpuMemory& values,
                             PutAs as, void* to) const {
  if (layout.storage == MaskStorage::regenerated) return Done{};
  std::vector<double> numbers = check_numbers(graph, tensor, layout);
  numbers[kExtraAt] = as == PutAs::values ? 0 : as == PutAs::magnitudes ? 1 : -1;
  const std::array<void*, 4> tensors = {values.data(), to, nullptr, nullptr};
  return put_->run(tensors.data(), numbers.data(), nullptr, nullptr);
}

Result<Done> GpuChecker::take(const Graph& graph, TensorId tensor, const Layout& layout, void* from,
                              const GpuMemory& values) const {
  const std::vector<double> numbers = check_numbers(graph, tensor, layout);
  const std::array<void*, 4> tensors = {from, values.data(), nullptr, nullptr};
  return take_->run(tensors.data(), numbers.data(), nullptr, nullptr);
}

Result<std::optional<int64_t>> GpuChecker::first_wrong(const Graph& graph, TensorId tensor, const Layout& layout,
                                                       void* found, const GpuMemory& values,
                                                       const GpuMemory& tolerances) const {
  if (layout.storage == MaskStorage::regenerated) return std::optional<int64_t>();
  if (Result<Done> begun = forget_first(); !begun) return begun.error();
  const std::vector<double> numbers = check_numbers(graph, tensor, layout);
  const std::array<void*, 4> tensors = {found, values.data(), tolerances.data(), first_.data()};
  if (Result<Done> ran = compare_->run(tensors.data(), numbers.data(), nullptr, nullptr); !ran) return ran.error();
  return read_first();
}

Result<Done> GpuChecker::forget_first() const { return gpu_->fill(first_.data(), 0xff, sizeof(uint64_t)); }

Result<std::optional<int64_t>> GpuChecker::read_first() const {
  uint64_t first = 0;
  if (Result<Done> copied = gpu_->copy_out(&first, first_.data(), sizeof(first)); !copied) return copied.error();
  if (first == ~uint64_t{0}) return std::optional<int64_t>();
  return std::optional<int64_t>(static_cast<int64_t>(first));
}

// A launch takes a limited number of ranges: with more, each launch compares the bytes up to its last range.
// NOLINTNEXTLINE(readability-non-const-parameter): a kernel's arguments are not const
Result<std::optional<int64_t>> GpuChecker::first_change(char* found, char* before, int64_t bytes,
                                                        const std::vector<ByteRange>& ranges) const {
  size_t next = 0;
  int64_t begin = 0;
  do {
    std::vector<double> numbers(kNumbers, 0);
    size_t count = 0;
    for (; next < ranges.size() && count < kMostRank; ++count, ++next) {
      numbers[2 + count] = static_cast<double>(ranges[next].begin - begin);
      numbers[2 + kMostRank + count] = static_cast<double>(ranges[next].end - begin);
    }
    const int64_t end = next < ranges.size() ? ranges[next].begin / 8 * 8 : bytes;
    numbers[0] = static_cast<double>(end - begin);
    numbers[1] = static_cast<double>(count);
    if (Result<Done> begun = forget_first(); !begun) return begun.error();
    const std::array<void*, 4> tensors = {found + begin, before + begin, nullptr, first_.data()};
    if (Result<Done> ran = change_->run(tensors.data(), numbers.data(), nullptr, nullptr); !ran) return ran.error();
    const Result<std::optional<int64_t>> first = read_first();
    if (!first) return first.error();
    if (*first) return std::optional<int64_t>(begin + **first);
    begin = end;
  } while (next < ranges.size());
  return std::optional<int64_t>();
}

Result<Done> GpuChecker::allow(int64_t elements, const GpuMemory& values, const GpuMemory& magnitudes,
                               double per_magnitude, double relative, double absolute) const {
  std::vector<double> numbers(kNumbers, 0);
  numbers[0] = static_cast<double>(elements);
  numbers[2] = relative;
  numbers[3] = absolute;
  numbers[kExtraAt] = per_magnitude;
  const std::array<void*, 4> tensors = {values.data(), magnitudes.data(), nullptr, nullptr};
  return allow_->run(tensors.data(), numbers.data(), nullptr, nullptr);
}

}  // namespace millrace
