#include "measure/row_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "measure/attention_matrices.h"

namespace millrace {
namespace {

// The nodes of a piece as a graph: tensor k is node k, along rows and columns.
Graph graph_of_piece(const RowPiece& piece, int64_t rows) {
  const std::vector<DimId> dims = {DimId(0), DimId(1)};
  Graph made;
  made.dims = {{"row", rows}, {"column", piece.count}};
  for (size_t k = 0; k < piece.nodes.size(); ++k) {
    const RowNode& node = piece.nodes[k];
    Tensor tensor;
    tensor.dims = dims;
    tensor.role = node.kind == RowNode::Kind::apply ? TensorRole::computed : TensorRole::argument;
    made.tensors.push_back(std::move(tensor));
    if (node.kind != RowNode::Kind::apply) continue;
    Operator op;
    op.kind = node.op;
    op.value = node.value;
    op.space = dims;
    op.reduced.assign(dims.size(), false);
    for (const size_t input : node.inputs) op.inputs.push_back({TensorId(input), in_order(dims.size())});
    op.outputs = {{TensorId(k), in_order(dims.size())}};
    made.operators.push_back(std::move(op));
  }
  return made;
}

// The values of a node that no operator computes: [row][column].
std::vector<RowNumber> leaf_values(const Graph& graph, const RowExpression& expression, const RowPiece& piece,
                                   const RowNode& node, int64_t rows, const RowInputs& inputs,
                                   const ReferenceData& reference_data) {
  std::vector<RowNumber> made;
  made.reserve(static_cast<size_t>(rows * piece.count));
  if (node.kind == RowNode::Kind::number) {
    const double number = node.number.valid() ? factor_of(graph, {node.number}, reference_data) : node.value;
    made.assign(static_cast<size_t>(rows * piece.count), number);
    return made;
  }
  const bool element = node.kind == RowNode::Kind::element;
  const RowElements elements = element ? inputs.elements(expression.terms[node.term], node.positions) : RowElements();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < piece.count; ++i) {
      if (element)
        made.emplace_back(elements.first[row * elements.row + i * elements.step]);
      else
        made.push_back(inputs.gradient(row, node.positions[0].first + node.positions[0].step * i));
    }
  }
  return made;
}

}  // namespace

RowElements row_elements(const Graph& graph, const AttentionTensor& term, const std::vector<RowPosition>& positions,
                         const std::vector<double>& values, int64_t head) {
  RowElements made{values.data() + head, stride_along(graph, term.tensor, term.axes.row()), 0};
  for (const RowPosition& position : positions) {
    const int64_t stride = stride_along(graph, term.tensor, position.axis);
    made.first += position.first * stride;
    made.step += position.step * stride;
  }
  return made;
}

std::vector<RowNumber> row_values(const Graph& graph, const RowExpression& expression, int64_t rows,
                                  const RowInputs& inputs, const ReferenceData& reference_data) {
  const int64_t columns = columns_of(expression);
  std::vector<RowNumber> made(static_cast<size_t>(rows * columns), std::numeric_limits<double>::quiet_NaN());
  for (const RowPiece& piece : expression.pieces) {
    Values<RowNumber> values(piece.nodes.size());
    for (size_t k = 0; k < piece.nodes.size(); ++k) {
      if (piece.nodes[k].kind != RowNode::Kind::apply)
        values[k] = leaf_values(graph, expression, piece, piece.nodes[k], rows, inputs, reference_data);
    }
    if (!interpret(graph_of_piece(piece, rows), values, RandomState())) return made;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < piece.count; ++i)
        made[as_index(row * columns + piece.first + i * piece.step)] = values.back()[as_index(row * piece.count + i)];
    }
  }
  return made;
}

double size_of_rows(const Graph& graph, const Partition& partition, Attention::Operand operand,
                    const ReferenceData& reference_data) {
  const Attention& attention = partition.attention;
  const auto elements = [&](const AttentionTensor& term, const std::vector<RowPosition>& positions) {
    const auto found = std::find(partition.reads.begin(), partition.reads.end(), term.tensor);
    const auto number = static_cast<size_t>(found - partition.reads.begin());
    return row_elements(graph, term, positions, reference_data.inputs[number], 0);
  };
  const int64_t rows = operand == Attention::q ? attention.queries : attention.keys;
  double sum = 0;
  const std::vector<RowNumber> values =
      row_values(graph, attention.rows[operand], rows, {elements, nullptr}, reference_data);
  for (const RowNumber& x : values) sum += x.value * x.value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace millrace
