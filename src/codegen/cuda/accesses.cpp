#include "codegen/cuda/accesses.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"

namespace millrace::codegen {
namespace {

constexpr int64_t kMostEarly = 32;  // elements of a tensor that a thread loads at the beginning of a row

// The largest power of two, in bytes, that divides every address of an access.
int64_t alignment_of(const ThreadMapping& map, const Port& port, const Positions& positions, int vector) {
  const int64_t size = bytes_of(map.graph.tensor(port.tensor).dtype);
  int64_t aligned = std::gcd(kWideBytes, stored_bytes(map.graph, port.tensor, port.layout));
  const Position element = Nest::element_of(positions, port.strides);
  for (const auto& [index, stride] : element.terms) {
    if (map.extent(index) > 1) aligned = std::gcd(aligned, size * stride * (index == vector ? map.width(vector) : 1));
  }
  return std::gcd(aligned, size * element.offset);
}

std::string key_of(const int port, const Positions& positions) {
  std::vector<std::string> parts;
  for (const Position& position : positions) parts.push_back(Nest::text_of(position));
  return concat("p", port, ":", join(parts, ","));
}

std::string access_text(const ThreadMapping& map, int port, const Positions& positions, int vector) {
  const Port& accessed = map.ports[Nest::at(port)];
  return concat(map.width(vector), ", ", Nest::stride_along(vector, positions, accessed.strides), ", ",
                alignment_of(map, accessed, positions, vector));
}

}  // namespace

std::string elements_type(const ThreadMapping& map, int port, const Positions& positions, int vector) {
  return concat("mr::Elements<", map.type_of(map.ports[Nest::at(port)]), ", ",
                access_text(map, port, positions, vector), ">");
}

std::string offset_text(const ThreadMapping& map, int port, const Positions& positions) {
  return concat("I(", Nest::text_of(Nest::element_of(positions, map.ports[Nest::at(port)].strides)), ")");
}

Store store_of(const ThreadMapping& map, int port, const Positions& positions, int vector, const std::string& values) {
  return {access_text(map, port, positions, vector), concat("p", port), offset_text(map, port, positions), values};
}

// --- Loads ---

std::string Accesses::loaded(int port, const Positions& positions, const std::vector<Guard>& guards,
                             SegmentStatements& to, const std::string& needed) {
  const std::string key =
      key_of(port, positions) + (guards.empty() ? "" : Nest::condition_of(guards, kNoIndex, "")) + needed;
  std::string& element = to.loaded[key];
  if (!element.empty()) return element;
  if (map_.ports[Nest::at(port)].layout.storage != MaskStorage::words)
    return element = stored_mask(port, positions, to) + lane_suffix(to.segment);
  const std::string type = elements_type(map_, port, positions, map_.vector_of(to.segment));
  const std::string vector =
      place_load(key, {type, concat("p", port), offset_text(map_, port, positions), guards, needed}, to);
  return element = concat(vector, ".get<F>(", to.segment.loop || map_.rows_in_lanes ? "l" : "0", ")");
}

// A row that stays in registers is loaded at its beginning, or with the row before: a load after a reduction would
// add its latency. Other loads are next to their use. `type`: what is loaded into.
std::string Accesses::place_load(const std::string& key, const Loaded& loaded, SegmentStatements& to) {
  const std::string& type = loaded.type;
  const Segment& segment = to.segment;
  if (!segment.loop || !map_.unrolled(segment)) {
    const std::string name = concat("x", load_count_++);
    to.loads.push_back({Declare{type, name}});
    to.loads.push_back(load_of(segment, name, loaded));
    return name;
  }
  std::string& known = row_loads_[concat(key, " over ", join(segment.indices, ","))];
  if (!known.empty()) return known;
  const int64_t vectors = map_.vectors_of(segment);
  const std::string name = concat("x", load_count_++);
  const std::string batch = map_.batch_rows > 1 ? concat("[", map_.batch_rows, "]") : "";
  kernel_.row_arrays.push_back({Declare{type, concat(name, batch, "[", vectors, "]")}});
  known = concat(name, batch.empty() ? "" : "[r]", "[p]");
  if (map_.loads_next_row) {
    kernel_.next_row_arrays.push_back({Declare{type, concat("next_", name, "[", vectors, "]")}});
    kernel_.row_arrays.push_back(assign_each("p", vectors, concat(name, "[p]"), concat("next_", name, "[p]")));
    to.next_row_loads.push_back(load_of(segment, concat("next_", name, "[p]"), loaded));
  } else {
    const bool few = !map_.flat && vectors * map_.width_of(segment) <= kMostEarly;
    (few ? to.row_loads : to.loads).push_back(load_of(segment, known, loaded));
  }
  return known;
}

// Where it may not be read, the values stay undefined; nothing uses them there.
Statement Accesses::load_of(const Segment& segment, const std::string& target, const Loaded& loaded) const {
  Statement load = {Load{target, loaded.pointer, loaded.offset}};
  if (!loaded.needed.empty()) load = {If{loaded.needed, {load}, Braces::none}};
  if (loaded.guards.empty()) return load;
  const int moving = map_.moving_in(segment);
  const std::string condition = Nest::condition_of(loaded.guards, moving, "l");
  if (!Nest::changes_along(loaded.guards, moving)) return {If{condition, {load}, Braces::none}};
  return {Call{concat(target, ".load_where(", loaded.pointer, ", ", loaded.offset, ", [&](int l) { return ", condition,
                      "; })")}};
}

// --- Stores ---

void Accesses::store(const PlacedInstruction& placed, const std::string& name, SegmentStatements& to) const {
  const Segment& segment = to.segment;
  const Access& access = map_.op(placed.member).outputs[Nest::at(placed.instruction.target)];
  const int port = map_.written_port(access.tensor);
  if (port < 0) return;
  const MaskStorage storage = map_.ports[Nest::at(port)].layout.storage;
  if (storage == MaskStorage::regenerated) return;
  const Positions positions = map_.positions_along(placed.member, access);
  const std::vector<Guard> guards = map_.guards_of(placed.member);
  const int moving = map_.moving_in(segment);
  const bool by_lane = Nest::changes_along(guards, moving);
  const bool carried = segment.loop && map_.schedule.carried.contains(Nest::value_of(placed));
  const std::string values = name + (carried ? "[p]" : "");
  Statement stored;
  if (storage == MaskStorage::bits)
    stored = stored_bits(placed, port, values);
  else if (!segment.loop && !map_.rows_in_lanes)
    stored = {Call{concat("mr::narrow(", name, ", p", port, "[", offset_text(map_, port, positions), "])")}};
  else if (by_lane)
    stored = {Call{concat("mr::store_where<", access_text(map_, port, positions, map_.vector_of(segment)), ">(p", port,
                          ", ", offset_text(map_, port, positions), ", ", values, ", [&](int l) { return ",
                          Nest::condition_of(guards, moving, "l"), "; })")}};
  else
    stored = {store_of(map_, port, positions, map_.vector_of(segment), values)};
  std::string guard = store_guard(segment);
  if (!guards.empty() && !by_lane)
    guard += concat(guard.empty() ? "" : " && ", Nest::condition_of(guards, kNoIndex, ""));
  to.stores.push_back(guard.empty() ? stored : Statement{If{guard, {stored}, Braces::none}});
}

// One thread of a row stores the values that a row has once; threads without a row store nothing.
std::string Accesses::store_guard(const Segment& segment) const {
  std::string guard;
  if (!segment.loop && !map_.flat) guard = "lane == 0";
  if (!segment.loop && map_.flat)
    guard = map_.config.vector == kNoIndex ? "true" : concat(Nest::index_name(map_.config.vector), " == 0");
  if (map_.guarded) guard += guard.empty() ? "active" : " && active";
  return guard;
}

Statement Accesses::stored_bits(const PlacedInstruction& placed, int port, const std::string& values) const {
  const Operator& op = map_.op(placed.member);
  const Access& access = op.outputs[Nest::at(placed.instruction.target)];
  const TensorId mask = access.tensor;
  const int64_t run = map_.graph.extent(map_.graph.tensor(mask).dims.back());
  const std::string element =
      concat("U(", Nest::text_of(mask_element(mask, map_.positions_along(placed.member, access))), ")");
  const std::string byte = run % 8 == 0
                               ? concat(element, " / 8")
                               : concat(element, " / ", run, " * ", (run + 7) / 8, " + ", element, " % ", run, " / 8");
  const bool drawn = op.kind == OperatorKind::dropout;
  return {Assign{concat("p", port, "[", byte, "]"),
                 drawn ? concat("mr::u8(", masks_.at(placed.member), "_bits)") : concat("mr::packed(", values, ")")}};
}

// --- Masks ---

std::string Accesses::dropout_name(const Operator& dropout) {
  const size_t number = kernel_.subsequences.size();
  const std::string name = concat("d", number);
  const double rounded = std::min(std::floor(dropout.value * 65536 + 0.5), 65535.0);
  const size_t threshold = number_value(kernel_.values, {TensorId(), rounded * 65536});
  const size_t scale = number_value(kernel_.values, {TensorId(), 1.0 / (1.0 - dropout.value)});
  kernel_.dropouts.push_back({Call{concat("const mr::Dropout ", name, "(args.state, args.subsequences[", number,
                                          "], args.values[", threshold, "], args.values[", scale, "])")}});
  kernel_.subsequences.push_back(dropout.subsequence);
  return name;
}

// The number of a mask's element.
Position Accesses::mask_element(TensorId mask, const Positions& positions) const {
  return Nest::element_of(positions, strides_of(map_.graph, mask, written_layout(map_.graph, mask)));
}

// Whether the vector index runs along a mask's neighbours, and the first of every W begins a block of them.
bool Accesses::in_blocks(TensorId mask, const Positions& positions, int vector, int64_t block) const {
  const Position element = mask_element(mask, positions);
  if (element.stride_along(vector) == 0 || element.offset != 0) return false;
  return std::all_of(element.terms.begin(), element.terms.end(), [&](const IndexTerm& term) {
    const auto [index, stride] = term;
    return index == vector ? stride == 1 && map_.width(vector) <= 8 : stride % block == 0 || map_.extent(index) == 1;
  });
}

std::string Accesses::draw_call(const std::string& name, TensorId mask, const Positions& positions, int vector,
                                const std::string& dropout) const {
  const Position element = mask_element(mask, positions);
  const int64_t width = map_.width(vector);
  const bool whole = (width == 4 || width == 8) && in_blocks(mask, positions, vector, width);
  return concat("mr::draw<", width, ", ", element.stride_along(vector), ", ", whole ? "true" : "false", ">(", name,
                ", mr::u64(", Nest::text_of(element), "), ", dropout, ")");
}

std::string Accesses::drawn_mask(int member, SegmentStatements& to) {
  const Operator& op = map_.op(member);
  const TensorId mask = op.outputs[1].tensor;
  std::string& name = masks_[member];
  if (name.empty()) {
    name = concat("m", mask_count_++);
    const int vector = map_.vector_of(to.segment);
    to.arrays.push_back({Declare{"F", concat(name, "[", map_.width(vector), "]")}});
    const std::string drawn =
        draw_call(name, mask, map_.positions_along(member, op.outputs[1]), vector, dropout_name(op));
    to.arrays.push_back({Declare{"const mr::u32", name + "_bits", drawn}});
  }
  return name + lane_suffix(to.segment);
}

std::string Accesses::stored_mask(int port, const Positions& positions, SegmentStatements& to) {
  const Port& from = map_.ports[Nest::at(port)];
  const TensorId mask = from.tensor;
  const Operator* const op = dropout_of(map_.graph, mask);
  const std::string dropout = op == nullptr ? "" : dropout_name(*op);
  const std::string name = concat("m", mask_count_++);
  const int vector = map_.vector_of(to.segment);
  to.arrays.push_back({Declare{"F", concat(name, "[", map_.width(vector), "]")}});
  if (from.layout.storage == MaskStorage::regenerated) {
    to.arrays.push_back({Call{draw_call(name, mask, positions, vector, dropout)}});
    return name;
  }
  const Position element = mask_element(mask, positions);
  const int64_t run = map_.graph.extent(map_.graph.tensor(mask).dims.back());
  const bool whole = run % 8 == 0 && in_blocks(mask, positions, vector, map_.width(vector));
  const std::string type = concat("mr::MaskBits<", map_.width(vector), ", ", element.stride_along(vector), ", ", run,
                                  ", ", whole ? "true" : "false", ">");
  const std::string bits = place_load(key_of(port, positions),
                                      {type, concat("p", port), concat("mr::u64(", Nest::text_of(element), ")")}, to);
  to.arrays.push_back({Call{concat(bits, ".unpack(", name, dropout.empty() ? "" : ", ", dropout, ")")}});
  return name;
}

std::string Accesses::lane_suffix(const Segment& segment) const {
  return segment.loop || map_.rows_in_lanes ? "[l]" : "[0]";
}

}  // namespace millrace::codegen
