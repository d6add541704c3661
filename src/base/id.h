// Typed indices: a TensorId is not an OperatorId. Tests: tests/ir/verify_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace millrace {

template <class Tag>
struct Id {
  int32_t index = -1;

  Id() = default;
  explicit Id(size_t position) : index(static_cast<int32_t>(position)) {}

  bool valid() const { return index >= 0; }
  size_t at() const { return static_cast<size_t>(index); }
  bool operator==(const Id&) const = default;
  bool operator<(const Id& other) const { return index < other.index; }
};

// Converts an index that is known to be valid, or an enumerator that numbers the elements of a list.
constexpr size_t as_index(int index) { return static_cast<size_t>(index); }
template <class Index>
requires std::is_integral_v<Index> || std::is_enum_v<Index>
constexpr size_t as_index(Index index) { return static_cast<size_t>(index); }

}  // namespace millrace
