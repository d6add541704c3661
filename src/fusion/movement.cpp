#include "fusion/movement.h"

#include <algorithm>
#include <map>

namespace millrace {
namespace {

// The reads of one tensor.
struct Reads {
  std::vector<TensorUse> uses;
  LabelSet labels = 0;
};

std::map<TensorId, Reads> reads_of(const Neighbourhood& near, const Group& group) {
  std::map<TensorId, Reads> reads;
  for (const Member& member : group.members) {
    const Operator& op = near.op(member.op);
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      Reads& own = reads[op.inputs[k].tensor];
      own.uses.push_back({&op, k});
      for (const Position& position : positions_of(member, op.inputs[k])) {
        for (const IndexTerm& term : position.terms) own.labels |= LabelSet{1} << term.index;
      }
    }
  }
  return reads;
}

}  // namespace

bool exceeds_fast_memory(const LoopNest& nest) {
  // The words of a row that fit into a block's registers and shared memory between two loops: 64 KiB of float32.
  constexpr int64_t kRowWords = 16384;
  return nest.row_points > kRowWords;
}

int64_t blocks_of(const Graph& graph, const std::vector<DimId>& dims, const LoopNest& nest) {
  constexpr int64_t kGridBlocks = 128;  // about one per multiprocessor, and at most one per row
  int64_t blocks = 1;
  for (size_t label = 0; label < dims.size() && blocks < kGridBlocks; ++label) {
    if ((nest.outer >> label) & 1) blocks *= graph.extent(dims[label]);
  }
  return std::min(blocks, kGridBlocks);
}

int64_t stored_words(const Neighbourhood& near, TensorId tensor, MaskStorage masks) {
  const int64_t words = near.words[tensor.at()];
  const OperatorId producer = near.producers[tensor.at()];
  if (masks == MaskStorage::words || !producer.valid()) return words;
  const Operator& op = near.op(producer);
  const bool dropped = op.kind == OperatorKind::dropout && op.outputs[1].tensor == tensor;
  if (!dropped && !is_computed_boolean(near.graph, tensor)) return words;
  if (dropped && masks == MaskStorage::regenerated) return 0;
  const int64_t bits_per_word = dropped ? 8 * bytes_of(near.graph.tensor(tensor).dtype) : kBooleansPerWord;
  return (words + bits_per_word - 1) / bits_per_word;
}

Movement movement_of(const Neighbourhood& near, const Group& group, const LoopNest& nest, int loops) {
  const int64_t blocks = blocks_of(near.graph, group.dims, nest);
  Movement movement;
  movement.loops = loops;
  movement.rereads = loops > 1 && exceeds_fast_memory(nest);
  for (const Member& member : group.members) {
    const Operator& op = near.op(member.op);
    const bool across_grid = std::binary_search(nest.across_grid.begin(), nest.across_grid.end(), member.op);
    for (const Access& input : op.inputs) {
      const OperatorId producer = near.producers[input.tensor.at()];
      if (near.words[input.tensor.at()] > 0 && !(producer.valid() && is_member(group, producer)))
        movement.reads.push_back(input.tensor);
    }
    for (const Access& output : op.outputs) {
      const std::vector<OperatorId>& readers = near.readers[output.tensor.at()];
      const bool needed =
          near.leaves[output.tensor.at()] ||
          std::any_of(readers.begin(), readers.end(), [&](OperatorId r) { return !is_member(group, r); });
      (needed ? movement.writes : movement.interim).push_back(output.tensor);
      if (across_grid && group.members.size() > 1)
        movement.partial_words += 2 * blocks * near.words[output.tensor.at()];
    }
  }
  std::sort(movement.reads.begin(), movement.reads.end());
  movement.reads.erase(std::unique(movement.reads.begin(), movement.reads.end()), movement.reads.end());
  movement.words = words_with_masks(near, group, nest, movement, MaskStorage::words);
  return movement;
}

int64_t words_with_masks(const Neighbourhood& near, const Group& group, const LoopNest& nest, const Movement& movement,
                         MaskStorage masks) {
  int64_t words = movement.partial_words;
  for (const TensorId tensor : movement.writes) words += stored_words(near, tensor, masks);
  const std::map<TensorId, Reads> reads = reads_of(near, group);
  for (const TensorId tensor : movement.reads) {
    const Reads& own = reads.at(tensor);
    const bool along_row = (own.labels & ~nest.outer) != 0;
    // Only the touched words of a tensor that is stored as words are read; other tensors are read whole.
    const int64_t stored = stored_words(near, tensor, masks);
    const int64_t read = stored == near.words[tensor.at()] ? words_touched(near.graph, own.uses) : stored;
    words += read * (movement.rereads && along_row ? movement.loops : 1);
  }
  return words;
}

}  // namespace millrace
