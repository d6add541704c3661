#include "codegen/cpu/attention_rows.h"

#include <algorithm>

#include "base/position.h"
#include "base/text.h"
#include "codegen/nest.h"
#include "codegen/score_text.h"

namespace millrace {
namespace {

using Kind = RowNode::Kind;

}  // namespace

size_t CpuRowFormulas::position_of(TensorId tensor) const { return position_in(partition_.reads, tensor); }

std::string CpuRowFormulas::element_type(size_t term) const {
  return std::string(codegen::storage_name(graph_.tensor(rows_.terms[term].tensor).dtype));
}

std::vector<int64_t> CpuRowFormulas::strides_of_term(size_t term) const {
  const TensorId tensor = rows_.terms[term].tensor;
  return strides_of(graph_, tensor, layouts_[position_of(tensor)]);
}

void CpuRowFormulas::add_values(std::vector<KernelValue>& values) {
  const auto add = [&](int64_t number) { values.push_back({TensorId(), static_cast<double>(number)}); };
  for (size_t term = 0; term < rows_.terms.size(); ++term) {
    const std::vector<int64_t> all = strides_of_term(term);
    const AttentionAxes& axes = rows_.terms[term].axes;
    const auto stride = [&](int axis) { return axis < 0 ? 0 : all[as_index(axis)]; };
    strides_.push_back(values.size());
    add(stride(axes.row()));
    for (const int axis : axes.batch) add(stride(axis));
  }
  for (const RowPiece& piece : rows_.pieces) {
    nodes_.emplace_back();
    for (const RowNode& node : piece.nodes) {
      nodes_.back().push_back(values.size());
      if (has_number(node)) values.push_back({node.number, node.value});
      if (node.kind != Kind::element) continue;
      const std::vector<int64_t> all = strides_of_term(node.term);
      int64_t offset = 0;
      int64_t step = 0;
      for (const RowPosition& position : node.positions) {
        offset += position.first * all[as_index(position.axis)];
        step += position.step * all[as_index(position.axis)];
      }
      add(offset);
      add(step);
    }
  }
}

std::string CpuRowFormulas::value_text(const RowPiece& piece, size_t piece_number, size_t node) const {
  const RowNode& own = piece.nodes[node];
  const std::string name = concat(piece_number, "_", node);
  switch (own.kind) {
    case Kind::number: return concat("mr::splat<E>(c", name, ")");
    case Kind::element: return concat("t", own.term, ".at(row, o", name, ", s", name, ", i, lanes)");
    case Kind::gradient:
      return concat("mr::row_lanes(from + ", own.positions[0].first, ", ", own.positions[0].step, ", i, lanes)");
    case Kind::apply: break;
  }
  return formula_text(own.op, own.value, own.inputs, concat("c", name));
}

std::string CpuRowFormulas::piece_text(size_t number) const {
  const RowPiece& piece = rows_.pieces[number];
  std::string text = concat("    for (long i = 0; i < ", piece.count, "; i += mr::kLanes<float>) {\n",
                            "      const long lanes = ", piece.count, " - i;\n");
  for (size_t k = 0; k < piece.nodes.size(); ++k)
    text += concat("      const E v", k, " = ", value_text(piece, number, k), ";\n");
  const std::string column = concat(piece.first, " + i * ", piece.step);
  const std::string value = concat("v", piece.nodes.size() - 1);
  return concat(text,
                is_stored()
                    ? concat("      mr::store_row_lanes(to.at(row, ", column, "), ", piece.step, " * to.column, ",
                             value, ", lanes);\n")
                    : concat("      mr::store_row_lanes(to + ", column, ", ", piece.step, ", ", value, ", lanes);\n"),
                "    }\n");
}

std::string CpuRowFormulas::definition(const std::string& name) const {
  std::string text = concat("struct ", name, " {\n  static constexpr long kColumns = ", columns_of(rows_), ";\n");
  const DType stored = graph_.tensor(partition_.attention.tensors[operand_]).dtype;
  if (is_stored()) text += concat("  mr::Matrix<", codegen::storage_name(stored), "> to;\n");
  for (size_t k = 0; k < rows_.terms.size(); ++k) text += concat("  mr::RowTerm<", element_type(k), "> t", k, ";\n");
  for (size_t piece = 0; piece < rows_.pieces.size(); ++piece) {
    for (size_t node = 0; node < rows_.pieces[piece].nodes.size(); ++node) {
      const RowNode& own = rows_.pieces[piece].nodes[node];
      if (has_number(own)) text += concat("  float c", piece, "_", node, ";\n");
      if (own.kind == Kind::element) text += concat("  long o", piece, "_", node, ", s", piece, "_", node, ";\n");
    }
  }
  text +=
      concat("  MR_INLINE void ",
             is_stored() ? "store(long row, const float* __restrict from)" : "compute(long row, float* __restrict to)",
             " const {\n    using F = float;\n    using E = mr::VecF;\n");
  for (size_t piece = 0; piece < rows_.pieces.size(); ++piece) text += piece_text(piece);
  return text + "  }\n};\n";
}

std::string CpuRowFormulas::members(const HeadOffset& head_offset) const {
  std::vector<std::string> members;
  for (size_t k = 0; k < rows_.terms.size(); ++k) {
    const AttentionTensor& term = rows_.terms[k];
    members.push_back(concat("{static_cast<const ", element_type(k), "*>(args->tensors[", position_of(term.tensor),
                             "]) + ", head_offset(term.axes, strides_[k] + 1), ", value(", strides_[k], ")}"));
  }
  for (size_t piece = 0; piece < rows_.pieces.size(); ++piece) {
    for (size_t node = 0; node < rows_.pieces[piece].nodes.size(); ++node) {
      const RowNode& own = rows_.pieces[piece].nodes[node];
      const size_t first = nodes_[piece][node];
      if (has_number(own)) members.push_back(concat("float(args->values[", first, "])"));
      if (own.kind == Kind::element) members.push_back(concat("value(", first, "), value(", first + 1, ")"));
    }
  }
  return join(members, ", ");
}

}  // namespace millrace
