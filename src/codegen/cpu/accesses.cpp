#include "codegen/cpu/accesses.h"

#include "base/text.h"

namespace millrace::codegen {
namespace {

constexpr int64_t kVectorBytes = 64;  // the prelude's
constexpr int64_t kScratchAlignment = 64;

// Σ stride · index without one of the indices.
std::string offset_without(int skipped, const Positions& positions, const std::vector<int64_t>& strides) {
  Position element = Nest::element_of(positions, strides);
  std::erase_if(element.terms, [&](const IndexTerm& term) { return term.index == skipped; });
  return Nest::text_of(element);
}

std::string key_of(int port, const Positions& positions) {
  std::vector<std::string> parts;
  for (const Position& position : positions) parts.push_back(Nest::text_of(position));
  return concat("p", port, ":", join(parts, ","));
}

}  // namespace

VectorNest::VectorNest(const NestInput& input) : Nest(input), lanes(kVectorBytes / real_bytes()) {}

int64_t VectorNest::stride_of(const Segment& segment, const Positions& positions,
                              const std::vector<int64_t>& strides) const {
  return stride_along(rows_in_lanes || !segment.loop ? config.vector : vector_of(segment), positions, strides);
}

std::string VectorNest::offset_of(int port, const Positions& positions) const {
  return text_of(element_of(positions, ports[at(port)].strides));
}

int VectorNest::moving_in(const Segment& segment) const {
  if (rows_in_lanes) return config.vector;
  return segment.loop ? vector_of(segment) : kNoIndex;
}

std::string Scratch::reserve(const std::string& name, int64_t elements) {
  pointers_.push_back({Declare{"F* __restrict", name, concat("reinterpret_cast<F*>(scratch + ", bytes_, ")")}});
  bytes_ += (elements * element_bytes_ + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  return name;
}

VectorAccesses::VectorAccesses(const VectorNest& nest, Scratch& scratch, KernelText& made)
    : nest_(nest), scratch_(scratch), made_(made) {
  for (const NestValue& value : nest.schedule.carried) {
    const int64_t row = nest.points(nest.schedule.inner[Nest::at(value.member)]);
    const int64_t elements = nest.rows_in_lanes ? row * nest.lanes : row + nest.lanes;
    carried_[value] = scratch_.reserve(concat("b", carried_.size()), elements);
  }
}

// --- Tensors ---

std::string VectorAccesses::loaded(int port, const Positions& positions, const std::vector<Guard>& guards,
                                   VectorStatements& to, const std::string& needed) {
  const int moving = nest_.moving_in(to.segment);
  const std::string condition = guards.empty() ? "" : Nest::condition_of(guards, moving, "lane");
  std::string& name = to.loaded[key_of(port, positions) + condition + needed];
  if (!name.empty()) return name;
  name = concat("x", loads_++);
  const Port& from = nest_.ports[Nest::at(port)];
  const std::string stride = concat(nest_.stride_of(to.segment, positions, from.strides));
  const std::string address = concat("(p", port, " + ", nest_.offset_of(port, positions));
  std::string value;
  if (from.layout.storage != MaskStorage::words)
    value = stored_mask(port, positions, to);
  else if (guards.empty())
    value = concat("mr::load<E, L, ", stride, ">", address, ")");
  else if (Nest::changes_along(guards, moving))
    value = concat("mr::load_where<E, L, ", stride, ">", address, ", [&](long lane) { return ", condition, "; })");
  else
    value = concat(condition, " ? mr::load<E, L, ", stride, ">", address, ") : mr::splat<E>(0)");
  if (!needed.empty()) value = concat(needed, " ? ", value, " : mr::splat<E>(0)");
  to.points.push_back({Declare{"const E", name, value}});
  return name;
}

void VectorAccesses::store(const PlacedInstruction& placed, const std::string& name, VectorStatements& to) {
  const Access& access = nest_.op(placed.member).outputs[Nest::at(placed.instruction.target)];
  const int port = nest_.written_port(access.tensor);
  if (port < 0) return;
  const Port& written = nest_.ports[Nest::at(port)];
  if (written.layout.storage == MaskStorage::regenerated) return;
  if (written.layout.storage == MaskStorage::bits) return store_bits(placed, name, to);
  const Positions positions = nest_.positions_along(placed.member, access);
  const std::vector<Guard> guards = nest_.guards_of(placed.member);
  const int moving = nest_.moving_in(to.segment);
  const std::string stored = concat(nest_.stride_of(to.segment, positions, written.strides), ">(p", port, " + ",
                                    nest_.offset_of(port, positions), ", ", name);
  if (Nest::changes_along(guards, moving)) {
    to.points.push_back({Call{concat("mr::store_where<L, ", stored, ", [&](long lane) { return ",
                                     Nest::condition_of(guards, moving, "lane"), "; })")}});
    return;
  }
  const Statement call = {Call{concat("mr::store<L, ", stored, ")")}};
  to.points.push_back(guards.empty() ? call
                                     : Statement{If{Nest::condition_of(guards, kNoIndex, ""), {call}, Braces::none}});
}

// --- Carried values ---

std::string VectorAccesses::carried_address(const NestValue& value) const {
  const std::vector<int>& inner = nest_.schedule.inner[Nest::at(value.member)];
  return concat(carried_.at(value), " + ", nest_.offset_in(inner, nest_.rows_in_lanes ? nest_.lanes : 1));
}

std::string VectorAccesses::load_carried(const NestValue& value, VectorStatements& to) const {
  const std::string name = Nest::value_name(value);
  std::string& known = to.loaded[name];
  if (known.empty())
    to.points.push_back({Declare{"const E", name, concat("mr::load<E, L, 1>(", carried_address(value), ")")}});
  return known = name;
}

void VectorAccesses::store_carried(const NestValue& value, VectorStatements& to) const {
  if (!nest_.schedule.carried.contains(value)) return;
  to.points.push_back({Call{concat("mr::store<L, 1>(", carried_address(value), ", ", Nest::value_name(value), ")")}});
}

// --- Masks ---

// A dropout's mask is complete before the loop over its line; a boolean is collected along the line.
void VectorAccesses::store_bits(const PlacedInstruction& placed, const std::string& name, VectorStatements& to) {
  const Access& access = nest_.op(placed.member).outputs[Nest::at(placed.instruction.target)];
  const bool drawn = nest_.op(placed.member).kind == OperatorKind::dropout;
  const std::string buffer = drawn ? mask_lines_.at(placed.member) : reserve_line(to.segment);
  if (!drawn) {
    const std::string index = Nest::index_name(VectorNest::vector_of(to.segment));
    to.points.push_back({Call{concat("mr::store<L, 1>(", buffer, " + ", index, ", ", name, ")")}});
  }
  (drawn ? to.before_line : to.after_line)
      .push_back({Call{concat("mr::pack_bits(p", nest_.written_port(access.tensor), " + ",
                              bits_offset(access.tensor, nest_.positions_along(placed.member, access)), ", ", buffer,
                              ", ", nest_.extent(nest_.config.vector), ")")}});
}

std::string VectorAccesses::drawn_mask(int member, VectorStatements& to) {
  const Operator& op = nest_.op(member);
  std::string& buffer = mask_lines_[member];
  if (buffer.empty()) {
    buffer = reserve_line(to.segment);
    to.before_line.push_back(draw_call(buffer, op.outputs[1].tensor, nest_.positions_along(member, op.outputs[1]),
                                       dropout_name(op), to.segment));
  }
  return from_line(to.segment, buffer);
}

std::string VectorAccesses::stored_mask(int port, const Positions& positions, VectorStatements& to) {
  const Port& from = nest_.ports[Nest::at(port)];
  const Operator* const op = dropout_of(nest_.graph, from.tensor);
  const std::string buffer = reserve_line(to.segment);
  const std::string dropout = op == nullptr ? "" : dropout_name(*op);
  if (from.layout.storage == MaskStorage::bits) {
    to.before_line.push_back(
        {Call{concat("mr::unpack_bits(", buffer, ", p", port, " + ", bits_offset(from.tensor, positions), ", ",
                     line_length(to.segment), dropout.empty() ? "" : ", ", dropout, ")")}});
  } else {
    to.before_line.push_back(draw_call(buffer, from.tensor, positions, dropout, to.segment));
  }
  return from_line(to.segment, buffer);
}

// Draws a line of a mask, or the lanes at a point, starting at the number of its first element.
Statement VectorAccesses::draw_call(const std::string& buffer, TensorId mask, const Positions& positions,
                                    const std::string& dropout, const Segment& segment) const {
  const std::vector<int64_t> strides = strides_of(nest_.graph, mask, written_layout(nest_.graph, mask));
  const int skipped = segment.loop && !nest_.rows_in_lanes ? VectorNest::vector_of(segment) : kNoIndex;
  return {Call{concat("mr::draw(", buffer, ", ", offset_without(skipped, positions, strides), ", ",
                      nest_.stride_of(segment, positions, strides), ", ", line_length(segment), ", ", dropout, ")")}};
}

std::string VectorAccesses::dropout_name(const Operator& dropout) {
  const size_t number = made_.subsequences.size();
  const std::string name = concat("d", number);
  const size_t probability = number_value(made_.values, {TensorId(), dropout.value});
  dropouts_.push_back({Call{concat("const mr::Dropout ", name, "(args, args->subsequences[", number, "], args->values[",
                                   probability, "])")}});
  made_.subsequences.push_back(dropout.subsequence);
  return name;
}

std::string VectorAccesses::bits_offset(TensorId mask, const Positions& positions) const {
  const int64_t run = nest_.graph.extent(nest_.graph.tensor(mask).dims.back());
  std::vector<int64_t> strides = strides_of(nest_.graph, mask, written_layout(nest_.graph, mask));
  for (int64_t& stride : strides) stride = stride / run * ((run + 7) / 8);
  return offset_without(nest_.config.vector, positions, strides);
}

bool VectorAccesses::has_line(const Segment& segment) const {
  return !nest_.rows_in_lanes && segment.loop && VectorNest::vector_of(segment) != kNoIndex;
}

std::string VectorAccesses::line_length(const Segment& segment) const {
  if (nest_.rows_in_lanes) return "L::n";
  return concat(has_line(segment) ? nest_.extent(VectorNest::vector_of(segment)) : 1);
}

std::string VectorAccesses::reserve_line(const Segment& segment) {
  const int64_t length = has_line(segment) ? nest_.extent(VectorNest::vector_of(segment)) : 0;
  return scratch_.reserve(concat("m", lines_++), length + nest_.lanes);
}

std::string VectorAccesses::from_line(const Segment& segment, const std::string& buffer) const {
  const std::string index =
      has_line(segment) ? " + " + Nest::index_name(VectorNest::vector_of(segment)) : std::string();
  return concat("mr::load<E, L, 1>(", buffer, index, ")");
}

}  // namespace millrace::codegen
