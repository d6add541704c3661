// The data movement of a group. Tests: tests/fusion/fuse_test.cpp, group_summary_test.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "fusion/group.h"
#include "fusion/loop_nest.h"

namespace millrace {

struct Movement {
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;
  std::vector<TensorId> interim;
  int loops = 1;
  bool rereads = false;
  int64_t partial_words = 0;

  int64_t words = 0;
};

// `loops`: over a row.
Movement movement_of(const Neighbourhood& near, const Group& group, const LoopNest& nest, int loops);

// Whether a row can be too long for fast memory, so that every loop reads its words again.
bool exceeds_fast_memory(const LoopNest& nest);

// Blocks that write partial sums for the second stage of a reduction across the grid. `dims`: of the labels.
int64_t blocks_of(const Graph& graph, const std::vector<DimId>& dims, const LoopNest& nest);

// Booleans per word when stored as bits. A word counts as half precision, so that decisions are the same for every
// type.
inline constexpr int64_t kBooleansPerWord = 16;

// Words of a tensor for the given storage of masks; computed booleans are stored as bits unless masks are words.
int64_t stored_words(const Neighbourhood& near, TensorId tensor, MaskStorage masks);

// The words of a movement for the given storage of masks.
int64_t words_with_masks(const Neighbourhood& near, const Group& group, const LoopNest& nest, const Movement& movement,
                         MaskStorage masks);

}  // namespace millrace
