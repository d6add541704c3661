#include "codegen/cuda/accesses.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"

namespace millrace::codegen {
namespace {

constexpr int64_t kMostEarly = 32;  // elements of a tensor that a thread loads at the beginning of a row

// What every address of an access is a multiple of, in bytes.
int64_t alignment_of(const ThreadMapping& map, const Port& port, const std::vector<int>& indices, int vector) {
  const int64_t size = bytes_of(map.graph.tensor(port.tensor).dtype);
  int64_t aligned = std::gcd(kWideBytes, stored_bytes(map.graph, port.tensor, port.layout));
  for (const auto& [index, stride] : Nest::index_strides(indices, port.strides)) {
    if (map.extent(index) > 1) aligned = std::gcd(aligned, size * stride * (index == vector ? map.width(vector) : 1));
  }
  return aligned;
}

std::string access_text(const ThreadMapping& map, int port, const std::vector<int>& indices, int vector) {
  const Port& accessed = map.ports[Nest::at(port)];
  return concat(map.width(vector), ", ", Nest::stride_along(vector, indices, accessed.strides), ", ",
                alignment_of(map, accessed, indices, vector));
}

}  // namespace

std::string elements_type(const ThreadMapping& map, int port, const std::vector<int>& indices, int vector) {
  return concat("mr::Elements<", map.type_of(map.ports[Nest::at(port)]), ", ", access_text(map, port, indices, vector),
                ">");
}

std::string offset_text(const ThreadMapping& map, int port, const std::vector<int>& indices) {
  return concat("I(", Nest::sum_of(Nest::index_strides(indices, map.ports[Nest::at(port)].strides)), ")");
}

Store store_of(const ThreadMapping& map, int port, const std::vector<int>& indices, int vector,
               const std::string& values) {
  return {access_text(map, port, indices, vector), concat("p", port), offset_text(map, port, indices), values};
}

// --- Loads ---

std::string Accesses::loaded(int port, const std::vector<int>& indices, SegmentStatements& to) {
  const std::string key = concat("p", port, ":", join(indices, ","));
  std::string& element = to.loaded[key];
  if (!element.empty()) return element;
  if (map_.ports[Nest::at(port)].layout.storage != MaskStorage::words)
    return element = stored_mask(port, indices, to) + lane_suffix(to.segment);
  const std::string type = elements_type(map_, port, indices, map_.vector_of(to.segment));
  const std::string vector = place_load(key, type, concat("p", port), offset_text(map_, port, indices), to);
  return element = concat(vector, ".get<F>(", to.segment.loop || map_.rows_in_lanes ? "l" : "0", ")");
}

// A row that stays in registers is loaded at its beginning, or with the row before: a load after a reduction would
// add its latency. Other loads are next to their use. `type`: what is loaded into.
std::string Accesses::place_load(const std::string& key, const std::string& type, const std::string& pointer,
                                 const std::string& offset, SegmentStatements& to) {
  const Segment& segment = to.segment;
  if (!segment.loop || !map_.unrolled(segment)) {
    const std::string name = concat("x", load_count_++);
    to.loads.push_back({Declare{type, name}});
    to.loads.push_back({Load{name, pointer, offset}});
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
    to.next_row_loads.push_back({Load{concat("next_", name, "[p]"), pointer, offset}});
  } else {
    const bool few = !map_.flat && vectors * map_.width_of(segment) <= kMostEarly;
    (few ? to.row_loads : to.loads).push_back({Load{known, pointer, offset}});
  }
  return known;
}

// --- Stores ---

void Accesses::store(const PlacedInstruction& placed, const std::string& name, SegmentStatements& to) const {
  const Segment& segment = to.segment;
  const Access& access = map_.op(placed.member).outputs[Nest::at(placed.instruction.target)];
  const int port = map_.port_of(access.tensor, true);
  if (port < 0) return;
  const MaskStorage storage = map_.ports[Nest::at(port)].layout.storage;
  if (storage == MaskStorage::regenerated) return;
  const std::vector<int> indices = map_.indices_along(placed.member, access);
  const bool carried = segment.loop && map_.schedule.carried.contains(Nest::value_of(placed));
  const std::string values = name + (carried ? "[p]" : "");
  Statement stored;
  if (storage == MaskStorage::bits)
    stored = stored_bits(placed, port, values);
  else if (!segment.loop && !map_.rows_in_lanes)
    stored = {Call{concat("mr::narrow(", name, ", p", port, "[", offset_text(map_, port, indices), "])")}};
  else
    stored = {store_of(map_, port, indices, map_.vector_of(segment), values)};
  const std::string guard = store_guard(segment);
  to.stores.push_back(guard.empty() ? stored : Statement{If{guard, {stored}, Braces::none}});
}

// One thread of a row stores what the row has once; threads without a row store nothing.
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
      concat("U(", Nest::sum_of(mask_strides(mask, map_.indices_along(placed.member, access))), ")");
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

// How far a mask's element number moves with each index.
std::map<int, int64_t> Accesses::mask_strides(TensorId mask, const std::vector<int>& indices) const {
  return Nest::index_strides(indices, strides_of(map_.graph, mask, written_layout(map_.graph, mask)));
}

// Whether the vector index runs along a mask's neighbours, and the first of every W begins a block of them.
bool Accesses::in_blocks(TensorId mask, const std::vector<int>& indices, int vector, int64_t block) const {
  const std::map<int, int64_t> strides = mask_strides(mask, indices);
  if (!strides.contains(vector)) return false;
  return std::all_of(strides.begin(), strides.end(), [&](const auto& entry) {
    const auto [index, stride] = entry;
    return index == vector ? stride == 1 && map_.width(vector) <= 8 : stride % block == 0 || map_.extent(index) == 1;
  });
}

std::string Accesses::draw_call(const std::string& name, TensorId mask, const std::vector<int>& indices, int vector,
                                const std::string& dropout) const {
  const std::map<int, int64_t> strides = mask_strides(mask, indices);
  const int64_t width = map_.width(vector);
  const bool whole = (width == 4 || width == 8) && in_blocks(mask, indices, vector, width);
  const auto along = strides.find(vector);
  const int64_t stride = along == strides.end() ? 0 : along->second;
  return concat("mr::draw<", width, ", ", stride, ", ", whole ? "true" : "false", ">(", name, ", mr::u64(",
                Nest::sum_of(strides), "), ", dropout, ")");
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
        draw_call(name, mask, map_.indices_along(member, op.outputs[1]), vector, dropout_name(op));
    to.arrays.push_back({Declare{"const mr::u32", name + "_bits", drawn}});
  }
  return name + lane_suffix(to.segment);
}

std::string Accesses::stored_mask(int port, const std::vector<int>& indices, SegmentStatements& to) {
  const Port& from = map_.ports[Nest::at(port)];
  const TensorId mask = from.tensor;
  const Operator* const op = dropout_of(map_.graph, mask);
  const std::string dropout = op == nullptr ? "" : dropout_name(*op);
  const std::string name = concat("m", mask_count_++);
  const int vector = map_.vector_of(to.segment);
  to.arrays.push_back({Declare{"F", concat(name, "[", map_.width(vector), "]")}});
  if (from.layout.storage == MaskStorage::regenerated) {
    to.arrays.push_back({Call{draw_call(name, mask, indices, vector, dropout)}});
    return name;
  }
  const std::map<int, int64_t> strides = mask_strides(mask, indices);
  const int64_t run = map_.graph.extent(map_.graph.tensor(mask).dims.back());
  const auto along = strides.find(vector);
  const bool whole = run % 8 == 0 && in_blocks(mask, indices, vector, map_.width(vector));
  const std::string type = concat("mr::MaskBits<", map_.width(vector), ", ", along == strides.end() ? 0 : along->second,
                                  ", ", run, ", ", whole ? "true" : "false", ">");
  const std::string bits = place_load(concat("p", port, ":", join(indices, ",")), type, concat("p", port),
                                      concat("mr::u64(", Nest::sum_of(strides), ")"), to);
  to.arrays.push_back({Call{concat(bits, ".unpack(", name, dropout.empty() ? "" : ", ", dropout, ")")}});
  return name;
}

std::string Accesses::lane_suffix(const Segment& segment) const {
  return segment.loop || map_.rows_in_lanes ? "[l]" : "[0]";
}

}  // namespace millrace::codegen
