// The state of lowering a module and its steps, by file: lower.cpp (arguments and results), lower_statements.cpp,
// lower_expressions.cpp, lower_indices.cpp, lower_calls.cpp, inline_calls.cpp. Tests: tests/frontend/lower_test.cpp,
// syntax_test.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/builder.h"
#include "frontend/frontend.h"
#include "frontend/sizes.h"
#include "frontend/static_values.h"
#include "frontend/syntax.h"
#include "frontend/views.h"

namespace millrace {

class Lowerer {
 public:
  Lowerer(const Module& module, const Numbers& numbers, const ProgramOptions& options, Diagnostics& diagnostics)
      : module_(module), numbers_(numbers), options_(options), diagnostics_(diagnostics), builder_(diagnostics) {}

  Graph run();

 private:
  using Scope = std::map<std::string, Value>;

  Value report(SourceLocation location, std::string_view message, std::string_view remedy) {
    diagnostics_.report(location, message, remedy);
    return Value::broken();
  }

  // Counts work: expressions, iterations of loops, items copied. Reports once when there is too much of it.
  bool spend(size_t amount, SourceLocation location);

  // Arguments and results of the entry function.
  const Function* entry_function();
  void declare_argument(const Parameter& parameter, Scope& scope);
  void add_results();
  void flatten_result(const Expression& expression, const Value& value);

  // Statements. Those of a block return whether a `return` ended it. Names of tensors begin with `prefix`.
  void lower_body(const Function& function, Scope& scope, const std::string& prefix);
  bool lower_block(const std::vector<Statement>& statements, Scope& scope, const std::string& prefix);
  bool lower_statement(const Statement& statement, Scope& scope, const std::string& prefix);
  void lower_assignment(const Statement& statement, Scope& scope, const std::string& prefix);
  void lower_update(const Statement& statement, Scope& scope, const std::string& prefix);
  void lower_append(const Statement& statement, Scope& scope, const std::string& prefix);
  void lower_assertion(const Statement& statement, Scope& scope);
  bool lower_loop(const Statement& statement, Scope& scope, const std::string& prefix);
  bool lower_branch(const Statement& statement, Scope& scope, const std::string& prefix);
  void lower_return(const Statement& statement, Scope& scope, const std::string& prefix);
  void lower_results(const Statement& statement, Scope& scope);
  bool is_changeable(const Value& list, const std::string& name, SourceLocation location);
  void bind(const AssignmentTarget& target, const Value& value, Scope& scope);

  // Expressions.
  Value lower(const Expression& expression, Scope& scope);
  Value lower_name(const Expression& name, const Scope& scope);
  Value lower_unary(const Expression& expression, Scope& scope);
  Value lower_binary(const Expression& expression, Scope& scope);
  Value lower_tensors(const std::string& op, const Value& left, const Value& right, const Expression& expression);
  Value lower_power(const Value& base, const Value& exponent, SourceLocation location);
  Value lower_logical(const std::string& op, const std::vector<Value>& inputs, SourceLocation location);
  Value lower_product(const Value& left, const Value& right, const Expression& expression);
  Value lower_short_circuit(const Expression& expression, Scope& scope);
  Value lower_choice(const Expression& expression, Scope& scope);
  Value lower_sequence(const Expression& expression, Scope& scope);
  Value lower_comprehension(const Expression& expression, Scope& scope);
  Value lower_attribute(const Expression& expression, Scope& scope);
  // The value of a condition, which must be known here.
  std::optional<bool> lower_condition(const Expression& expression, Scope& scope);
  // The items that a loop runs over: a tuple's or list's, or x[0], x[1], … of a tensor.
  std::optional<std::vector<Value>> loop_items(const Value& value, SourceLocation location);
  bool is_arithmetic(const Value& value, SourceLocation location);
  bool is_boolean(const Value& value) const;

  // Indices.
  Value lower_index(const Expression& expression, Scope& scope);
  Value gather_at(const View& base, const View& indexed, const std::vector<IndexItem>& items, size_t place,
                  const Value& ids);
  Value index_sequence(const Value& base, const Expression& expression, Scope& scope);
  std::optional<IndexItem> index_item(const Expression& written, const Value& value, Scope& scope);
  std::optional<SliceBounds> slice_bounds(const Expression& slice, Scope& scope);
  std::optional<int64_t> static_integer(const Expression& expression, Scope& scope);

  // Calls.
  Value lower_call(const Expression& call, Scope& scope);
  Value lower_method(const Expression& call, Scope& scope);
  Value lower_cast(const Value& value, const Expression& call);
  Value cast_to(const Value& value, DType type, SourceLocation location);
  Value lower_static_call(const Expression& call, Scope& scope);
  Value lower_library_call(const Expression& call, Scope& scope);
  Value lower_einsum_call(const Expression& call, Scope& scope);
  std::vector<Value> lower_arguments(const Expression& call, Scope& scope);
  Value dispatch(const Expression& call, const std::vector<Value>& arguments);
  Value sum_of(const Value& sequence, SourceLocation location);
  Value call_built_in(const Expression& call, const std::vector<Value>& arguments);
  Value unknown_function(const Expression& call);
  Value foreign_function(const Expression& call);
  Value unknown_method(const Expression& call);
  std::optional<DType> type_argument(const Expression& type);

  // Inlining of the program's own functions.
  Value inline_call(const Expression& call, const Function& function, const std::vector<Value>& arguments);
  bool bind_parameters(const Expression& call, const Function& function, const std::vector<Value>& arguments,
                       Scope& scope);
  Value default_value(const Parameter& parameter);
  const std::map<std::string, size_t>& positions_of(const Function& function);
  bool fits_annotation(const Parameter& parameter, const Value& value, SourceLocation location);

  const Module& module_;
  const Numbers& numbers_;
  const ProgramOptions& options_;
  Diagnostics& diagnostics_;
  Builder builder_;
  std::map<std::string, const Function*> functions_;
  std::map<const Function*, std::map<std::string, size_t>> positions_;
  std::vector<const Function*> calls_;
  Value returned_;                                            // by the call that ended last
  std::vector<std::pair<const Expression*, Value>> results_;  // of the entry function
  size_t lowered_ = 0;
  bool too_long_ = false;
  bool lost_branch_ = false;  // a branch whose condition has an error may contain a return
};

}  // namespace millrace
