#include "measure/gpu/attention_row_tasks.h"

#include <algorithm>
#include <cmath>

#include "base/position.h"
#include "measure/row_values.h"

namespace millrace {

Result<double> AttentionRowTasks::size_of_elements(Attention::Operand operand, const DrawRules& rules) const {
  const RowExpression& expression = attention_.rows[operand];
  if (expression.empty()) return size_of(rules[attention_.tensors[operand].at()]);
  ReferenceData drawn;
  drawn.arguments = data_.numbers.arguments;
  drawn.inputs.resize(partition_.reads.size());
  for (const AttentionTensor& term : expression.terms) {
    const size_t position = position_in(partition_.reads, term.tensor);
    std::vector<double>& values = drawn.inputs[position];
    values.resize(static_cast<size_t>(elements_of(graph_, term.tensor)));
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(double));
    Result<Done> copied = context_.gpu.copy_out(values.data(), data_.inputs[position].data(), bytes);
    if (!copied) return copied.error();
  }
  return size_of_rows(graph_, partition_, operand, drawn);
}

Placed AttentionRowTasks::columns_at(const Placed& operand, int64_t first, int64_t step) const {
  Placed made{OracleTensor::of_values(operand.tensor.data), operand.walk};
  made.tensor.format = operand.tensor.format;
  made.walk.first += first * made.walk.strides[inner_];
  made.walk.strides[inner_] *= step;
  return made;
}

Result<Done> AttentionRowTasks::make_row_temporaries() {
  const auto make = [&](bool wanted, Placed& to, const Indices& indices) -> Result<Done> {
    if (!wanted) return Done{};
    Result<Placed> made = temporary(oracle::kExact, indices);
    if (!made) return made.error();
    to = std::move(*made);
    return Done{};
  };
  const bool q = computes(Attention::q);
  const bool k = computes(Attention::k);
  return in_order({[&] { return make_nodes(query_); }, [&] { return make_nodes(key_); },
                   [&] {
                     return make(q, q_error_, {query_, inner_});
                   },
                   [&] {
                     return make(k, k_error_, {key_, inner_});
                   },
                   [&] { return make(k, largest_k_error_, {inner_}); },
                   [&] { return make(q || k, score_error_, {query_}); }});
}

// Makes as many nodes as the longest piece has, for the columns of the longest one.
Result<Done> AttentionRowTasks::make_nodes(size_t row) {
  const int64_t inner = extents_[inner_];
  size_t most = 0;
  for (const auto operand : {Attention::q, Attention::k, Attention::d_q, Attention::d_k}) {
    if (row_index_of(operand) != row) continue;
    for (const RowPiece& piece : attention_.rows[operand].pieces) {
      most = std::max(most, piece.nodes.size());
      extents_[inner_] = std::max(extents_[inner_], piece.count);
    }
  }
  Result<Done> done = Done{};
  for (size_t k = 0; done && k < most; ++k) {
    Result<Placed> made = temporary(oracle::kBounded, {row, inner_});
    if (made)
      (row == query_ ? query_nodes_ : key_nodes_).push_back(std::move(*made));
    else
      done = made.error();
  }
  extents_[inner_] = inner;
  return done;
}

Result<Done> AttentionRowTasks::find_rows(Attention::Operand operand, Placed& to) {
  if (!computes(operand)) {
    to = at_point(input(operand));
    return Done{};
  }
  for (const RowPiece& piece : attention_.rows[operand].pieces) {
    if (Result<Done> done = find_columns(operand, piece, to); !done) return done;
  }
  return Done{};
}

Result<Done> AttentionRowTasks::find_columns(Attention::Operand operand, const RowPiece& piece, const Placed& to) {
  const Indices indices = {row_index_of(operand), inner_};
  const Placed one = one_number(1, extents_.size());
  const StorageError stored = storage_error_of(graph_.tensor(attention_.tensors[operand]).dtype);
  const Placed value = columns_at(to, piece.first, piece.step);
  const Placed error = columns_at(operand == Attention::q ? q_error_ : k_error_, piece.first, piece.step);
  return with_piece(operand, piece, nullptr, [&](const Placed& last) {
    return in_order({[&] {
                       return map(oracle::kErrorOfLogit, indices, {&last, &one}, error);
                     },
                     [&] { return linear(indices, error, 1, last, stored.relative, stored.absolute, error); },
                     [&] {
                       return map(oracle::kWithError, indices, {&last, &error}, value);
                     }});
  });
}

Result<Done> AttentionRowTasks::add_operand_errors(const Placed& q, const Placed& largest_k, double scale,
                                                   const Placed& errors) const {
  const auto add = [&](bool wanted, const Placed& left, const Placed& right) -> Result<Done> {
    if (!wanted) return Done{};
    Result<Done> done = fold(oracle::kMagnitude, {query_}, inner_, {&left, &right}, score_error_);
    return done ? linear({query_}, errors, 1, score_error_, std::abs(scale), 0, errors) : done;
  };
  const bool of_q = computes(Attention::q);
  const bool of_k = computes(Attention::k);
  return in_order({[&] {
                     return of_k ? fold(oracle::kLargestMagnitude, {inner_}, key_, {&k_error_}, largest_k_error_)
                                 : Result<Done>(Done{});
                   },
                   [&] { return add(of_q, q_error_, largest_k); },
                   [&] { return add(of_q && of_k, q_error_, largest_k_error_); },
                   [&] { return add(of_k, q, largest_k_error_); }});
}

Placed AttentionRowTasks::elements_at(const AttentionTensor& term, const std::vector<RowPosition>& positions) const {
  Placed made = term_values(term);
  const std::vector<int64_t> strides = strides_of(graph_, term.tensor, written_layout(graph_, term.tensor));
  for (const RowPosition& position : positions) {
    made.walk.first += position.first * strides[as_index(position.axis)];
    made.walk.strides[inner_] += position.step * strides[as_index(position.axis)];
  }
  return at_point(std::move(made));
}

Result<Placed> AttentionRowTasks::node_values(Attention::Operand operand, const RowNode& node, const Placed* gradient,
                                              const std::vector<Placed>& nodes) const {
  constexpr double kRoundoff = 0x1p-24;  // of float32
  switch (node.kind) {
    case RowNode::Kind::number:
      return one_number(node.number.valid() ? factor_of(graph_, {node.number}, data_.numbers) : node.value,
                        extents_.size());
    case RowNode::Kind::element: return elements_at(attention_.rows[operand].terms[node.term], node.positions);
    case RowNode::Kind::gradient: return columns_at(*gradient, node.positions[0].first, node.positions[0].step);
    case RowNode::Kind::apply: break;
  }
  std::vector<const Placed*> inputs;
  for (const size_t input : node.inputs) inputs.push_back(&nodes[input]);
  const size_t row = row_index_of(operand);
  Placed to = columns_at((row == query_ ? query_nodes_ : key_nodes_)[nodes.size()], 0, 1);
  Result<Done> done = map(static_cast<int>(node.op), {row, inner_}, inputs, to, [&](oracle::Task& made) {
    made.number = node.value;
    made.roundoff = kRoundoff;
  });
  if (!done) return done.error();
  return to;
}

Result<Done> AttentionRowTasks::with_piece(Attention::Operand operand, const RowPiece& piece, const Placed* gradient,
                                           const Use& use) {
  const int64_t inner = extents_[inner_];
  extents_[inner_] = piece.count;
  std::vector<Placed> nodes;
  Result<Done> done = Done{};
  for (size_t k = 0; done && k < piece.nodes.size(); ++k) {
    Result<Placed> made = node_values(operand, piece.nodes[k], gradient, nodes);
    if (made)
      nodes.push_back(std::move(*made));
    else
      done = made.error();
  }
  if (done) done = use(nodes.back());
  extents_[inner_] = inner;
  return done;
}

}  // namespace millrace
