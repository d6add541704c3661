#include "frontend/lower.h"

#include "base/text.h"
#include "frontend/annotations.h"
#include "frontend/lowerer.h"
#include "frontend/token_cursor.h"

namespace millrace {
namespace {

constexpr size_t kMaxLowered = 1000000;  // expressions, over all calls and iterations of loops

// Whether the annotation is a type of Python itself. A parameter of the entry function that has one and a default value
// keeps that value.
bool is_python_type(const Expression& annotation) {
  return annotation.kind == ExpressionKind::name && annotation.prefix.empty() &&
         (annotation.text == "int" || annotation.text == "float" || annotation.text == "bool" ||
          annotation.text == "tuple" || annotation.text == "list");
}

std::string result_name(const Expression& expression, size_t k, size_t count) {
  if (expression.kind == ExpressionKind::name && expression.prefix.empty()) return expression.text;
  return count == 1 ? "result" : concat("result_", k);
}

// `return a, (b, c)` has three: the expressions of nested tuples, in order.
void add_leaves(const Expression& expression, std::vector<const Expression*>& leaves) {
  if (expression.kind != ExpressionKind::tuple && expression.kind != ExpressionKind::list) {
    leaves.push_back(&expression);
    return;
  }
  for (const Expression& child : expression.children) add_leaves(child, leaves);
}

}  // namespace

Graph Lowerer::run() {
  for (const Function& function : module_.functions) functions_[function.name] = &function;
  for (const auto& [name, number] : numbers_) {
    if (number.integer) builder_.add_size(name, *number.integer);
  }
  const Function* const entry = entry_function();
  if (entry == nullptr) return {};
  builder_.graph.name = entry->name;
  Scope scope;
  for (const Parameter& parameter : entry->parameters) declare_argument(parameter, scope);
  if (diagnostics_.any()) return {};
  calls_.push_back(entry);
  lower_body(*entry, scope, "");
  add_results();
  builder_.judge_large_factors();
  return std::move(builder_.graph);
}

bool Lowerer::spend(size_t amount, SourceLocation location) {
  lowered_ += amount;
  if (lowered_ <= kMaxLowered) return true;
  if (!too_long_) {
    report(location, concat("the program has more than ", kMaxLowered, " expressions after inlining"),
           "calls are inlined: make fewer or less nested calls");
  }
  too_long_ = true;
  return false;
}

const Function* Lowerer::entry_function() {
  if (module_.functions.empty()) {
    if (!diagnostics_.any()) report({0}, "the program has no function", "write `def layer(x: float32[A, B]):`");
    return nullptr;
  }
  if (options_.entry.empty()) return &module_.functions.back();
  const auto found = functions_.find(options_.entry);
  if (found != functions_.end()) return found->second;
  std::vector<std::string> names;
  for (const Function& function : module_.functions) names.push_back(function.name);
  diagnostics_.report(concat("--entry ", options_.entry, ": unknown function"),
                      concat("functions: ", join(names, ", ")));
  return nullptr;
}

void Lowerer::declare_argument(const Parameter& parameter, Scope& scope) {
  if (scope.contains(parameter.name)) {
    report(parameter.location, concat("two parameters are named '", parameter.name, "'"), "rename one");
    return;
  }
  if (!parameter.annotation || (parameter.fallback && is_python_type(*parameter.annotation))) {
    if (parameter.fallback) {
      scope[parameter.name] = default_value(parameter);
    } else {
      report(parameter.location, concat("argument '", parameter.name, "' has no type"),
             concat("write `", parameter.name, ": float32[A, B]`"));
    }
    return;
  }
  const Expression& annotation = *parameter.annotation;
  if (parameter.fallback) {
    report(parameter.fallback->location,
           concat("the default value of '", parameter.name, "' is not used: plans take all arguments"),
           annotation.kind == ExpressionKind::index
               ? "remove it"
               : concat("remove it; for a constant write `", parameter.name, ": float = …`"));
    return;
  }
  const bool tensor = annotation.kind == ExpressionKind::index;
  const Expression& type = tensor ? annotation.children[0] : annotation;
  const std::optional<DType> dtype = annotated_dtype(type, options_.dtype, diagnostics_);
  if (!dtype) return;
  if (!tensor && !is_floating(*dtype)) {
    report(type.location, concat("'", type.text, "' has no sizes"),
           concat("write ", type.text, "[A, B], or float32 for a number that is passed by value"));
    return;
  }
  std::vector<DimId> dims;
  if (tensor) {
    std::optional<std::vector<DimId>> annotated = annotated_dims(annotation, numbers_, builder_, diagnostics_);
    if (!annotated) return;
    dims = std::move(*annotated);
  }
  const TensorId id =
      builder_.add_argument(parameter.name, *dtype, dims, tensor ? TensorRole::argument : TensorRole::scalar);
  const bool fixed = type.prefix == "fixed" || type.prefix.ends_with(".fixed") || !is_floating(*dtype);
  builder_.graph.tensors[id.at()].fixed = tensor && fixed;
  scope[parameter.name] = Value::of(builder_.whole(id));
}

// The entry function's return: every tensor of nested tuples is one result.
void Lowerer::lower_results(const Statement& statement, Scope& scope) {
  std::vector<const Expression*> leaves;
  add_leaves(statement.value, leaves);
  for (size_t k = 0; k < leaves.size(); ++k) {
    builder_.set_target(result_name(*leaves[k], k, leaves.size()));
    const size_t first_tensor = builder_.graph.tensors.size();
    const Value value = lower(*leaves[k], scope);
    builder_.name_result(value, first_tensor);
    flatten_result(*leaves[k], value);
  }
  if (results_.empty()) report(statement.location, "this return has no value", "write `return x` or `return x, y`");
}

void Lowerer::flatten_result(const Expression& expression, const Value& value) {
  if (value.kind != ValueKind::tuple) {
    results_.emplace_back(&expression, value);
    return;
  }
  for (const Value& item : *value.items) {
    if (!spend(1, expression.location)) return;
    flatten_result(expression, item);
  }
}

void Lowerer::add_results() {
  for (size_t k = 0; k < results_.size(); ++k) {
    const auto& [expression, value] = results_[k];
    if (value.kind == ValueKind::broken) continue;
    if (value.kind != ValueKind::view || is_boolean(value)) {
      report(expression->location, "a result must be a tensor", "return a value computed from the arguments");
      continue;
    }
    if (is_integer(builder_.graph.tensor(value.view.tensor).dtype)) {
      report(expression->location, "a result cannot be a tensor of integers", "write x.astype(float32)");
      continue;
    }
    const std::string name = result_name(*expression, k, results_.size());
    builder_.set_target(name);
    builder_.add_result(name, value.view, expression->location);
  }
}

Graph lower_module(const Module& module, const Numbers& numbers, const ProgramOptions& options,
                   Diagnostics& diagnostics) {
  return Lowerer(module, numbers, options, diagnostics).run();
}

}  // namespace millrace
