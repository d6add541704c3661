// Builds a RowExpression from the operators of a graph: column by column, and then columns of one form together.
// Test: tests/ir/row_expression_test.cpp
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ir/attention_roles.h"
#include "ir/row_expression.h"

namespace millrace {

// Whether an attention can apply such an operator to its rows.
bool applies_to_rows(OperatorKind kind);

// An axis of a tensor, for one column of an operand: it runs along a row or batch index, or has a fixed position.
struct RowAxis {
  Role role = kNoRole;
  int64_t position = 0;  // without a role

  auto operator<=>(const RowAxis&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one
};

class RowBuilder {
 public:
  // `allowed`: the operators that it may apply; the results of all others are read.
  RowBuilder(const Graph& graph, const std::vector<OperatorId>& producers, const std::set<OperatorId>& allowed)
      : graph_(graph), producers_(producers), allowed_(allowed) {}

  // Declares the gradient whose rows are given.
  void give(const AttentionTensor& gradient) { given_ = gradient; }

  // The expression of an operand's rows; nothing if its columns have too many forms.
  std::optional<RowExpression> build(const AttentionTensor& operand);

  // The operators that it applied, and those that it may not apply because their accesses leave the row.
  const std::set<OperatorId>& applied() const { return applied_; }
  const std::set<OperatorId>& failed() const { return failed_; }

 private:
  using Axes = std::vector<RowAxis>;

  Axes axes_at(const AttentionTensor& tensor, int64_t column) const;
  size_t add(TensorId tensor, const Axes& axes);
  size_t make(TensorId tensor, const Axes& axes);
  std::optional<size_t> apply(OperatorId producer, const Axes& axes);
  std::optional<size_t> join(const Operator& op, const std::vector<std::optional<RowAxis>>& indices);
  std::optional<size_t> read(const Operator& op, size_t input, const std::vector<std::optional<RowAxis>>& indices);
  std::optional<std::vector<std::optional<RowAxis>>> indices_of(const Operator& op, const Axes& axes) const;
  std::optional<RowAxis> axis_at(const Operator& op, const Position& position, int64_t extent,
                                 const std::vector<std::optional<RowAxis>>& indices) const;
  size_t add_element(TensorId tensor, const Axes& axes);
  std::optional<size_t> add_gradient(TensorId tensor, const Axes& axes);
  size_t add_number(TensorId number, double value);
  size_t add_node(RowNode node);
  bool runs_along_row(const Axes& axes) const;

  const Graph& graph_;
  const std::vector<OperatorId>& producers_;
  const std::set<OperatorId>& allowed_;
  AttentionTensor given_;
  size_t batch_indices_ = 0;
  Roles row_;                   // the roles of the operand's axes
  std::vector<RowNode> nodes_;  // of the column that is being built
  std::map<std::pair<TensorId, Axes>, size_t> known_;
  RowExpression made_;
  std::set<OperatorId> applied_;
  std::set<OperatorId> failed_;
};

}  // namespace millrace
