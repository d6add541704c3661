// The artefact of fusion: the training graph's operators in groups that run as one kernel each, and alternatives that
// later stages measure and choose from. Tests: tests/fusion/.
//
// A fused operator runs one loop nest. All members share its outer indices: each outer point is one row, which one
// block processes alone. Inside the row, members run one after another along its inner indices; members with different
// inner indices run in sequence (the paper's partial fusion). So a member passes to another either an element at the
// same point or one number per row. A reduction over all inner indices of a member ends inside the row, and later
// members may use it; a reduction over all outer indices crosses the grid in two stages, and no member of the group may
// use it.
//
// A member may run along a part of an index only: its own index is the group's index minus a shift, and at other points
// it does nothing. So a concatenation and the operators that compute its inputs can share a loop nest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/layout.h"

namespace millrace {

// How an index is implemented (paper section 4): an independent one by blocks, threads or loops, a reduced one by a
// loop in one thread, or across a warp, a block or the grid.
enum class Implementation { block, thread, loop, warp_reduction, block_reduction, grid_reduction };

struct FusedIndex {
  DimId dim;
  bool outer = true;
  Implementation implementation = Implementation::block;
};

enum class FusedKind { contraction, kernel };

struct FusedOperator {
  FusedKind kind = FusedKind::kernel;
  std::string name;        // from its members: bias-dropout-residual-layernorm
  std::string paper_name;  // BDRLN; several joined by '+'; empty if the paper has none
  Pass pass = Pass::forward;
  std::vector<OperatorId> members;  // in the graph's order
  std::vector<FusedIndex> space;
  std::vector<std::vector<int>> index_of;      // one per member: for each index of its space, the index of the group
  std::vector<std::vector<int64_t>> shift_of;  // one per member: its own index is the group's index minus this
  std::vector<TensorId> reads;                 // from memory
  std::vector<TensorId> writes;                // to memory
  std::vector<TensorId> interim;               // never in memory
  int loops = 1;                               // over a row: one more for each reduction that a later member uses
  bool rereads = false;       // the row does not fit into fast memory: every loop reads its words again
  int64_t partial_words = 0;  // written and read between the two stages of reductions across the grid
  int64_t words_before = 0;   // of the members as separate kernels
  int64_t words_after = 0;
  std::array<int64_t, 3> words_after_by_mask{};  // indexed by MaskStorage
};

// Contractions that can run as one. Alternatives overlap: a set and its subsets.
struct Stacking {
  enum class Kind { shared_operand, summed_results };
  Kind kind = Kind::shared_operand;
  std::vector<OperatorId> contractions;
  // The additions of the sum that the stacked contraction performs: one fewer than the stacked contractions, and one
  // more if the sum has a term that is not a contraction, which the product can add. The remaining additions of the sum
  // add the terms that are not stacked.
  std::vector<OperatorId> absorbed;
  int64_t words_separate = 0;  // of the contractions and the absorbed operators, each run separately
  int64_t words_stacked = 0;
};

// Operators that a matrix product can perform in its epilogue.
struct Epilogue {
  OperatorId contraction;
  std::vector<OperatorId> absorbed;
  std::string name;  // bias, bias-relu, bias_gradient, …
  int64_t words_saved = 0;
};

// A join that puts tensors of one shape beside each other along a new axis, as np.stack does, only for contractions:
// these can read the tensors as a stack instead.
struct JoinedStack {
  std::vector<OperatorId> operators;  // copies that only add an axis of extent one, and then the join
  std::vector<OperatorId> readers;    // the contractions
  std::vector<TensorId> sources;      // in the order of the axis
  size_t axis = 0;                    // of the joined tensor: counts the sources
  std::vector<int> source_axis;       // per axis of the joined tensor; kFixed: the sources lack it
  int64_t words_saved = 0;            // that the kernels around it move less
};

struct FusedGraph {
  std::vector<FusedOperator> groups;  // each operator is in exactly one; in execution order
  int64_t words_before = 0;
  int64_t words_after = 0;
  std::array<int64_t, 3> words_after_by_mask{};  // indexed by MaskStorage
  std::vector<Stacking> stackings;
  std::vector<Epilogue> epilogues;
  std::vector<JoinedStack> joined_stacks;
};

// Words with masks stored as bits, as in plans: the measure for whether a change saves words.
template <class Fused>
int64_t moved_words(const Fused& fused) {
  return fused.words_after_by_mask[as_index(MaskStorage::bits)];
}

// Whether two neighbouring operators fused.
struct PairExplanation {
  OperatorId first;
  OperatorId second;
  bool fused = false;
  std::string reason;  // what fusing saved, or why it was rejected
};

}  // namespace millrace
