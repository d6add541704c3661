// The artefact of fusion: the training graph's operators in groups that run as one kernel each, and the alternatives
// that later stages choose between by measurement.
//
// A fused operator runs one loop nest. Its outer indices are shared by all members: each outer point is one row, which
// a block works on alone. Members then run one behind the other inside the row, along its inner indices; where members
// have different inner indices, these are put in sequence (the paper's partial fusion). What passes between members is
// therefore either an element at the same point or one number a row. A reduction over all inner indices of a member
// ends inside the row, and members behind it may use it; a reduction over all outer indices crosses the grid in two
// stages, and nothing inside the group may use it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/layout.h"

namespace millrace {

// How an index is carried out (paper section 4): independent ones by blocks, threads or loops, reduced ones by a loop
// in one thread, across a warp, a block, or the grid.
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
  std::string paper_name;  // BDRLN; several joined by '+'; empty where the paper has none
  Pass pass = Pass::forward;
  std::vector<OperatorId> members;  // in the graph's order
  std::vector<FusedIndex> space;
  std::vector<std::vector<int>> index_of;  // one a member: for each index of its own space, the one of the group's
  std::vector<TensorId> reads;             // from memory
  std::vector<TensorId> writes;            // to memory
  std::vector<TensorId> interim;           // never in memory
  int loops = 1;                           // over a row: one more for each reduction that a member behind it uses
  bool rereads = false;                    // the row does not fit into fast memory: every loop reads its words again
  int64_t partial_words = 0;               // written and read between the two stages of reductions across the grid
  int64_t words_before = 0;                // of the members apart
  int64_t words_after = 0;
  std::array<int64_t, 3> words_after_by_mask{};  // indexed by MaskStorage
};

// Contractions that can run as one. Alternatives overlap: all of a set, and every smaller part of it.
struct Stacking {
  enum class Kind { shared_operand, summed_results };
  Kind kind = Kind::shared_operand;
  std::vector<OperatorId> contractions;
  // The additions that a stacked contraction does by itself: of the sum, as many as it needs, and one more where the
  // sum has something that is no contraction, which a product can add; the others of the sum, if any are left, add what
  // is not stacked.
  std::vector<OperatorId> absorbed;
  int64_t words_apart = 0;  // of the contractions and what they absorb
  int64_t words_stacked = 0;
};

// Neighbours that a matrix product can do at its end.
struct Epilogue {
  OperatorId contraction;
  std::vector<OperatorId> absorbed;
  std::string name;  // bias, bias-relu, bias_gradient, …
  int64_t words_saved = 0;
};

struct FusedGraph {
  std::vector<FusedOperator> groups;  // every operator in one of them; in an order that can run
  int64_t words_before = 0;
  int64_t words_after = 0;
  std::array<int64_t, 3> words_after_by_mask{};  // indexed by MaskStorage
  std::vector<Stacking> stackings;
  std::vector<Epilogue> epilogues;
};

// Words with masks as bits, as plans have them: what decides whether something is saved.
template <class Fused>
int64_t moved_words(const Fused& fused) {
  return fused.words_after_by_mask[static_cast<size_t>(MaskStorage::bits)];
}

// A pair of neighbouring operators, and what became of it.
struct PairExplanation {
  OperatorId first;
  OperatorId second;
  bool fused = false;
  std::string reason;  // what fusing saved, or why it was refused
};

}  // namespace millrace
