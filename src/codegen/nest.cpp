#include "codegen/nest.h"

#include <algorithm>

#include "base/text.h"

namespace millrace::codegen {
std::string storage_name(DType dtype) {
  switch (dtype) {
    case DType::float64: return "double";
    case DType::float32: return "float";
    case DType::float16: return "mr::f16";
    case DType::bfloat16: return "mr::bf16";
    case DType::boolean: return "mr::u8";
    case DType::int32: return "mr::i32";
    case DType::int64: return "mr::i64";
  }
  return "";
}

void replace_all(std::string& text, const std::string& token, const std::string& by) {
  for (size_t at = text.find(token); at != std::string::npos; at = text.find(token, at + by.size()))
    text.replace(at, token.size(), by);
}

Nest::Nest(const NestInput& input) : graph(input.graph), partition(input.partition), config(input.config) {
  for (const bool written : {false, true}) {
    for (const TensorId tensor : written ? partition.writes : partition.reads) {
      const Layout& layout = input.layouts[ports.size()];
      ports.push_back({tensor, written, layout, strides_of(graph, tensor, layout)});
      if (graph.tensor(tensor).dtype == DType::float64) real = "double";
    }
  }
  rows_in_lanes = config.rows && config.vector != kNoIndex && partition.space[at(config.vector)].outer;
  for (size_t k = 0; k < partition.space.size(); ++k)
    row_shape.inner.push_back(config.rows ? !partition.space[k].outer : static_cast<int>(k) == config.vector);
  loops = config.loops;
  if (!config.rows && config.vector != kNoIndex) {
    loops.erase(std::find(loops.begin(), loops.end(), config.vector));
    loops.push_back(config.vector);
  }
  schedule = schedule_of(graph, partition, row_shape, loops);
}

std::string Nest::index_name(int index) { return concat("i", index); }

int64_t Nest::points(const std::vector<int>& indices) const {
  int64_t count = 1;
  for (const int index : indices) count *= extent(index);
  return count;
}

std::string Nest::type_of(const Port& port) const {
  if (port.layout.storage == MaskStorage::bits) return "mr::u8";
  return storage_name(graph.tensor(port.tensor).dtype);
}

namespace {

// The first port that matches; -1 if none does.
template <class Matches>
int find_port(const std::vector<Port>& ports, const Matches& matches) {
  const auto found = std::find_if(ports.begin(), ports.end(), matches);
  return found == ports.end() ? -1 : static_cast<int>(found - ports.begin());
}

}  // namespace

int Nest::read_port(TensorId tensor) const {
  return find_port(ports, [&](const Port& port) { return port.tensor == tensor && !port.written; });
}

int Nest::written_port(TensorId tensor) const {
  return find_port(ports, [&](const Port& port) { return port.tensor == tensor && port.written; });
}

Position Nest::own_index(int member, size_t index) const {
  const int shared = partition.index_of[at(member)][index];
  if (shared == kNoIndex) return {};
  const std::vector<std::vector<int64_t>>& shifts = partition.shift_of;
  return {{{shared, 1}}, shifts.empty() ? 0 : -shifts[at(member)][index]};
}

Positions Nest::positions_along(int member, const Access& access) const {
  std::vector<Position> own;
  for (size_t index = 0; index < op(member).space.size(); ++index) own.push_back(own_index(member, index));
  Positions positions;
  for (const Position& axis : access.axes) positions.push_back(substituted(axis, own));
  return positions;
}

Positions Nest::own_positions(TensorId tensor) const {
  Positions positions;
  int next = 0;
  for (const DimId dim : graph.tensor(tensor).dims) positions.emplace_back(graph.extent(dim) == 1 ? kFixed : next++);
  return positions;
}

Position Nest::element_of(const Positions& positions, const std::vector<int64_t>& strides) {
  Position sum;
  for (size_t axis = 0; axis < positions.size(); ++axis) sum.terms.push_back({static_cast<int>(axis), strides[axis]});
  return substituted(sum, positions);
}

std::string Nest::text_of(const Position& position) {
  std::vector<std::string> terms;
  for (const IndexTerm& term : position.terms) terms.push_back(concat(term.stride, " * ", index_name(term.index)));
  if (position.offset != 0 || terms.empty()) terms.push_back(concat(position.offset));
  return join(terms, " + ");
}

int64_t Nest::stride_along(int index, const Positions& positions, const std::vector<int64_t>& strides) {
  return index == kNoIndex ? 0 : element_of(positions, strides).stride_along(index);
}

std::vector<Guard> Nest::guards_of(int member) const {
  std::vector<Guard> guards;
  for (size_t index = 0; index < op(member).space.size(); ++index) {
    const Position own = own_index(member, index);
    const int64_t points = graph.extent(op(member).space[index]);
    if (!own.terms.empty() && (own.offset != 0 || extent(own.index()) != points)) guards.push_back({own, points});
  }
  return guards;
}

std::vector<Guard> Nest::inside(int member, size_t input) const {
  std::vector<Guard> guards;
  for (size_t index = 0; index < op(member).space.size(); ++index) {
    const Range& range = op(member).regions[input][index];
    if (range.length() == graph.extent(op(member).space[index])) continue;
    Position own = own_index(member, index);
    own.offset -= range.first;
    guards.push_back({own, range.length()});
  }
  return guards;
}

std::vector<Guard> Nest::guards_of_input(int member, size_t input) const {
  std::vector<Guard> guards = guards_of(member);
  if (op(member).kind != OperatorKind::join) return guards;
  for (Guard& guard : inside(member, input)) guards.push_back(std::move(guard));
  return guards;
}

bool Nest::changes_along(const std::vector<Guard>& guards, int index) {
  return index != kNoIndex && std::any_of(guards.begin(), guards.end(),
                                          [&](const Guard& guard) { return guard.position.stride_along(index) != 0; });
}

std::string Nest::condition_of(const std::vector<Guard>& guards, int moving, const std::string& lane) {
  std::vector<std::string> parts;
  for (const Guard& guard : guards) {
    std::string position = text_of(guard.position);
    const int64_t stride = moving == kNoIndex ? 0 : guard.position.stride_along(moving);
    if (stride != 0) position += concat(" + ", stride, " * ", lane);
    parts.push_back(concat("mr::is_inside(", position, ", ", guard.extent, ")"));
  }
  return parts.empty() ? "true" : join(parts, " && ");
}

std::vector<int> Nest::outer_loops() const {
  std::vector<int> outer;
  for (const int index : loops) {
    if (!row_shape.inner[at(index)]) outer.push_back(index);
  }
  return outer;
}

std::string Nest::offset_in(const std::vector<int>& indices, int64_t stride) const {
  std::vector<std::string> terms;
  for (size_t k = indices.size(); k-- > 0;) {
    terms.push_back(concat(stride, " * ", index_name(indices[k])));
    stride *= extent(indices[k]);
  }
  return terms.empty() ? "0" : join(terms, " + ");
}

int64_t Nest::reduced_points(int member) const {
  int64_t count = 1;
  for (size_t index = 0; index < op(member).space.size(); ++index) {
    if (op(member).reduced[index]) count *= graph.extent(op(member).space[index]);
  }
  return count;
}

std::string Nest::value_name(const NestValue& value) {
  const char* kind = value.kind == NestValue::Kind::output ? "y" : value.kind == NestValue::Kind::row ? "r" : "t";
  return concat(kind, value.member, "_", value.number);
}

NestValue Nest::value_of(const PlacedInstruction& placed) {
  const InstructionKind kind = placed.instruction.kind;
  const bool output = kind == InstructionKind::map || kind == InstructionKind::row_map;
  return {output                               ? NestValue::Kind::output
          : kind == InstructionKind::temporary ? NestValue::Kind::temporary
                                               : NestValue::Kind::row,
          placed.member, placed.instruction.target};
}

std::string Nest::identity(InstructionKind kind) {
  if (kind == InstructionKind::sum) return "F(0)";
  return kind == InstructionKind::maximum ? "F(-mr::infinity())" : "F(mr::infinity())";
}

std::string Nest::operation(InstructionKind kind) {
  if (kind == InstructionKind::sum) return "mr::Sum";
  return kind == InstructionKind::maximum ? "mr::Largest" : "mr::Smallest";
}

std::optional<NestValue> Nest::made_inside(TensorId tensor) const {
  for (int k = 0; k < static_cast<int>(partition.members.size()); ++k) {
    for (size_t output = 0; output < op(k).outputs.size(); ++output) {
      if (op(k).outputs[output].tensor == tensor)
        return NestValue{NestValue::Kind::output, k, static_cast<int>(output)};
    }
  }
  return std::nullopt;
}

std::vector<int> Nest::kept_by(int member) const {
  const std::vector<int>& reduced = schedule.reduced[at(member)];
  const std::vector<int>& index_of = partition.index_of[at(member)];
  std::vector<int> kept;
  for (const int index : loops) {
    const bool there = std::find(index_of.begin(), index_of.end(), index) != index_of.end();
    if (there && std::find(reduced.begin(), reduced.end(), index) == reduced.end()) kept.push_back(index);
  }
  return kept;
}

std::string Nest::expanded(const PlacedInstruction& placed, const OperandTexts& texts,
                           std::vector<KernelValue>& values) const {
  const Operator& own = op(placed.member);
  std::string text = placed.instruction.expression;
  const auto has = [&](const char* token) { return text.find(token) != std::string::npos; };
  std::map<std::string, std::string> names;
  for (const auto& [token, number] : operands_in(text)) {
    const std::string key = concat(token, number);
    if (names.contains(key)) continue;
    const auto kind = token == '%' ? NestValue::Kind::row : NestValue::Kind::temporary;
    names[key] = token == '$' ? texts.input(number) : texts.value({kind, placed.member, number});
  }
  for (const auto& [key, name] : names) replace_all(text, key, name);
  if (has("#")) replace_all(text, "#", concat(reduced_points(placed.member)));
  if (has("VALUE")) replace_all(text, "VALUE", concat("c", number_value(values, {TensorId(), own.value})));
  if (has("MASK")) replace_all(text, "MASK", texts.mask());
  if (own.kind == OperatorKind::join) {
    for (size_t input = 0; input < own.inputs.size(); ++input)
      replace_all(text, concat("INSIDE", input), texts.holds(inside(placed.member, input)));
  }
  const bool scatters = own.kind == OperatorKind::scatter_add;
  if (scatters)
    replace_all(text, "SELECTED(", concat("mr::selected(", graph.extent(own.space[at(own.gathered)]), ", "));
  if (has("POSITION")) replace_all(text, "POSITION", texts.position(scatters ? at(own.gathered) : 0));
  if (own.kind == OperatorKind::gather) {
    const size_t open = text.find('(') + 1;  // GATHERED(id)
    text = texts.gathered(text.substr(open, text.size() - open - 1));
  }
  if (has("CONDITION")) replace_all(text, "CONDITION", concat("(", condition(placed.member, texts.position), ")"));
  return text;
}

Nest::GatheredAccess Nest::gathered_access(int member) const {
  const Operator& own = op(member);
  const Access& table = own.inputs[0];
  GatheredAccess made;
  made.port = read_port(table.tensor);
  made.positions = positions_along(member, table);
  made.stride = ports[at(made.port)].strides[at(own.gathered)];
  made.extent = graph.extent(graph.tensor(table.tensor).dims[at(own.gathered)]);
  made.ids = positions_along(member, own.inputs[1]);
  made.guards = guards_of(member);
  return made;
}

std::string Nest::condition(int member, const std::function<std::string(size_t)>& position) const {
  const Operator& own = op(member);
  if (own.kind != OperatorKind::embed_diagonal)
    return position(own.space.size() - 1) + " > " + position(own.space.size() - 2);
  std::string equal;
  for (size_t index = 0; index < own.diagonal.size(); ++index) {
    if (own.diagonal[index] == static_cast<int>(index)) continue;
    equal += (equal.empty() ? "(" : " & (") + position(index) + " == " + position(at(own.diagonal[index])) + ")";
  }
  return equal.empty() ? "mr::position<E>(0) == mr::position<E>(0)" : equal;
}

std::optional<KernelValue> Nest::number_in(TensorId tensor) const {
  const Tensor& number = graph.tensor(tensor);
  if (number.role == TensorRole::constant) return KernelValue{TensorId(), number.value};
  if (number.role == TensorRole::scalar) return KernelValue{tensor, 0};
  return std::nullopt;
}

size_t number_value(std::vector<KernelValue>& values, const KernelValue& value) {
  for (size_t k = 0; k < values.size(); ++k) {
    if (values[k].scalar == value.scalar && values[k].value == value.value && !value.scalar.valid()) return k;
    if (value.scalar.valid() && values[k].scalar == value.scalar) return k;
  }
  values.push_back(value);
  return values.size() - 1;
}

}  // namespace millrace::codegen
