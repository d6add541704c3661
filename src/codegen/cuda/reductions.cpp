#include "codegen/cuda/reductions.h"

#include "base/text.h"

namespace millrace::codegen {
namespace {

// For rows in lanes: how many results of a reduction the shuffles do not combine, as in the prelude's all_reduce_apart.
int64_t results_in_shared(const ThreadMapping& map) {
  return map.columns < kWarp ? map.shape.row_threads * map.columns / kWarp : map.shape.row_threads;
}

// Shared memory of one reduction. In a loop over rows there are two copies, used in turn: a thread that is ahead
// writes one that no other thread still reads.
std::string shared_slots(const ThreadMapping& map, int64_t count, KernelStatements& kernel) {
  if (count == 0) return "static_cast<F*>(nullptr)";
  const std::string name = concat("s", kernel.shared.size());
  const int copies = map.partials.empty() ? 1 : 2;
  kernel.shared.push_back({Declare{"MR_SHARED F", concat(name, "[", copies, "][", count, "]")}});
  return concat(name, "[turn % ", copies, "]");
}

void reduce_lanes(const ThreadMapping& map, const PlacedInstruction& placed, const std::string& name,
                  const std::string& expression, KernelStatements& kernel, SegmentStatements& to) {
  const std::string operation = Nest::operation(placed.instruction.kind);
  const int64_t width = map.width(map.config.vector);
  const std::string element = name + "[l]";
  to.declared.push_back({Declare{"F", concat(name, "[", width, "]")}});
  to.declared.push_back(assign_each("l", width, element, Nest::identity(placed.instruction.kind)));
  to.lanes.push_back({Assign{element, concat(operation, "::of(", element, ", F(", expression, "))")}});
  const int64_t results = results_in_shared(map);
  const std::string slots = shared_slots(map, results > 1 ? results * map.columns * width : 0, kernel);
  to.reduced.push_back({Call{concat("mr::all_reduce_apart<", operation, ", ", map.shape.row_threads, ", ", map.columns,
                                    ">(", name, ", ", slots, ")")}});
}

}  // namespace

void reduce_row(const ThreadMapping& map, const PlacedInstruction& placed, const std::string& name,
                const std::string& expression, KernelStatements& kernel, SegmentStatements& to) {
  if (map.rows_in_lanes) return reduce_lanes(map, placed, name, expression, kernel, to);
  const std::string operation = Nest::operation(placed.instruction.kind);
  to.declared.push_back({Declare{"F", name, Nest::identity(placed.instruction.kind)}});
  to.lanes.push_back({Assign{name, concat(operation, "::of(", name, ", F(", expression, "))")}});
  const std::string row_threads = concat("<", operation, ", ", map.shape.row_threads, ">(");
  to.reduced.push_back({Assign{name, concat("mr::reduce_warp", row_threads, name, ")")}});
  if (map.shape.row_threads <= kWarp) return;
  const std::string slots = shared_slots(map, map.shape.threads / kWarp, kernel);
  to.reduced.push_back({Call{concat("mr::put_warp(", name, ", ", slots, ")")}});
  to.gathered.push_back({Assign{name, concat("mr::gather_warps", row_threads, slots, ")")}});
}

Statements partial_arrays(const ThreadMapping& map) {
  Statements statements;
  for (const Partial& partial : map.partials) {
    statements.push_back({Declare{"F", concat(partial.name, "[", partial.vectors, "][", partial.width, "]")}});
    const Statement init = assign_each("l", partial.width, partial.name + "[p][l]", Nest::identity(partial.kind));
    statements.push_back({Loop{Unroll::fully, "p", concat(partial.vectors), {init}}});
  }
  return statements;
}

Statement add_to_partial(const ThreadMapping& map, const PlacedInstruction& placed, const std::string& expression) {
  const Partial& partial = map.partial_of(placed);
  const std::string sum = partial.name + (partial.inner.empty() ? "[0][0]" : "[p][l]");  // a row may have one value
  const std::string added = concat(Nest::operation(placed.instruction.kind), "::of(", sum, ", F(", expression, "))");
  return {Assign{sum, map.guarded ? concat("active ? ", added, " : ", sum) : added}};
}

}  // namespace millrace::codegen
