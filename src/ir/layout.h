// How a tensor lies in memory: its axes in some order, outermost first, without gaps. A mask can be bits besides: a
// dropout's, which need not be in memory at all, or a boolean that an operator computes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// How a mask gets from forward to backward.
enum class MaskStorage {
  words,        // as a tensor
  bits,         // a bit an element; each run along the last axis begins with a byte of its own
  regenerated,  // not at all: backward draws it again; a dropout's
};

struct Layout {
  std::vector<int> order;  // the axes, outermost first
  MaskStorage storage = MaskStorage::words;

  bool operator==(const Layout&) const = default;
};

// As the program writes it: row-major.
Layout written_layout(const Graph& graph, TensorId tensor);

// Every layout that differs in memory: axes of extent one stand first. Of a tensor with more than five axes only those
// that move one axis to the end. `masks`: also what a mask has besides.
std::vector<Layout> layouts_of(const Graph& graph, TensorId tensor, bool masks);

// Elements between neighbours along each axis. For words.
std::vector<int64_t> strides_of(const Graph& graph, TensorId tensor, const Layout& layout);

// What the tensor takes in memory.
int64_t stored_bytes(const Graph& graph, TensorId tensor, const Layout& layout);

// "BJI", "batch.heads", "JJ'" where a name stands twice; "bits" and "drawn".
std::string print_layout(const Graph& graph, TensorId tensor, const Layout& layout);
std::optional<Layout> parse_layout(const Graph& graph, TensorId tensor, std::string_view text);

}  // namespace millrace
