#include "codegen/nest_writer.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {

NestWriter::NestWriter(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                       const KernelConfig& config)
    : graph_(graph), partition_(partition), config_(config) {
  for (const bool written : {false, true}) {
    for (const TensorId tensor : written ? partition.writes : partition.reads) {
      const Layout& layout = layouts[ports_.size()];
      ports_.push_back({tensor, written, layout, strides_of(graph, tensor, layout)});
      if (graph.tensor(tensor).dtype == DType::float64) real_ = "double";
    }
  }
  lanes_ = config.rows && config.vector != kNoIndex && partition.space[at(config.vector)].outer;
  for (size_t k = 0; k < partition.space.size(); ++k)
    rows_.inner.push_back(config.rows ? !partition.space[k].outer : static_cast<int>(k) == config.vector);
  loops_ = config.loops;
  if (!config.rows && config.vector != kNoIndex) {
    loops_.erase(std::find(loops_.begin(), loops_.end(), config.vector));
    loops_.push_back(config.vector);
  }
  schedule_ = schedule_of(graph, partition, rows_, loops_);
}

std::string NestWriter::index_name(int index) { return concat("i", index); }

void NestWriter::line(std::string& text, int depth, const std::string& content) {
  text += std::string(static_cast<size_t>(2 * depth), ' ') + content + "\n";
}

std::string NestWriter::storage_name(DType dtype) {
  switch (dtype) {
    case DType::float64: return "double";
    case DType::float32: return "float";
    case DType::float16: return "mr::f16";
    case DType::bfloat16: return "mr::bf16";
    case DType::boolean: return "mr::u8";
  }
  return "";
}

std::string NestWriter::replaced(std::string text, const std::string& token, const std::string& by) {
  for (size_t at = text.find(token); at != std::string::npos; at = text.find(token, at + by.size()))
    text.replace(at, token.size(), by);
  return text;
}

int64_t NestWriter::points(const std::vector<int>& indices) const {
  int64_t count = 1;
  for (const int index : indices) count *= extent(index);
  return count;
}

std::string NestWriter::type_of(const Port& port) const {
  if (port.layout.storage == MaskStorage::bits) return "mr::u8";
  return storage_name(graph_.tensor(port.tensor).dtype);
}

int NestWriter::port_of(TensorId tensor, bool written) const {
  for (size_t k = 0; k < ports_.size(); ++k) {
    if (ports_[k].tensor == tensor && ports_[k].written == written) return static_cast<int>(k);
  }
  return -1;
}

std::vector<int> NestWriter::indices_along(int member, const Access& access) const {
  std::vector<int> indices;
  for (const int index : access.axes)
    indices.push_back(index == kFixed ? kNoIndex : partition_.index_of[at(member)][at(index)]);
  return indices;
}

std::vector<int> NestWriter::own_indices(TensorId tensor) const {
  std::vector<int> indices;
  int next = 0;
  for (const DimId dim : graph_.tensor(tensor).dims) indices.push_back(graph_.extent(dim) == 1 ? kNoIndex : next++);
  return indices;
}

std::map<int, int64_t> NestWriter::steps_of(const std::vector<int>& indices, const std::vector<int64_t>& strides) {
  std::map<int, int64_t> steps;
  for (size_t axis = 0; axis < indices.size(); ++axis) {
    if (indices[axis] != kNoIndex) steps[indices[axis]] += strides[axis];
  }
  return steps;
}

std::string NestWriter::sum_of(const std::map<int, int64_t>& steps) {
  std::vector<std::string> terms;
  for (const auto& [index, step] : steps) terms.push_back(concat(step, " * ", index_name(index)));
  return terms.empty() ? "0" : join(terms, " + ");
}

int64_t NestWriter::step_along(int index, const std::vector<int>& indices, const std::vector<int64_t>& strides) {
  int64_t step = 0;
  for (size_t axis = 0; axis < indices.size(); ++axis) {
    if (index != kNoIndex && indices[axis] == index) step += strides[axis];
  }
  return step;
}

std::vector<int> NestWriter::outer_loops() const {
  std::vector<int> outer;
  for (const int index : loops_) {
    if (!rows_.inner[at(index)]) outer.push_back(index);
  }
  return outer;
}

std::string NestWriter::place_in(const std::vector<int>& indices, int64_t stride) const {
  std::vector<std::string> terms;
  for (size_t k = indices.size(); k-- > 0;) {
    terms.push_back(concat(stride, " * ", index_name(indices[k])));
    stride *= extent(indices[k]);
  }
  return terms.empty() ? "0" : join(terms, " + ");
}

size_t NestWriter::number_value(const KernelValue& value) {
  for (size_t k = 0; k < made_.values.size(); ++k) {
    if (made_.values[k].scalar == value.scalar && made_.values[k].value == value.value && !value.scalar.valid())
      return k;
    if (value.scalar.valid() && made_.values[k].scalar == value.scalar) return k;
  }
  made_.values.push_back(value);
  return made_.values.size() - 1;
}

int64_t NestWriter::reduced_points(int member) const {
  int64_t count = 1;
  for (size_t index = 0; index < op(member).space.size(); ++index) {
    if (op(member).reduced[index]) count *= graph_.extent(op(member).space[index]);
  }
  return count;
}

std::string NestWriter::value_name(const StepValue& value) {
  const char* kind = value.kind == StepValue::Kind::output ? "y" : value.kind == StepValue::Kind::row ? "r" : "t";
  return concat(kind, value.member, "_", value.number);
}

StepValue NestWriter::value_of(const PlacedStep& placed) {
  const StepKind kind = placed.step.kind;
  const bool output = kind == StepKind::map || kind == StepKind::row_map;
  return {output                        ? StepValue::Kind::output
          : kind == StepKind::temporary ? StepValue::Kind::temporary
                                        : StepValue::Kind::row,
          placed.member, placed.step.target};
}

std::string NestWriter::identity(StepKind kind) {
  if (kind == StepKind::sum) return "F(0)";
  return kind == StepKind::maximum ? "F(-mr::infinity())" : "F(mr::infinity())";
}

std::string NestWriter::operation(StepKind kind) {
  if (kind == StepKind::sum) return "mr::Sum";
  return kind == StepKind::maximum ? "mr::Largest" : "mr::Smallest";
}

std::optional<StepValue> NestWriter::made_inside(TensorId tensor) const {
  for (int k = 0; k < static_cast<int>(partition_.members.size()); ++k) {
    for (size_t output = 0; output < op(k).outputs.size(); ++output) {
      if (op(k).outputs[output].tensor == tensor)
        return StepValue{StepValue::Kind::output, k, static_cast<int>(output)};
    }
  }
  return std::nullopt;
}

std::vector<int> NestWriter::kept_by(int member) const {
  const std::vector<int>& reduced = schedule_.reduced[at(member)];
  const std::vector<int>& index_of = partition_.index_of[at(member)];
  std::vector<int> kept;
  for (const int index : loops_) {
    const bool there = std::find(index_of.begin(), index_of.end(), index) != index_of.end();
    if (there && std::find(reduced.begin(), reduced.end(), index) == reduced.end()) kept.push_back(index);
  }
  return kept;
}

}  // namespace millrace
