#include "measure/tensor_memory.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/stored_type.h"

namespace millrace {
namespace {

constexpr size_t kAlignment = 4096;

// Calls body(element, offset, count, stride) for each run of elements along the last axis.
template <class Body>
void for_each_run(const Graph& graph, TensorId tensor, const Layout& layout, const Body& body) {
  std::vector<int64_t> strides = strides_of(graph, tensor, layout);
  std::vector<int64_t> shape;
  for (const DimId dim : graph.tensor(tensor).dims) shape.push_back(graph.extent(dim));
  if (shape.empty()) return body(size_t{0}, size_t{0}, size_t{1}, size_t{0});
  const auto count = static_cast<size_t>(shape.back());
  const auto stride = static_cast<size_t>(strides.back());
  shape.pop_back();
  std::vector<int64_t> point(shape.size(), 0);
  const auto elements = static_cast<size_t>(elements_of(graph, tensor));
  int64_t offset = 0;
  for (size_t element = 0; element < elements; element += count) {
    body(element, static_cast<size_t>(offset), count, stride);
    for (size_t axis = shape.size(); axis-- > 0;) {
      offset += strides[axis];
      if (++point[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      point[axis] = 0;
    }
  }
}

struct BitPosition {
  size_t byte;
  int bit;
};

BitPosition find_bit(const Graph& graph, TensorId tensor, size_t element) {
  const std::vector<DimId>& dims = graph.tensor(tensor).dims;
  const auto run = static_cast<size_t>(dims.empty() ? 1 : graph.extent(dims.back()));
  const size_t in_run = element % run;
  return {element / run * ((run + 7) / 8) + in_run / 8, static_cast<int>(in_run % 8)};
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
    std::memset(to, 0, static_cast<size_t>(stored_bytes(graph, tensor, layout)));
    for (size_t element = 0; element < values.size(); ++element) {
      const BitPosition at = find_bit(graph, tensor, element);
      if (values[element] != 0) to[at.byte] = static_cast<char>(to[at.byte] | (1 << at.bit));
    }
    return;
  }
  const StoredType type = stored_type(graph.tensor(tensor).dtype);
  const auto bytes = static_cast<size_t>(bytes_of(type));
  for_each_run(graph, tensor, layout, [&](size_t element, size_t offset, size_t count, size_t stride) {
    const double* const from = values.data() + element;
    if (type == StoredType::f32) {  // by far the most common type
      auto* const floats = reinterpret_cast<float*>(to) + offset;
      for (size_t k = 0; k < count; ++k) floats[k * stride] = static_cast<float>(from[k]);
      return;
    }
    for (size_t k = 0; k < count; ++k) {
      const uint64_t bits = encode(from[k], type);
      std::memcpy(to + (offset + k * stride) * bytes, &bits, bytes);
    }
  });
}

std::vector<double> take_values(const Graph& graph, TensorId tensor, const Layout& layout, const char* from) {
  std::vector<double> values(static_cast<size_t>(elements_of(graph, tensor)));
  if (layout.storage == MaskStorage::regenerated) return {};
  if (layout.storage == MaskStorage::bits) {
    for (size_t element = 0; element < values.size(); ++element) {
      const BitPosition at = find_bit(graph, tensor, element);
      values[element] = (static_cast<unsigned char>(from[at.byte]) >> at.bit) & 1;
    }
    return values;
  }
  const StoredType type = stored_type(graph.tensor(tensor).dtype);
  const auto bytes = static_cast<size_t>(bytes_of(type));
  for_each_run(graph, tensor, layout, [&](size_t element, size_t offset, size_t count, size_t stride) {
    double* const to = values.data() + element;
    if (type == StoredType::f32) {
      const auto* const floats = reinterpret_cast<const float*>(from) + offset;
      for (size_t k = 0; k < count; ++k) to[k] = floats[k * stride];
      return;
    }
    for (size_t k = 0; k < count; ++k) {
      uint64_t bits = 0;
      std::memcpy(&bits, from + (offset + k * stride) * bytes, bytes);
      to[k] = decode(bits, type);
    }
  });
  return values;
}

}  // namespace millrace
