#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/text.h"
#include "frontend/annotations.h"
#include "frontend/functions.h"
#include "frontend/lowerer.h"
#include "frontend/not_covered.h"
#include "frontend/shape_functions.h"
#include "frontend/token_cursor.h"

namespace millrace {
namespace {

AssignmentTarget target_in(const Expression& expression) {
  AssignmentTarget target{expression.kind == ExpressionKind::name ? expression.text : "", expression.location, {}};
  for (const Expression& part : expression.children) target.parts.push_back(target_in(part));
  return target;
}

void add_bound_names(const AssignmentTarget& target, std::vector<std::string>& names) {
  if (target.parts.empty()) names.push_back(target.name);
  for (const AssignmentTarget& part : target.parts) add_bound_names(part, names);
}

// A call of a function that the program writes as an operator or attribute.
Expression call_of(std::string_view function, const Expression& written) {
  Expression call;
  call.kind = ExpressionKind::call;
  call.location = written.location;
  call.text = std::string(function);
  call.children = written.children;
  call.keywords.resize(call.children.size());
  return call;
}

}  // namespace

Value Lowerer::lower(const Expression& expression, Scope& scope) {
  if (!spend(1, expression.location)) return Value::broken();
  switch (expression.kind) {
    case ExpressionKind::number:
      return expression.integer ? Value::of_integer(*expression.integer) : Value::of(expression.number);
    case ExpressionKind::boolean: return Value::of_integer(static_cast<int64_t>(expression.number));
    case ExpressionKind::none: return Value::nothing();
    case ExpressionKind::name: return lower_name(expression, scope);
    case ExpressionKind::call: return lower_call(expression, scope);
    case ExpressionKind::index: return lower_index(expression, scope);
    case ExpressionKind::attribute: return lower_attribute(expression, scope);
    case ExpressionKind::unary: return lower_unary(expression, scope);
    case ExpressionKind::binary: return lower_binary(expression, scope);
    case ExpressionKind::choice: return lower_choice(expression, scope);
    case ExpressionKind::tuple:
    case ExpressionKind::list: return lower_sequence(expression, scope);
    case ExpressionKind::comprehension: return lower_comprehension(expression, scope);
    case ExpressionKind::string:
      return report(expression.location, "a string is not a value",
                    "strings are only allowed as np.einsum's subscripts");
    case ExpressionKind::dict:
      return report(expression.location, "a dictionary is not a value", "write one name for each value, or a list");
    default:
      return report(expression.location, "this is not a value", "slices and ... are only allowed in x[:, None, ...]");
  }
}

Value Lowerer::lower_name(const Expression& name, const Scope& scope) {
  if (name.prefix.empty()) {
    const auto local = scope.find(name.text);
    if (local != scope.end()) return local->second;
    const auto number = numbers_.find(name.text);
    if (number != numbers_.end()) return number->second;
  }
  if (const std::optional<Value> constant = named_constant(name)) return *constant;
  if (diagnostics_.full()) return Value::broken();
  if (name.text == "nan" && !name.prefix.empty())
    return report(name.location, "NaN is not a value here", "choose another number with np.where, or write np.inf");
  if (tensor_type(name) || is_integer_type(name))
    return report(name.location, "a type is not a value", "write x.astype(float32)");
  std::vector<std::string> candidates;
  for (const auto& [known, value] : scope) candidates.push_back(known);
  for (const auto& [known, value] : numbers_) candidates.push_back(known);
  const std::string near = nearest(name.text, candidates);
  return report(name.location, concat("unknown name '", name.prefix, name.prefix.empty() ? "" : ".", name.text, "'"),
                near.empty() || !name.prefix.empty() ? "assign it first, or make it a parameter"
                                                     : concat("did you mean '", near, "'?"));
}

bool Lowerer::is_boolean(const Value& value) const {
  return value.kind == ValueKind::view && builder_.graph.tensor(value.view.tensor).dtype == DType::boolean;
}

bool Lowerer::is_arithmetic(const Value& value, SourceLocation location) {
  if (value.kind == ValueKind::number || value.kind == ValueKind::view) return true;
  if (value.kind != ValueKind::broken)
    report(location, "arithmetic needs tensors and numbers", "unpack several results with `a, b = f(x)`");
  return false;
}

Value Lowerer::lower_unary(const Expression& expression, Scope& scope) {
  const Value inner = lower(expression.children[0], scope);
  if (inner.kind != ValueKind::view) return static_unary(expression.text, inner, expression.location, diagnostics_);
  if (expression.text == "not")
    return report(expression.location, "'not' needs a condition of numbers, not a tensor", "write ~(a < b)");
  if (expression.text == "~") return lower_logical("~", {inner}, expression.location);
  if (expression.text == "+") return inner;
  return builder_.map(OperatorKind::negate, {inner}, expression.location);
}

Value Lowerer::lower_binary(const Expression& expression, Scope& scope) {
  const std::string& op = expression.text;
  if (op == "and" || op == "or") return lower_short_circuit(expression, scope);
  const Value left = lower(expression.children[0], scope);
  const Value right = lower(expression.children[1], scope);
  const auto is_view = [](const Value& value) { return value.kind == ValueKind::view; };
  const bool identity = op == "is" || op == "is not";
  if (identity || (!is_view(left) && !is_view(right))) {
    const Value result = static_binary(op, left, right, expression.location, diagnostics_);
    for (const Value* side : {&left, &right}) {
      if (side->kind == ValueKind::tuple) spend(side->items->size() / 8, expression.location);
    }
    if (result.kind == ValueKind::tuple) spend(result.items->size() / 8, expression.location);
    return result;
  }
  return lower_tensors(op, left, right, expression);
}

Value Lowerer::lower_tensors(const std::string& op, const Value& left, const Value& right,
                             const Expression& expression) {
  const SourceLocation location = expression.location;
  if (!is_arithmetic(left, location) || !is_arithmetic(right, location)) return Value::broken();
  static const std::map<std::string, OperatorKind> kOperators = {
      {"+", OperatorKind::add},       {"-", OperatorKind::subtract},    {"*", OperatorKind::multiply},
      {"/", OperatorKind::divide},    {"<", OperatorKind::less},        {"<=", OperatorKind::less_equal},
      {">", OperatorKind::less},      {">=", OperatorKind::less_equal}, {"==", OperatorKind::equal},
      {"!=", OperatorKind::not_equal}};
  if (op == "**") return lower_power(left, right, location);
  if (op == "@") return lower_product(left, right, expression);
  if (op == "&" || op == "|" || op == "^") return lower_logical(op, {left, right}, location);
  const auto found = kOperators.find(op);
  if (found == kOperators.end())
    return report(location, concat("'", op, "' is not defined for tensors"),
                  "tensors support + - * / and ** with a number");
  // a > b is b < a
  if (op.front() == '>') return builder_.map(found->second, {right, left}, location);
  return builder_.map(found->second, {left, right}, location);
}

// b ** x is exp(x · log b).
Value Lowerer::lower_power(const Value& base, const Value& exponent, SourceLocation location) {
  if (exponent.kind == ValueKind::number) return builder_.map(OperatorKind::power, {base}, location, exponent.number);
  if (base.kind != ValueKind::number)
    return report(location, "the base or the exponent must be a number", "write x ** 2, or np.exp(y * np.log(x))");
  if (base.number <= 0)
    return report(location, "the base of a tensor exponent must be positive", "write 2 ** x, or np.exp(y * np.log(x))");
  const Value scaled = builder_.map(OperatorKind::multiply, {exponent, Value::of(std::log(base.number))}, location);
  return builder_.map(OperatorKind::exp, {scaled}, location);
}

Value Lowerer::lower_logical(const std::string& op, const std::vector<Value>& inputs, SourceLocation location) {
  const bool fits = std::all_of(inputs.begin(), inputs.end(), [&](const Value& input) { return is_boolean(input); });
  if (!fits)
    return report(location, concat("'", op, "' needs comparisons of tensors"),
                  "put each comparison in brackets: (a < b) & (c < d)");
  if (op == "~") return builder_.map(OperatorKind::logical_not, inputs, location);
  if (op == "&") return builder_.map(OperatorKind::logical_and, inputs, location);
  return builder_.map(op == "|" ? OperatorKind::logical_or : OperatorKind::not_equal, inputs, location);
}

Value Lowerer::lower_product(const Value& left, const Value& right, const Expression& expression) {
  const Expression call = call_of("matmul", expression);
  return is_named_function(call.text) ? call_named_function(call, {left, right}, builder_, diagnostics_)
                                      : unknown_function(call);
}

// `a and b`, `a or b` of conditions that are known here: the value is one of the two, as in Python.
Value Lowerer::lower_short_circuit(const Expression& expression, Scope& scope) {
  const Value left = lower(expression.children[0], scope);
  if (left.kind == ValueKind::broken) return left;
  const std::optional<bool> condition = condition_of(left);
  if (condition && *condition == (expression.text == "or")) return left;
  const Value right = lower(expression.children[1], scope);
  if (condition) return right;
  return report(expression.location, concat("'", expression.text, "' needs conditions of numbers, not tensors"),
                concat("write (a < b) ", expression.text == "and" ? "&" : "|", " (c < d)"));
}

std::optional<bool> Lowerer::lower_condition(const Expression& expression, Scope& scope) {
  const Value value = lower(expression, scope);
  if (value.kind == ValueKind::view)
    report(expression.location, "this condition is a tensor, which is not known before the program runs",
           "choose between two tensors with np.where(condition, a, b)");
  return condition_of(value);
}

Value Lowerer::lower_choice(const Expression& expression, Scope& scope) {
  const std::optional<bool> condition = lower_condition(expression.children[1], scope);
  return condition ? lower(expression.children[*condition ? 0 : 2], scope) : Value::broken();
}

Value Lowerer::lower_sequence(const Expression& expression, Scope& scope) {
  std::vector<Value> items;
  for (const Expression& item : expression.children) items.push_back(lower(item, scope));
  return make_sequence(std::move(items), expression.kind == ExpressionKind::list, expression.location, diagnostics_);
}

std::optional<std::vector<Value>> Lowerer::loop_items(const Value& value, SourceLocation location) {
  if (value.kind == ValueKind::tuple) {
    if (!spend(value.items->size() / 8, location)) return std::nullopt;
    return *value.items;
  }
  if (value.kind == ValueKind::view && !value.view.axes.empty()) {
    const int64_t count = builder_.extent(value.view, 0);
    if (count <= static_cast<int64_t>(kMaxItems) && spend(static_cast<size_t>(count), location)) {
      std::vector<Value> items;
      for (int64_t k = 0; k < count; ++k) {
        IndexItem item;
        item.kind = IndexItem::Kind::integer;
        item.integer = k;
        item.location = location;
        items.push_back(index_view(value.view, {item}, location, builder_, diagnostics_));
        if (items.back().kind == ValueKind::broken) return std::nullopt;
      }
      return items;
    }
  }
  if (value.kind != ValueKind::broken)
    report(location, "a loop needs a range, tuple or list", "write `for k in range(4):`, with a static number");
  return std::nullopt;
}

Value Lowerer::lower_comprehension(const Expression& expression, Scope& scope) {
  const Value sequence = lower(expression.children[2], scope);
  const std::optional<std::vector<Value>> items = loop_items(sequence, expression.children[2].location);
  if (!items) return Value::broken();
  const AssignmentTarget target = target_in(expression.children[1]);
  // Its names hide those of the function only inside the brackets.
  std::vector<std::string> names;
  add_bound_names(target, names);
  std::vector<std::optional<Value>> hidden;
  for (const std::string& name : names)
    hidden.push_back(scope.contains(name) ? std::optional(scope[name]) : std::nullopt);
  std::vector<Value> values;
  bool broken = false;
  for (const Value& item : *items) {
    if (broken || too_long_ || diagnostics_.full() || !spend(1, expression.location)) break;
    bind(target, item, scope);
    bool kept = true;
    for (size_t k = 3; kept && k < expression.children.size(); ++k) {
      const std::optional<bool> condition = lower_condition(expression.children[k], scope);
      broken = broken || !condition;
      kept = condition.value_or(false);
    }
    if (kept) values.push_back(lower(expression.children[0], scope));
    broken = broken || (kept && values.back().kind == ValueKind::broken);
  }
  for (size_t k = 0; k < names.size(); ++k) {
    if (hidden[k]) {
      scope[names[k]] = *hidden[k];
    } else {
      scope.erase(names[k]);
    }
  }
  return broken || too_long_ ? Value::broken()
                             : make_sequence(std::move(values), true, expression.location, diagnostics_);
}

Value Lowerer::lower_attribute(const Expression& expression, Scope& scope) {
  const Value base = lower(expression.children[0], scope);
  if (base.kind == ValueKind::broken) return base;
  const std::string& name = expression.text;
  if (base.kind != ValueKind::view)
    return report(expression.location, concat("only tensors have attributes, such as '", name, "'"),
                  "write x.shape of a tensor, len(xs) of a tuple or list");
  if (name == "ndim") return Value::of_integer(static_cast<int64_t>(base.view.axes.size()));
  if (name == "T") {
    Expression call = call_of("transpose", expression);
    call.method = true;
    return call_shape_function(call, {base}, builder_, diagnostics_);
  }
  std::vector<Value> extents;
  std::optional<int64_t> size = 1;
  for (size_t axis = 0; axis < base.view.axes.size(); ++axis) {
    extents.push_back(Value::of_integer(builder_.extent(base.view, axis)));
    if (size) size = checked_multiply(*size, *extents.back().integer);
  }
  if (name == "shape") return Value::of(std::move(extents));
  if (name == "size" && size) return Value::of_integer(*size);
  return unknown_method(expression);
}

}  // namespace millrace
