#include "codegen/cuda/attention_rows.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/position.h"
#include "base/text.h"
#include "codegen/nest.h"
#include "codegen/score_text.h"

namespace millrace {
namespace {

using NodeKind = RowNode::Kind;

constexpr int64_t kWidestAccess = 16;  // bytes
constexpr int64_t kLongestStep = 4;    // of neighbours that are read together

// The largest power of two, up to an access, that divides all of these numbers of bytes.
int64_t aligned(const std::vector<int64_t>& bytes) {
  int64_t made = kWidestAccess;
  for (const int64_t each : bytes) made = std::gcd(made, each);
  return made;
}

}  // namespace

CudaRowFormulas::CudaRowFormulas(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                 Attention::Operand operand, std::string integer)
    : graph_(graph),
      partition_(partition),
      rows_(partition.attention.rows[operand]),
      layouts_(layouts),
      operand_(operand),
      integer_(std::move(integer)) {
  const std::optional<std::vector<RowVectors>> columns = row_vectors(rows_);
  if (!columns) return;  // no candidate has such rows
  for (const RowVectors& each : *columns) {
    vectors_.push_back({each, {}, {}});
    find_sources(vectors_.back());
  }
}

void CudaRowFormulas::find_sources(Vectors& vectors) const {
  for (const RowRun& run : vectors.columns.runs) {
    vectors.reads.emplace_back();
    for (const size_t piece : run.pieces) {
      for (const RowNode& node : rows_.pieces[piece].nodes)
        vectors.reads.back().push_back(node.positions.empty() && node.kind != NodeKind::element
                                           ? Read()
                                           : read_of(node, rows_.pieces[piece].count, vectors));
    }
  }
}

CudaRowFormulas::Read CudaRowFormulas::read_of(const RowNode& node, int64_t count, Vectors& vectors) const {
  Read made;
  const Source source = source_of(node, count, made.phase);
  const auto known = std::find(vectors.sources.begin(), vectors.sources.end(), source);
  made.source = static_cast<size_t>(known - vectors.sources.begin());
  if (known == vectors.sources.end()) vectors.sources.push_back(source);
  return made;
}

// If the axis has all neighbours of a number, they are read together, because another node may need the rest.
CudaRowFormulas::Source CudaRowFormulas::source_of(const RowNode& node, int64_t count, int64_t& phase) const {
  Source made;
  made.gradient = node.kind == NodeKind::gradient;
  made.term = made.gradient ? 0 : node.term;
  const std::vector<int64_t> strides = made.gradient ? std::vector<int64_t>{1} : strides_of_term(node.term);
  const RowPosition* moving = nullptr;
  size_t moving_count = 0;
  for (const RowPosition& position : node.positions) {
    made.offset += position.first * strides[as_index(position.axis)];
    made.step += position.step * strides[as_index(position.axis)];
    if (position.step == 0) continue;
    moving = &position;
    ++moving_count;
  }
  if (moving_count == 0) return made;
  made.kind = Source::Kind::strided;
  if (moving_count > 1 || strides[as_index(moving->axis)] != 1 || moving->step < 1 || moving->step > kLongestStep)
    return made;
  const int64_t extent = made.gradient
                             ? partition_.attention.inner
                             : graph_.extent(graph_.tensor(rows_.terms[node.term].tensor).dims[as_index(moving->axis)]);
  const int64_t rest = moving->first % moving->step;
  if (moving->first - rest + moving->step * count > extent) return made;
  made.kind = Source::Kind::neighbours;
  made.offset -= rest;
  phase = rest;
  return made;
}

size_t CudaRowFormulas::position_of(TensorId tensor) const { return position_in(partition_.reads, tensor); }

std::string CudaRowFormulas::element_type(size_t term) const {
  return codegen::storage_name(graph_.tensor(rows_.terms[term].tensor).dtype);
}

std::vector<int64_t> CudaRowFormulas::strides_of_term(size_t term) const {
  const TensorId tensor = rows_.terms[term].tensor;
  return strides_of(graph_, tensor, layouts_[position_of(tensor)]);
}

void CudaRowFormulas::add_values(std::vector<KernelValue>& values) {
  const auto add = [&](int64_t number) { values.push_back({TensorId(), encode_integer(number)}); };
  for (size_t term = 0; term < rows_.terms.size(); ++term) {
    const std::vector<int64_t> all = strides_of_term(term);
    const AttentionAxes& axes = rows_.terms[term].axes;
    const auto stride = [&](int axis) { return axis < 0 ? 0 : all[as_index(axis)]; };
    strides_.push_back(values.size());
    add(stride(axes.row()));
    for (const int axis : axes.batch) add(stride(axis));
  }
  for (const Vectors& vectors : vectors_) {
    offsets_.emplace_back();
    for (const Source& source : vectors.sources) {
      offsets_.back().push_back(values.size());
      if (source.gradient) continue;
      add(source.offset);
      if (source.kind == Source::Kind::strided) add(std::abs(source.step));
    }
  }
  for (const RowPiece& piece : rows_.pieces) {
    numbers_.emplace_back();
    for (const RowNode& node : piece.nodes) {
      numbers_.back().push_back(values.size());
      if (has_number(node)) values.push_back({node.number, node.value});
    }
  }
}

// The alignment, in bytes, of the first neighbour of each vector.
int64_t CudaRowFormulas::alignment(const Source& source, int64_t width) const {
  if (source.kind != Source::Kind::neighbours) return 0;
  if (source.gradient) return aligned({4 * source.offset, 4 * width * source.step});
  const AttentionTensor& term = rows_.terms[source.term];
  const int64_t size = bytes_of(graph_.tensor(term.tensor).dtype);
  const std::vector<int64_t> strides = strides_of_term(source.term);
  std::vector<int64_t> bytes = {size * source.offset, size * width * source.step};
  if (term.axes.row() >= 0) bytes.push_back(size * strides[as_index(term.axes.row())]);
  for (const int axis : term.axes.batch) bytes.push_back(axis < 0 ? 0 : size * strides[as_index(axis)]);
  return aligned(bytes);
}

// The alignment of the first neighbour of each vector that is stored.
int64_t CudaRowFormulas::stored_alignment(const RowRun& run, int64_t width) const {
  const int64_t length = width * std::ssize(run.pieces);
  if (!is_stored()) return aligned({2 * run.first, 2 * length});
  const TensorId tensor = partition_.attention.tensors[operand_];
  const std::vector<int64_t> strides =
      strides_of(graph_, tensor, layouts_[::millrace::position_of(partition_, operand_)]);
  const AttentionAxes& axes = partition_.attention.axes[operand_];
  std::vector<int64_t> bytes = {2 * run.first, 2 * length, 2 * strides[as_index(axes.row())]};
  for (const int axis : axes.batch) bytes.push_back(axis < 0 ? 0 : 2 * strides[as_index(axis)]);
  return aligned(bytes);
}

// --- Text ---

// "r0.load(m.t0.data, I(row) * m.t0.row + m.o0_0 + I(number) * 8, I(0))"
std::string CudaRowFormulas::load_text(size_t vectors, size_t number) const {
  const Source& source = vectors_[vectors].sources[number];
  const int64_t width = vectors_[vectors].columns.width;
  const std::string name = concat(vectors, "_", number);
  const std::string sign = source.step < 0 ? "-" : "";
  const std::string step = source.kind == Source::Kind::strided ? concat(sign, "m.s", name) : "I(0)";
  const std::string own = source.kind == Source::Kind::one          ? ""
                          : source.kind == Source::Kind::neighbours ? concat(" + I(number) * ", width * source.step)
                                                                    : concat(" + I(number) * ", width, " * ", step);
  return concat("r", number, ".load(m.t", source.term, ".data, I(row) * m.t", source.term, ".row + m.o", name, own,
                ", ", step, ");");
}

std::string CudaRowFormulas::node_text(const Vectors& vectors, size_t piece, size_t node, const Read& read) const {
  const RowNode& own = rows_.pieces[piece].nodes[node];
  const std::string number = concat("m.c", piece, "_", node);
  if (own.kind == NodeKind::number) return number;
  if (own.kind == NodeKind::apply) return formula_text(own.op, own.value, own.inputs, number);
  const Source& source = vectors.sources[read.source];
  const bool neighbours = source.kind == Source::Kind::neighbours;
  const std::string at = source.kind == Source::Kind::one ? "0"
                         : neighbours && source.step > 1  ? concat("l * ", source.step, " + ", read.phase)
                                                          : "l";
  if (!source.gradient) return concat("r", read.source, ".get(", at, ")");
  if (neighbours) return concat("r", read.source, "[", at, "]");
  return concat("place.at(own, ", source.offset, " + (number * ", vectors.columns.width, " + l) * ", source.step, ")");
}

// Computes a run's columns as x0, x1, ….
std::string CudaRowFormulas::run_text(const Vectors& vectors, size_t number) const {
  const RowRun& run = vectors.columns.runs[number];
  std::string text;
  size_t read = 0;
  for (size_t k = 0; k < run.pieces.size(); ++k) {
    const size_t piece = run.pieces[k];
    const size_t nodes = rows_.pieces[piece].nodes.size();
    text += concat("        MR_UNROLL\n        for (int l = 0; l < ", vectors.columns.width, "; ++l) {\n");
    for (size_t node = 0; node < nodes; ++node)
      text += concat("          const F v", node, " = ", node_text(vectors, piece, node, vectors.reads[number][read++]),
                     ";\n");
    text += concat("          x", number, "[l * ", run.pieces.size(), " + ", k, "] = v", nodes - 1, ";\n        }\n");
  }
  return text;
}

std::string CudaRowFormulas::vector_text(size_t number, const std::string& name) const {
  const Vectors& vectors = vectors_[number];
  const int64_t width = vectors.columns.width;
  std::string members;
  std::string loads;
  std::string gradients;
  for (size_t k = 0; k < vectors.sources.size(); ++k) {
    const Source& source = vectors.sources[k];
    const bool neighbours = source.kind == Source::Kind::neighbours;
    const int64_t count = source.kind == Source::Kind::one ? 1 : neighbours ? width * source.step : width;
    const int64_t align = alignment(source, width);
    if (source.gradient) {
      if (neighbours)
        gradients += concat("        float r", k, "[", count, "];\n        place.template load<", align, ">(r", k,
                            ", own, ", source.offset, " + number * ", count, ");\n");
      continue;
    }
    members += concat("    mr::RowElements<", element_type(source.term), ", ", count, ", ", align, "> r", k, ";\n");
    loads += concat("      ", load_text(number, k), "\n");
  }
  std::string runs;
  std::string values;
  std::string stores;
  for (size_t k = 0; k < vectors.columns.runs.size(); ++k) {
    const RowRun& run = vectors.columns.runs[k];
    const int64_t length = width * std::ssize(run.pieces);
    const std::string column = concat(run.first, " + number * ", length);
    values += concat("      float x", k, "[", length, "] = {};\n");
    runs += run_text(vectors, k);
    stores += is_stored() ? concat("      if (there) mr::store_row<", stored_alignment(run, width), ">(m.to, row, ",
                                   column, ", x", k, ");\n")
                          : concat("      place.template store<", stored_alignment(run, width), ">(own, ", column,
                                   ", x", k, ");\n");
  }
  return concat("  struct Vector", number, " {\n    static constexpr int kCount = ", vectors.columns.count, ";\n",
                members, "    MR_DEVICE void load(const ", name, "& m, int row, int number) {\n", loads,
                "    }\n    template <class Place>\n    MR_DEVICE void finish(const ", name,
                "& m, const Place& place, int row, int own, int number, bool there) const {\n      using F = float;\n"
                "      using E = F;\n",
                values, "      if (there) {\n", gradients, runs, "      }\n", stores, "    }\n  };\n");
}

std::string CudaRowFormulas::definition(const std::string& name, const std::string& matrix) const {
  const AttentionAxes& axes = partition_.attention.axes[operand_];
  const std::vector<int64_t> strides = strides_of(graph_, partition_.attention.tensors[operand_],
                                                  layouts_[::millrace::position_of(partition_, operand_)]);
  const char* const rows_first = strides[as_index(axes.column)] == 1 ? "false" : "true";
  std::string text =
      concat("struct ", name, " {\n  using I = ", integer_,
             ";\n  static constexpr bool kComputed = true;\n"
             "  static constexpr mr::Order kOrder = mr::Order::row_major;\n  static constexpr int kColumns = ",
             columns_of(rows_), ";\n");
  std::string vectors;
  std::string calls;
  if (is_stored()) text += concat("  ", matrix, " to;\n");
  for (size_t k = 0; k < rows_.terms.size(); ++k) text += concat("  mr::RowTerm<", element_type(k), ", I> t", k, ";\n");
  for (size_t k = 0; k < vectors_.size(); ++k) {
    for (size_t source = 0; source < vectors_[k].sources.size(); ++source) {
      const Source& own = vectors_[k].sources[source];
      if (own.gradient) continue;
      text += concat("  I o", k, "_", source, own.kind == Source::Kind::strided ? concat(", s", k, "_", source) : "",
                     ";\n");
    }
    vectors += vector_text(k, name);
    calls += concat("    rows.template do_all<Vector", k, ", ", rows_first, ">(*this, place);\n");
  }
  for (size_t piece = 0; piece < rows_.pieces.size(); ++piece) {
    for (size_t node = 0; node < rows_.pieces[piece].nodes.size(); ++node) {
      if (has_number(rows_.pieces[piece].nodes[node])) text += concat("  float c", piece, "_", node, ";\n");
    }
  }
  return concat(text, vectors,
                "  template <class Rows, class Place>\n"
                "  MR_DEVICE void compute(const Rows& rows, const Place& place) const {\n",
                calls, "  }\n};\n");
}

std::string CudaRowFormulas::members(const ScoreFormulas::HeadOffset& offset_of) const {
  std::vector<std::string> members;
  const auto integer = [](size_t number) { return concat("mr::decode_integer(args.values[", number, "])"); };
  for (size_t k = 0; k < rows_.terms.size(); ++k) {
    const AttentionTensor& term = rows_.terms[k];
    members.push_back(concat("{static_cast<const ", element_type(k), "*>(args.tensors[", position_of(term.tensor),
                             "]) + (",
                             offset_of(term.axes, [&](size_t index) { return integer(strides_[k] + 1 + index); }),
                             "), S::I(", integer(strides_[k]), ")}"));
  }
  for (size_t k = 0; k < vectors_.size(); ++k) {
    for (size_t source = 0; source < vectors_[k].sources.size(); ++source) {
      const Source& own = vectors_[k].sources[source];
      if (own.gradient) continue;
      members.push_back(concat("S::I(", integer(offsets_[k][source]), ")"));
      if (own.kind == Source::Kind::strided) members.push_back(concat("S::I(", integer(offsets_[k][source] + 1), ")"));
    }
  }
  for (size_t piece = 0; piece < rows_.pieces.size(); ++piece) {
    for (size_t node = 0; node < rows_.pieces[piece].nodes.size(); ++node) {
      if (has_number(rows_.pieces[piece].nodes[node]))
        members.push_back(concat("static_cast<float>(args.values[", numbers_[piece][node], "])"));
    }
  }
  return join(members, ", ");
}

}  // namespace millrace
