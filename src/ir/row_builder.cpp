#include "ir/row_builder.h"

#include <algorithm>

#include "ir/score_builder.h"

namespace millrace {
namespace {

using Nodes = std::vector<RowNode>;

// Whether it is the constant 0, which a padding has outside its input.
bool is_zero(const RowNode& node) {
  return node.kind == RowNode::Kind::number && !node.number.valid() && node.value == 0;
}

// The nodes that the last one needs, and the last one at the end.
Nodes needed_for(const Nodes& nodes, size_t last) {
  std::vector<bool> needed(nodes.size(), false);
  needed[last] = true;
  for (size_t k = last + 1; k-- > 0;) {
    for (const size_t input : nodes[k].inputs) needed[input] = needed[input] || needed[k];
  }
  std::vector<size_t> moved(nodes.size());
  Nodes made;
  for (size_t k = 0; k <= last; ++k) {
    if (!needed[k]) continue;
    moved[k] = made.size();
    made.push_back(nodes[k]);
    for (size_t& input : made.back().inputs) input = moved[input];
  }
  return made;
}

// --- Columns of one form ---

// Whether two columns differ in nothing but positions.
bool have_one_form(const Nodes& one, const Nodes& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](RowNode l, const RowNode& r) {
    if (l.positions.size() != r.positions.size()) return false;
    l.positions = r.positions;
    return l == r;
  });
}

// Each position's step from one column to the next.
Nodes with_steps(Nodes from, const Nodes& to) {
  for (size_t k = 0; k < from.size(); ++k) {
    for (size_t p = 0; p < from[k].positions.size(); ++p)
      from[k].positions[p].step = to[k].positions[p].first - from[k].positions[p].first;
  }
  return from;
}

bool is_at(const RowPiece& piece, int64_t number, const Nodes& nodes) {
  if (!have_one_form(piece.nodes, nodes)) return false;
  for (size_t k = 0; k < nodes.size(); ++k) {
    for (size_t p = 0; p < nodes[k].positions.size(); ++p) {
      const RowPosition& position = piece.nodes[k].positions[p];
      if (nodes[k].positions[p].first != position.first + number * position.step) return false;
    }
  }
  return true;
}

// The pieces whose columns are `step` apart.
std::vector<RowPiece> pieces_of(const std::vector<Nodes>& columns, int64_t step) {
  std::vector<RowPiece> pieces;
  std::vector<bool> done(columns.size(), false);
  const auto count = static_cast<int64_t>(columns.size());
  for (int64_t first = 0; first < count; ++first) {
    if (done[as_index(first)]) continue;
    RowPiece piece{first, step, 0, columns[as_index(first)]};
    for (int64_t column = first; column < count; column += step) {
      const Nodes& nodes = columns[as_index(column)];
      if (done[as_index(column)]) break;
      if (piece.count == 1 && have_one_form(piece.nodes, nodes)) piece.nodes = with_steps(piece.nodes, nodes);
      if (!is_at(piece, piece.count, nodes)) break;
      done[as_index(column)] = true;
      ++piece.count;
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace

bool applies_to_rows(OperatorKind kind) {
  const bool compares_positions = kind == OperatorKind::causal_mask || kind == OperatorKind::causal_mask_dx;
  return kind == OperatorKind::join || (applies_to_scores(kind) && !compares_positions);
}

std::optional<RowExpression> RowBuilder::build(const AttentionTensor& operand) {
  constexpr int64_t kMostColumns = 1024;
  constexpr size_t kMostNodes = 64;
  constexpr size_t kMostPieces = 8;
  constexpr int64_t kLongestStep = 4;
  int64_t count = graph_.extent(graph_.tensor(operand.tensor).dims[as_index(operand.axes.column)]);
  if (operand.axes.outer_column >= 0)
    count *= graph_.extent(graph_.tensor(operand.tensor).dims[as_index(operand.axes.outer_column)]);
  if (count > kMostColumns) return std::nullopt;
  batch_indices_ = operand.axes.batch.size();
  for (const RowAxis& axis : axes_at(operand, 0)) {
    if (axis.role != kNoRole) row_.push_back(axis.role);
  }
  std::vector<Nodes> columns;
  for (int64_t column = 0; column < count; ++column) {
    nodes_.clear();
    known_.clear();
    const size_t value = add(operand.tensor, axes_at(operand, column));
    columns.push_back(needed_for(nodes_, value));
    if (columns.back().size() > kMostNodes) return std::nullopt;
  }
  made_.pieces = pieces_of(columns, 1);
  for (int64_t step = 2; step <= kLongestStep; ++step) {
    std::vector<RowPiece> pieces = pieces_of(columns, step);
    if (pieces.size() < made_.pieces.size()) made_.pieces = std::move(pieces);
  }
  if (made_.pieces.size() > kMostPieces) return std::nullopt;
  return std::move(made_);
}

RowBuilder::Axes RowBuilder::axes_at(const AttentionTensor& tensor, int64_t column) const {
  const std::vector<DimId>& dims = graph_.tensor(tensor.tensor).dims;
  Axes axes(dims.size());
  const AttentionAxes& roles = tensor.axes;
  for (size_t k = 0; k < roles.batch.size(); ++k) {
    if (roles.batch[k] >= 0) axes[as_index(roles.batch[k])].role = static_cast<Role>(k);
  }
  axes[as_index(roles.row())].role = roles.query >= 0 ? kQueryRole : kKeyRole;
  const int64_t inner = graph_.extent(dims[as_index(roles.column)]);
  axes[as_index(roles.column)].position = column % inner;
  if (roles.outer_column >= 0) axes[as_index(roles.outer_column)].position = column / inner;
  return axes;
}

size_t RowBuilder::add(TensorId tensor, const Axes& axes) {
  const auto known = known_.find({tensor, axes});
  if (known != known_.end()) return known->second;
  const size_t made = make(tensor, axes);
  known_[{tensor, axes}] = made;
  return made;
}

size_t RowBuilder::make(TensorId tensor, const Axes& axes) {
  const TensorRole role = graph_.tensor(tensor).role;
  if (role == TensorRole::constant || role == TensorRole::scalar) return add_number(tensor, 0);
  if (tensor == given_.tensor) {
    if (const std::optional<size_t> made = add_gradient(tensor, axes)) return *made;
  }
  // A value that several rows share is read: it is not computed again for each of them.
  const OperatorId producer = producers_[tensor.at()];
  if (producer.valid() && allowed_.contains(producer) && runs_along_row(axes)) {
    if (const std::optional<size_t> made = apply(producer, axes)) {
      applied_.insert(producer);
      return *made;
    }
    failed_.insert(producer);
  }
  return add_element(tensor, axes);
}

bool RowBuilder::runs_along_row(const Axes& axes) const {
  Roles roles;
  for (const RowAxis& axis : axes) {
    if (axis.role != kNoRole) roles.push_back(axis.role);
  }
  return have_same_roles(roles, row_);
}

std::optional<size_t> RowBuilder::apply(OperatorId producer, const Axes& axes) {
  const Operator& op = graph_.operators[producer.at()];
  const auto indices = indices_of(op, axes);
  if (!indices) return std::nullopt;
  if (op.kind == OperatorKind::join) return join(op, *indices);
  if (op.kind == OperatorKind::copy) return read(op, 0, *indices);
  RowNode node;
  node.kind = RowNode::Kind::apply;
  node.op = op.kind;
  node.value = op.value;
  for (size_t input = 0; input < op.inputs.size(); ++input) {
    const std::optional<size_t> made = read(op, input, *indices);
    if (!made) return std::nullopt;
    node.inputs.push_back(*made);
  }
  if (op.kind == OperatorKind::add) {
    for (size_t zero = 0; zero < 2; ++zero) {
      if (is_zero(nodes_[node.inputs[zero]])) return node.inputs[1 - zero];
    }
  }
  return add_node(std::move(node));
}

// The input whose region contains the column. Nothing if a region depends on the row.
std::optional<size_t> RowBuilder::join(const Operator& op, const std::vector<std::optional<RowAxis>>& indices) {
  for (size_t input = 0; input < op.inputs.size(); ++input) {
    bool inside = true;
    for (size_t index = 0; index < indices.size(); ++index) {
      const Range& range = op.regions[input][index];
      const bool whole = range.first == 0 && range.last == graph_.extent(op.space[index]) - 1;
      if (whole) continue;
      if (!indices[index] || indices[index]->role != kNoRole) return std::nullopt;
      inside = inside && range.first <= indices[index]->position && indices[index]->position <= range.last;
    }
    if (inside) return read(op, input, indices);
  }
  return add_number({}, op.value);
}

std::optional<size_t> RowBuilder::read(const Operator& op, size_t input,
                                       const std::vector<std::optional<RowAxis>>& indices) {
  const Access& access = op.inputs[input];
  const std::vector<DimId>& dims = graph_.tensor(access.tensor).dims;
  Axes axes;
  for (size_t axis = 0; axis < access.axes.size(); ++axis) {
    const std::optional<RowAxis> at = axis_at(op, access.axes[axis], graph_.extent(dims[axis]), indices);
    if (!at) return std::nullopt;
    const bool twice = at->role != kNoRole && std::any_of(axes.begin(), axes.end(),
                                                          [&](const RowAxis& other) { return other.role == at->role; });
    if (twice) return std::nullopt;
    axes.push_back(*at);
  }
  return add(access.tensor, axes);
}

// The indices of the operator, from the axes of its result.
std::optional<std::vector<std::optional<RowAxis>>> RowBuilder::indices_of(const Operator& op, const Axes& axes) const {
  std::vector<std::optional<RowAxis>> indices(op.space.size());
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const Position& position = op.outputs[0].axes[axis];
    if (axes[axis].role != kNoRole) {
      if (!position.is_index() || position.index() == kFixed) return std::nullopt;
      indices[as_index(position.index())] = axes[axis];
      continue;
    }
    std::vector<IndexTerm> digits = position.terms;
    std::sort(digits.begin(), digits.end(), [](const auto& l, const auto& r) { return l.stride > r.stride; });
    int64_t rest = axes[axis].position - position.offset;
    for (const IndexTerm& digit : digits) {
      indices[as_index(digit.index)] = RowAxis{kNoRole, rest / digit.stride};
      rest %= digit.stride;
    }
  }
  return indices;
}

std::optional<RowAxis> RowBuilder::axis_at(const Operator& op, const Position& position, int64_t extent,
                                           const std::vector<std::optional<RowAxis>>& indices) const {
  RowAxis made{kNoRole, position.offset};
  for (const IndexTerm& term : position.terms) {
    const std::optional<RowAxis>& index = indices[as_index(term.index)];
    if (!index) return std::nullopt;
    if (index->role == kNoRole) {
      made.position += term.stride * index->position;
      continue;
    }
    if (!position.is_index() || graph_.extent(op.space[as_index(term.index)]) != extent) return std::nullopt;
    made.role = index->role;
  }
  return made;
}

size_t RowBuilder::add_number(TensorId number, double value) {
  RowNode node;
  node.number = number;
  node.value = value;
  return add_node(std::move(node));
}

std::optional<size_t> RowBuilder::add_gradient(TensorId tensor, const Axes& axes) {
  int64_t column = axes[as_index(given_.axes.column)].position;
  if (given_.axes.outer_column >= 0)
    column += axes[as_index(given_.axes.outer_column)].position *
              graph_.extent(graph_.tensor(tensor).dims[as_index(given_.axes.column)]);
  if (axes != axes_at(given_, column)) return std::nullopt;
  RowNode node;
  node.kind = RowNode::Kind::gradient;
  node.positions = {{0, column, 0}};
  return add_node(std::move(node));
}

size_t RowBuilder::add_element(TensorId tensor, const Axes& axes) {
  RowNode node;
  node.kind = RowNode::Kind::element;
  AttentionTensor term{tensor, {}};
  term.axes.batch.assign(batch_indices_, -1);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const int at = static_cast<int>(axis);
    switch (axes[axis].role) {
      case kNoRole: node.positions.push_back({at, axes[axis].position, 0}); break;
      case kQueryRole: term.axes.query = at; break;
      case kKeyRole: term.axes.key = at; break;
      default: term.axes.batch[as_index(axes[axis].role)] = at;
    }
  }
  const auto known = std::find(made_.terms.begin(), made_.terms.end(), term);
  node.term = static_cast<size_t>(known - made_.terms.begin());
  if (known == made_.terms.end()) made_.terms.push_back(std::move(term));
  return add_node(std::move(node));
}

size_t RowBuilder::add_node(RowNode node) {
  const auto known = std::find(nodes_.begin(), nodes_.end(), node);
  if (known != nodes_.end() && node.kind != RowNode::Kind::apply) return static_cast<size_t>(known - nodes_.begin());
  nodes_.push_back(std::move(node));
  return nodes_.size() - 1;
}

}  // namespace millrace
