// The layout of a tensor in memory: an order of its axes, without gaps. A dropout's mask and a computed boolean can
// also be stored as bits, and a dropout's mask can be regenerated instead. Tests: tests/candidates/, tests/codegen/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// How a mask gets from forward to backward.
enum class MaskStorage {
  words,        // stored as a tensor
  bits,         // one bit per element; each row along the last axis begins at a new byte
  regenerated,  // not stored: backward generates a dropout's mask again
};

struct Layout {
  std::vector<int> order;  // the axes, outermost first
  MaskStorage storage = MaskStorage::words;

  bool operator==(const Layout&) const = default;
};

// Row-major, in the order of the program's axes.
Layout written_layout(const Graph& graph, TensorId tensor);

// All layouts that differ in memory: axes of extent one come first. For a tensor with more than five axes, only the
// layouts that move one axis to the end. `masks`: for a mask, also bits and regenerated.
std::vector<Layout> layouts_of(const Graph& graph, TensorId tensor, bool masks);

// The stride of each axis in elements; only for MaskStorage::words.
std::vector<int64_t> strides_of(const Graph& graph, TensorId tensor, const Layout& layout);

// Size of the tensor in memory.
int64_t stored_bytes(const Graph& graph, TensorId tensor, const Layout& layout);

// "BJI", "batch.heads", "JJ'" if a name occurs twice; "bits", "regenerated".
std::string print_layout(const Graph& graph, TensorId tensor, const Layout& layout);
std::optional<Layout> parse_layout(const Graph& graph, TensorId tensor, std::string_view text);

}  // namespace millrace
