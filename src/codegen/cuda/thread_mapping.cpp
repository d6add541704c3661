#include "codegen/cuda/thread_mapping.h"

#include <algorithm>

#include "base/text.h"

namespace millrace::codegen {
namespace {

constexpr int64_t kScratchAlignment = 256;
constexpr int64_t kMostUnrolled = 16;  // vectors of a loop
constexpr int64_t kIntegerRange = int64_t{1} << 31;

}  // namespace

ThreadMapping::ThreadMapping(const NestInput& input) : Nest(input), shape(*input.config.gpu) {
  bool any = false;
  for (const Segment& segment : schedule.segments) {
    for (const PlacedInstruction& placed : segment.instructions) {
      any = any || reduces(placed);
      reduces_in_row = reduces_in_row || (reduces(placed) && !placed.across);
    }
  }
  flat = !config.rows && !any;
  loads_next_row = shape.prefetch > 0 && reduces_in_row;
  columns = rows_in_lanes ? shape.threads / shape.row_threads : 1;
  block_rows = rows_in_lanes ? columns : shape.threads / shape.row_threads;
  brief_exp = real == "float" && std::all_of(ports.begin(), ports.end(), [&](const Port& port) {
                const bool drawn =
                    port.layout.storage != MaskStorage::words && !is_computed_boolean(graph, port.tensor);
                return !port.written || drawn || type_of(port) == "mr::f16";
              });
  find_partials();
  find_rows();
  find_blocks();
}

bool ThreadMapping::reduces(const PlacedInstruction& placed) const {
  return is_reduction(placed.instruction.kind) && (placed.across || !schedule.reduced[at(placed.member)].empty());
}

void ThreadMapping::find_partials() {
  for (const Segment& segment : schedule.segments) {
    for (const PlacedInstruction& placed : segment.instructions) {
      if (!placed.across) continue;
      partials.push_back({placed.member, placed.instruction.target, placed.instruction.kind, segment.indices,
                          width_of(segment), vectors_of(segment), concat("a", partials.size()), 0});
    }
  }
}

const Partial& ThreadMapping::partial_of(const PlacedInstruction& placed) const {
  return *std::find_if(partials.begin(), partials.end(), [&](const Partial& partial) {
    return partial.member == placed.member && partial.number == placed.instruction.target;
  });
}

// With reductions across rows, all rows of a block have the same position on the indices that one of the reductions
// keeps.
void ThreadMapping::find_rows() {
  for (const int index : outer_loops()) {
    const bool kept = std::any_of(partials.begin(), partials.end(), [&](const Partial& partial) {
      const std::vector<int> indices = kept_by(partial.member);
      return std::find(indices.begin(), indices.end(), index) != indices.end();
    });
    (kept ? fixed : walked).push_back(index);
  }
  int64_t largest = rows();
  for (const Port& port : ports) largest = std::max(largest, elements_of(graph, port.tensor));
  integer = 2 * largest + 65536 < kIntegerRange ? "int" : "long long";
}

void ThreadMapping::find_blocks() {
  if (config.block != kNoIndex) {
    blocks = tiles_along(config.block) * tiles_along(config.vector);
    for (const int index : config.loops)
      if (index != config.block && index != config.vector) blocks *= extent(index);
    return;
  }
  if (flat) {
    const int64_t vectors = rows() * (config.vector == kNoIndex ? 1 : extent(config.vector) / width(config.vector));
    blocks = (vectors + shape.threads - 1) / shape.threads;
    return;
  }
  const int64_t row_blocks = (rows() + block_rows - 1) / block_rows;
  chunks = partials.empty() ? 1 : std::clamp<int64_t>(shape.blocks / fixed_points(), 1, row_blocks);
  blocks = partials.empty() ? row_blocks : fixed_points() * chunks;
  place_partials();
  find_batches();
  guarded = rows() % (partials.empty() ? block_rows : chunks * block_rows * batch_rows) != 0;
}

void ThreadMapping::place_partials() {
  for (const Partial& partial : partials) combined = combined && points(partial.inner) * real_bytes() <= kMostShared;
  for (Partial& partial : partials) {
    partial.bytes_offset = scratch_bytes;
    const int64_t bytes = partial_results() * fixed_points() * points(partial.inner) * real_bytes();
    scratch_bytes += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  }
}

// Rows without a reduction of their own are loaded several at a time.
void ThreadMapping::find_batches() {
  if (partials.empty() || reduces_in_row) return;
  int64_t vectors = 1;
  for (const Segment& segment : schedule.segments) vectors = std::max(vectors, vectors_of(segment));
  const int64_t single = turns();
  const int64_t most = std::clamp<int64_t>((shape.prefetch > 0 ? 8 : 4) / vectors, 1, single);
  const int64_t batches = (single + most - 1) / most;
  batch_rows = (single + batches - 1) / batches;
}

int64_t ThreadMapping::rows() const {
  int64_t count = 1;
  for (const int index : walked)
    count *= rows_in_lanes && index == config.vector ? extent(index) / width(index) : extent(index);
  return count;
}

int64_t ThreadMapping::turns() const {
  const int64_t at_once = chunks * block_rows * batch_rows;
  return (rows() + at_once - 1) / at_once;
}

int64_t ThreadMapping::width(int index) const {
  if (index == kNoIndex) return 1;
  int64_t wide = shape.width;
  while (extent(index) % wide != 0) wide /= 2;
  return wide;
}

int ThreadMapping::vector_of(const Segment& segment) const {
  if (rows_in_lanes) return config.vector;
  return !segment.loop || segment.indices.empty() ? kNoIndex : segment.indices.back();
}

int64_t ThreadMapping::vectors_of(const Segment& segment) const {
  if (flat) return 1;
  const int64_t at_once = shape.row_threads * (rows_in_lanes ? 1 : width_of(segment));
  return (points(segment.indices) + at_once - 1) / at_once;
}

bool ThreadMapping::unrolled(const Segment& segment) const { return vectors_of(segment) <= kMostUnrolled; }

Statements ThreadMapping::decoded(const std::vector<int>& indices, const std::string& number, int vector,
                                  int64_t stride) const {
  const auto count = [&](int index) { return index == vector ? extent(index) / stride : extent(index); };
  int64_t below = 1;
  for (const int index : indices) below *= count(index);
  Statements statements;
  for (const int index : indices) {
    below /= count(index);
    std::string position = concat("U(", number, ")", below == 1 ? "" : concat(" / ", below));
    if (index != indices.front()) position += concat(" % ", count(index));
    const std::string scale = index == vector && stride > 1 ? concat(" * ", stride) : "";
    statements.push_back({Declare{"const I", index_name(index), concat("I(", position, ")", scale)}});
  }
  return statements;
}

}  // namespace millrace::codegen
