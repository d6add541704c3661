// How the threads of a GPU share a nest, as its GpuShape asks. All of it is known before any statement is made.
// - Flat, a nest without reductions: each thread takes W neighbours along the vector index, in any row.
// - Rows: some threads, the row threads, share a row. Each takes P vectors of W neighbours, which stay in its registers
//   from one loop over the row to the next. Reductions use shuffles and, beyond a warp, shared memory.
// - Rows in lanes, the vector index running across rows: a thread takes W rows at once. The threads that share these
//   rows are `columns` apart in the block.
// If a reduction crosses rows, a block processes many rows, keeps its partial result in registers, and stores it in
// scratch memory; a second kernel adds the partial results, always in the same order.
// Test: tests/codegen/cuda_kernel_test.cpp
#pragma once

#include "codegen/nest.h"
#include "codegen/statement.h"

namespace millrace::codegen {

constexpr int64_t kWideBytes = 16;      // of the widest access
constexpr int64_t kTile = 64;           // rows and columns of the prelude's Tile
constexpr int64_t kMostShared = 32768;  // bytes in which a block adds the partial results of its rows
constexpr int64_t kWarp = 32;

// A reduction across rows: the result of one block, at the points of the reduction's segment.
struct Partial {
  int member = 0;
  int number = 0;
  InstructionKind kind = InstructionKind::sum;
  std::vector<int> inner;  // the segment's indices
  int64_t width = 1;
  int64_t vectors = 1;  // of each thread
  std::string name;
  int64_t bytes_offset = 0;  // in scratch memory
};

struct ThreadMapping : Nest {
  explicit ThreadMapping(const NestInput& input);

  GpuShape shape;
  bool flat = false;
  bool reduces_in_row = false;
  bool loads_next_row = false;  // while this one is processed
  bool brief_exp = false;       // a shorter exp is exact enough: only float16 is written
  bool guarded = false;         // some row threads may have no row
  bool combined = true;         // a block adds its partial results before it stores them
  int64_t columns = 1;
  int64_t block_rows = 1;  // that a block processes at a time; rows in lanes: bundles of W rows
  int64_t batch_rows = 1;  // that row threads load before they process the first
  int64_t chunks = 1;      // blocks that share the rows at one point of `fixed`
  int64_t blocks = 1;
  int64_t scratch_bytes = 0;
  std::vector<int> fixed;   // outer indices that are constant in a block
  std::vector<int> walked;  // outer indices of the rows that a block processes
  std::string integer = "int";
  std::vector<Partial> partials;

  const Partial& partial_of(const PlacedInstruction& placed) const;
  bool reduces(const PlacedInstruction& placed) const;

  int64_t rows() const;
  int64_t turns() const;  // of a block's loop over rows
  int64_t fixed_points() const { return points(fixed); }
  int64_t partial_results() const { return combined ? chunks : chunks * block_rows; }

  // Neighbours along an index that a thread takes at once: a power of two that divides the extent.
  int64_t width(int index) const;
  int vector_of(const Segment& segment) const;
  // The index that moves from lane to lane of a thread, or kNoIndex.
  int moving_in(const Segment& segment) const { return segment.loop || rows_in_lanes ? vector_of(segment) : kNoIndex; }
  int64_t width_of(const Segment& segment) const { return width(vector_of(segment)); }
  // Vectors of a segment that each thread processes.
  int64_t vectors_of(const Segment& segment) const;
  bool unrolled(const Segment& segment) const;

  int64_t tiles_along(int index) const { return (extent(index) + kTile - 1) / kTile; }

  // The indices of a point from its number among the points of `indices`; `vector` advances by `stride`.
  Statements decoded(const std::vector<int>& indices, const std::string& number, int vector = kNoIndex,
                     int64_t stride = 1) const;

 private:
  void find_partials();
  void find_rows();
  void find_blocks();
  void place_partials();
  void find_batches();
};

}  // namespace millrace::codegen
