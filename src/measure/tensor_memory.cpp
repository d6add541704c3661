#include "measure/tensor_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/parallel.h"
#include "base/stored_values.h"

namespace millrace {
namespace {

constexpr size_t kAlignment = 4096;

constexpr int64_t kCopiedSlice = 1 << 16;  // elements per thread

int64_t last_extent(const Graph& graph, TensorId tensor) {
  const std::vector<DimId>& dims = graph.tensor(tensor).dims;
  return dims.empty() ? 1 : graph.extent(dims.back());
}

// Calls body(first, end) for slices of the tensor's runs along the last axis, in parallel.
template <class Body>
void share_runs(const Graph& graph, TensorId tensor, const Body& body) {
  const int64_t length = last_extent(graph, tensor);
  in_parallel(elements_of(graph, tensor) / length, std::max<int64_t>(kCopiedSlice / length, 1), body);
}

// Iterates over the runs of a tensor that is stored with strides.
class Runs {
 public:
  Runs(const Graph& graph, TensorId tensor, const Layout& layout) : strides_(strides_of(graph, tensor, layout)) {
    for (const DimId dim : graph.tensor(tensor).dims) shape_.push_back(graph.extent(dim));
    if (shape_.empty()) return;
    stride_ = static_cast<size_t>(strides_.back());
    shape_.pop_back();
  }

  size_t stride() const { return stride_; }

  // The offset of a run's first element.
  size_t offset(int64_t run) const {
    int64_t offset = 0;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      offset += run % shape_[axis] * strides_[axis];
      run /= shape_[axis];
    }
    return static_cast<size_t>(offset);
  }

 private:
  std::vector<int64_t> strides_;
  std::vector<int64_t> shape_;  // without the last axis
  size_t stride_ = 0;           // of the last axis
};

// Calls body(element, offset, count, stride) for each run of elements along the last axis, in parallel.
template <class Body>
void for_each_run(const Graph& graph, TensorId tensor, const Layout& layout, const Body& body) {
  const auto count = static_cast<size_t>(last_extent(graph, tensor));
  const Runs runs(graph, tensor, layout);
  share_runs(graph, tensor, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run)
      body(static_cast<size_t>(run) * count, runs.offset(run), count, runs.stride());
  });
}

// Calls body(element, byte, count) for each run of bits, which begins at a new byte, in parallel.
template <class Body>
void for_each_run_of_bits(const Graph& graph, TensorId tensor, const Body& body) {
  const auto count = static_cast<size_t>(last_extent(graph, tensor));
  share_runs(graph, tensor, [&](int64_t begin, int64_t end) {
    for (auto run = static_cast<size_t>(begin); run < static_cast<size_t>(end); ++run)
      body(run * count, run * ((count + 7) / 8), count);
  });
}

}  // namespace

Memory::Memory(int64_t bytes) : size_(bytes) {
  const size_t rounded = (static_cast<size_t>(bytes) / kAlignment + 1) * kAlignment;
  bytes_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, rounded)));
  if (!bytes_) throw std::bad_alloc();
}

void Memory::Free::operator()(char* bytes) const { std::free(bytes); }

void put_values(const Graph& graph, TensorId tensor, const Layout& layout, const std::vector<double>& values,
                char* to) {
  if (layout.storage == MaskStorage::regenerated) return;
  if (layout.storage == MaskStorage::bits) {
    for_each_run_of_bits(graph, tensor, [&](size_t element, size_t byte, size_t count) {
      std::memset(to + byte, 0, (count + 7) / 8);
      for (size_t k = 0; k < count; ++k) {
        char& bits = to[byte + k / 8];
        if (values[element + k] != 0) bits = static_cast<char>(bits | (1 << (k % 8)));
      }
    });
    return;
  }
  const StoredType type = stored_type(graph.tensor(tensor).dtype);
  const auto bytes = static_cast<size_t>(bytes_of(type));
  for_each_run(graph, tensor, layout, [&](size_t element, size_t offset, size_t count, size_t stride) {
    encode_run(values.data() + element, count, type, to + offset * bytes, stride);
  });
}

std::vector<double> take_values(const Graph& graph, TensorId tensor, const Layout& layout, const char* from) {
  std::vector<double> values(static_cast<size_t>(elements_of(graph, tensor)));
  if (layout.storage == MaskStorage::regenerated) return {};
  if (layout.storage == MaskStorage::bits) {
    for_each_run_of_bits(graph, tensor, [&](size_t element, size_t byte, size_t count) {
      for (size_t k = 0; k < count; ++k)
        values[element + k] = (static_cast<unsigned char>(from[byte + k / 8]) >> (k % 8)) & 1;
    });
    return values;
  }
  const StoredType type = stored_type(graph.tensor(tensor).dtype);
  const auto bytes = static_cast<size_t>(bytes_of(type));
  for_each_run(graph, tensor, layout, [&](size_t element, size_t offset, size_t count, size_t stride) {
    decode_run(from + offset * bytes, count, type, stride, values.data() + element);
  });
  return values;
}

}  // namespace millrace
