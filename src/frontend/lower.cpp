#include "frontend/lower.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "frontend/annotations.h"
#include "frontend/builder.h"
#include "frontend/constants.h"
#include "frontend/einsum.h"
#include "frontend/functions.h"
#include "frontend/shape_functions.h"
#include "frontend/views.h"

namespace millrace {
namespace {

constexpr size_t kMaxCallDepth = 16;
constexpr int kMaxLowered = 1000000;  // expressions, over all calls

using Scope = std::map<std::string, Value>;

class Lowerer {
 public:
  Lowerer(const Module& module, const Numbers& numbers, const ProgramOptions& options, Diagnostics& diagnostics)
      : module_(module), numbers_(numbers), options_(options), diagnostics_(diagnostics), builder_(diagnostics) {}

  Graph run() {
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
    const std::vector<const Expression*> returned = lower_body(*entry, scope, "");
    add_results(returned);
    return std::move(builder_.graph);
  }

 private:
  Value report(SourceLocation location, std::string_view message, std::string_view remedy) {
    diagnostics_.report(location, message, remedy);
    return Value::broken();
  }

  const Function* entry_function() {
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

  void declare_argument(const Parameter& parameter, Scope& scope) {
    if (scope.contains(parameter.name)) {
      report(parameter.location, concat("two parameters are named '", parameter.name, "'"), "rename one");
      return;
    }
    if (!parameter.annotation) {
      if (parameter.fallback) {
        scope[parameter.name] = evaluate_number(*parameter.fallback, numbers_, diagnostics_);
      } else {
        report(parameter.location, concat("argument '", parameter.name, "' has no type"),
               concat("write `", parameter.name, ": float32[A, B]`"));
      }
      return;
    }
    const Expression& annotation = *parameter.annotation;
    const bool tensor = annotation.kind == ExpressionKind::index;
    const Expression& type = tensor ? annotation.children[0] : annotation;
    const std::optional<DType> dtype = annotated_dtype(type, options_.dtype, diagnostics_);
    if (!dtype) return;
    std::vector<DimId> dims;
    if (tensor) {
      std::optional<std::vector<DimId>> annotated = annotated_dims(annotation, numbers_, builder_, diagnostics_);
      if (!annotated) return;
      dims = std::move(*annotated);
    }
    const TensorId id =
        builder_.add_argument(parameter.name, *dtype, dims, tensor ? TensorRole::argument : TensorRole::scalar);
    builder_.graph.tensors[id.at()].fixed = tensor && (type.prefix == "fixed" || type.prefix.ends_with(".fixed"));
    scope[parameter.name] = Value::of(builder_.whole(id));
  }

  // Lowers the statements. Leaves the returned values in `returned_`. Names in the body begin with `prefix`.
  std::vector<const Expression*> lower_body(const Function& function, Scope& scope, const std::string& prefix) {
    returned_.clear();
    for (const Assignment& statement : function.body) {
      if (too_long_ || diagnostics_.full()) return {};
      if (statement.returns) return lower_return(statement, scope, prefix);
      lower_assignment(statement, scope, prefix);
    }
    report(function.location, concat("function '", function.name, "' returns nothing"), "end it with `return x`");
    return {};
  }

  void lower_assignment(const Assignment& statement, Scope& scope, const std::string& prefix) {
    const std::vector<std::string>& first = statement.targets.front();
    builder_.set_target(prefix + first.front());
    const size_t first_tensor = builder_.graph.tensors.size();
    const Value value = lower(statement.value, scope);
    builder_.set_target(prefix + first.front());
    if (first.size() == 1) builder_.name_result(value, first_tensor);
    for (const std::vector<std::string>& target : statement.targets) bind_target(statement, target, value, scope);
  }

  void bind_target(const Assignment& statement, const std::vector<std::string>& target, const Value& value,
                   Scope& scope) {
    if (target.size() == 1) {
      scope[target[0]] = value;
      return;
    }
    const bool fits = value.kind == ValueKind::tuple && value.items->size() == target.size();
    if (!fits && value.kind != ValueKind::broken) {
      report(statement.location,
             concat(target.size(), " names for ", value.kind == ValueKind::tuple ? value.items->size() : 1, " values"),
             "name each value that the function returns");
    }
    for (size_t k = 0; k < target.size(); ++k) scope[target[k]] = fits ? (*value.items)[k] : Value::broken();
  }

  std::vector<const Expression*> lower_return(const Assignment& statement, Scope& scope, const std::string& prefix) {
    std::vector<const Expression*> expressions;
    if (statement.value.kind == ExpressionKind::tuple) {
      for (const Expression& item : statement.value.children) expressions.push_back(&item);
    } else {
      expressions.push_back(&statement.value);
    }
    std::vector<Value> values;
    for (size_t k = 0; k < expressions.size(); ++k) {
      const bool top = calls_.size() == 1;
      if (top) builder_.set_target(result_name(*expressions[k], k, expressions.size()));
      if (!top) builder_.set_target(prefix.empty() ? "result" : prefix.substr(0, prefix.size() - 1));
      const size_t first_tensor = builder_.graph.tensors.size();
      values.push_back(lower(*expressions[k], scope));
      if (top) builder_.name_result(values.back(), first_tensor);
      if (values.back().kind == ValueKind::tuple && expressions.size() == 1) {
        // `return f(x)` of a function with several results
        values = std::vector<Value>(*values.back().items);
        expressions.assign(values.size(), expressions[0]);
        break;
      }
    }
    if (values.empty()) report(statement.location, "this return has no value", "write `return x` or `return x, y`");
    returned_ = std::move(values);
    return expressions;
  }

  static std::string result_name(const Expression& expression, size_t k, size_t count) {
    if (expression.kind == ExpressionKind::name && expression.prefix.empty()) return expression.text;
    return count == 1 ? "result" : concat("result_", k);
  }

  void add_results(const std::vector<const Expression*>& expressions) {
    for (size_t k = 0; k < expressions.size(); ++k) {
      const Value& value = returned_[k];
      if (value.kind == ValueKind::broken) continue;
      if (value.kind != ValueKind::view || builder_.graph.tensor(value.view.tensor).dtype == DType::boolean) {
        report(expressions[k]->location, "a result must be a tensor", "return a value computed from the arguments");
        continue;
      }
      const std::string name = result_name(*expressions[k], k, expressions.size());
      builder_.set_target(name);
      builder_.add_result(name, value.view, expressions[k]->location);
    }
  }

  Value lower(const Expression& expression, Scope& scope) {
    if (++lowered_ > kMaxLowered) {
      if (!too_long_) {
        report(expression.location, concat("the program has more than ", kMaxLowered, " expressions after inlining"),
               "calls are inlined: make fewer or less nested calls");
      }
      too_long_ = true;
      return Value::broken();
    }
    switch (expression.kind) {
      case ExpressionKind::number:
        return expression.integer ? Value::of_integer(*expression.integer) : Value::of(expression.number);
      case ExpressionKind::boolean: return Value::of_integer(static_cast<int64_t>(expression.number));
      case ExpressionKind::none: return {ValueKind::nothing, 0, std::nullopt, {}, {}};
      case ExpressionKind::name: return lower_name(expression, scope);
      case ExpressionKind::call: return lower_call(expression, scope);
      case ExpressionKind::index: return lower_index(expression, scope);
      case ExpressionKind::unary: return lower_unary(expression, scope);
      case ExpressionKind::binary: return lower_binary(expression, scope);
      case ExpressionKind::tuple: {
        std::vector<Value> items;
        for (const Expression& item : expression.children) items.push_back(lower(item, scope));
        return Value::of(std::move(items));
      }
      case ExpressionKind::string:
        return report(expression.location, "a string is not a value",
                      "strings are only allowed as np.einsum's subscripts");
      default:
        return report(expression.location, "this is not a value", "slices and ... are only allowed in x[:, None, ...]");
    }
  }

  Value lower_name(const Expression& name, const Scope& scope) {
    if (name.prefix.empty()) {
      const auto local = scope.find(name.text);
      if (local != scope.end()) return local->second;
      const auto number = numbers_.find(name.text);
      if (number != numbers_.end()) return number->second;
    }
    if (diagnostics_.full()) return Value::broken();
    std::vector<std::string> candidates;
    for (const auto& [known, value] : scope) candidates.push_back(known);
    for (const auto& [known, value] : numbers_) candidates.push_back(known);
    const std::string near = nearest(name.text, candidates);
    return report(name.location, concat("unknown name '", name.prefix, name.prefix.empty() ? "" : ".", name.text, "'"),
                  near.empty() ? "assign it first, or make it a parameter" : concat("did you mean '", near, "'?"));
  }

  Value lower_unary(const Expression& expression, Scope& scope) {
    const Value inner = lower(expression.children[0], scope);
    if (inner.kind == ValueKind::broken || !arithmetic(inner, expression.location)) return Value::broken();
    if (expression.text == "+") return inner;
    if (inner.kind == ValueKind::number) return fold_negation(inner, expression.location, diagnostics_);
    return builder_.map(OperatorKind::negate, {inner}, expression.location);
  }

  bool arithmetic(const Value& value, SourceLocation location) {
    if (value.kind == ValueKind::number || value.kind == ValueKind::view) return true;
    if (value.kind != ValueKind::broken)
      report(location, "arithmetic needs tensors and numbers", "unpack several results with `a, b = f(x)`");
    return false;
  }

  Value lower_binary(const Expression& expression, Scope& scope) {
    const Value left = lower(expression.children[0], scope);
    const Value right = lower(expression.children[1], scope);
    if (!arithmetic(left, expression.location) || !arithmetic(right, expression.location)) return Value::broken();
    const std::string& op = expression.text;
    static const std::map<std::string, OperatorKind> kOperators = {
        {"+", OperatorKind::add},       {"-", OperatorKind::subtract},    {"*", OperatorKind::multiply},
        {"/", OperatorKind::divide},    {"<", OperatorKind::less},        {"<=", OperatorKind::less_equal},
        {">", OperatorKind::less},      {">=", OperatorKind::less_equal}, {"==", OperatorKind::equal},
        {"!=", OperatorKind::not_equal}};
    const auto found = kOperators.find(op);
    if (left.kind == ValueKind::number && right.kind == ValueKind::number) {
      static constexpr std::string_view kComparisons = " < <= > >= == != ";
      if (kComparisons.find(concat(" ", op, " ")) == std::string_view::npos) {
        return fold_binary(op, left, right, expression.location, diagnostics_);
      }
      return report(expression.location, "this compares two numbers", "compare tensors, as in np.where(a < b, x, y)");
    }
    if (op == "**") {
      if (right.kind != ValueKind::number)
        return report(expression.location, "an exponent must be a number", "write x ** 2");
      return builder_.map(OperatorKind::power, {left}, expression.location, right.number);
    }
    if (found == kOperators.end())
      return report(expression.location, concat("'", op, "' is not defined for tensors"),
                    "tensors have + - * / and ** with a number");
    // a > b is b < a
    if (op.front() == '>') return builder_.map(found->second, {right, left}, expression.location);
    return builder_.map(found->second, {left, right}, expression.location);
  }

  Value lower_index(const Expression& expression, Scope& scope) {
    const Value base = lower(expression.children[0], scope);
    if (base.kind == ValueKind::broken) return base;
    if (base.kind != ValueKind::view)
      return report(expression.location, "only tensors can be indexed", "write x[:, None, ...]");
    std::vector<IndexItem> items;
    for (size_t k = 1; k < expression.children.size(); ++k) {
      const std::optional<IndexItem> item = index_item(expression.children[k], scope);
      if (!item) return Value::broken();
      items.push_back(*item);
    }
    return index_view(base.view, items, expression.location, builder_, diagnostics_);
  }

  // An item between the brackets; a slice's children are its start, stop and step, None where absent.
  std::optional<IndexItem> index_item(const Expression& expression, Scope& scope) {
    IndexItem item;
    item.location = expression.location;
    if (expression.kind == ExpressionKind::none) item.kind = IndexItem::Kind::none;
    if (expression.kind == ExpressionKind::ellipsis) item.kind = IndexItem::Kind::ellipsis;
    if (expression.kind == ExpressionKind::slice) {
      const std::array<std::optional<int64_t>*, 3> bounds = {&item.start, &item.stop, &item.step};
      for (size_t k = 0; k < expression.children.size() && k < bounds.size(); ++k) {
        if (expression.children[k].kind == ExpressionKind::none) continue;
        *bounds.at(k) = index_integer(expression.children[k], scope);
        if (!*bounds.at(k)) return std::nullopt;
      }
    }
    if (item.kind == IndexItem::Kind::slice && expression.kind != ExpressionKind::slice) {
      item.kind = IndexItem::Kind::integer;
      const std::optional<int64_t> integer = index_integer(expression, scope);
      if (!integer) return std::nullopt;
      item.integer = *integer;
    }
    return item;
  }

  std::optional<int64_t> index_integer(const Expression& expression, Scope& scope) {
    const Value value = lower(expression, scope);
    if (value.kind == ValueKind::number && value.integer) return value.integer;
    if (value.kind != ValueKind::broken)
      report(expression.location, "an index must be an integer", "write numbers and sizes, as in x[:, 1:N, None, ...]");
    return std::nullopt;
  }

  Value lower_call(const Expression& call, Scope& scope) {
    const auto function = functions_.find(call.text);
    if (!call.prefix.empty() && scope.contains(call.prefix)) {
      return report(call.location, "methods are not supported",
                    concat("write np.", call.text, "(", call.prefix, ", …)"));
    }
    if (call.text == "einsum" && function == functions_.end()) return lower_einsum_call(call, scope);
    const bool inlined = call.prefix.empty() && function != functions_.end();
    if (!inlined && !is_named_function(call.text) && !is_shape_function(call.text)) {
      if (diagnostics_.full()) return Value::broken();
      if (call.text == "matmul" || call.text == "dot" || call.text == "tensordot") {
        return report(call.location, concat("unknown function '", call.text, "'"),
                      "write the product as np.einsum(\"ij,jk->ik\", a, b)");
      }
      std::vector<std::string> candidates = named_functions();
      for (const auto& [name, known] : functions_) candidates.push_back(name);
      const std::string near = nearest(call.text, candidates);
      return report(
          call.location, concat("unknown function '", call.text, "'"),
          near.empty() ? concat("functions: ", join(named_functions(), ", ")) : concat("did you mean '", near, "'?"));
    }
    std::vector<Value> arguments;
    for (const Expression& child : call.children) {
      // np.pad's mode is the one string
      const bool mode = !inlined && call.text == "pad" && child.kind == ExpressionKind::string;
      arguments.push_back(mode ? Value::nothing() : lower(child, scope));
    }
    if (!inlined && is_shape_function(call.text)) return call_shape_function(call, arguments, builder_, diagnostics_);
    return inlined ? inline_call(call, *function->second, arguments)
                   : call_named_function(call, arguments, builder_, diagnostics_);
  }

  Value lower_einsum_call(const Expression& call, Scope& scope) {
    if (call.children.empty() || call.children[0].kind != ExpressionKind::string) {
      return report(call.location, "np.einsum's first argument must be a string of subscripts",
                    "write np.einsum(\"ij,jk->ik\", a, b)");
    }
    std::vector<View> operands;
    for (size_t k = 1; k < call.children.size(); ++k) {
      if (!call.keywords[k].empty())
        return report(call.children[k].location, concat("np.einsum has no argument '", call.keywords[k], "' here"),
                      "pass only subscripts and operands");
      const Value operand = lower(call.children[k], scope);
      if (operand.kind == ValueKind::broken) return operand;
      if (operand.kind != ValueKind::view && operand.kind != ValueKind::number)
        return report(call.children[k].location, "this operand is not a tensor", "pass tensors");
      operands.push_back(operand.kind == ValueKind::number ? builder_.constant(operand.number).view : operand.view);
      if (builder_.graph.tensor(operands.back().tensor).dtype == DType::boolean)
        return report(call.children[k].location, "a comparison is not a number", "choose with np.where(a < b, x, y)");
    }
    return lower_einsum(call.children[0].text, operands, numbers_, call.location, builder_, diagnostics_);
  }

  Value inline_call(const Expression& call, const Function& function, const std::vector<Value>& arguments) {
    if (std::find(calls_.begin(), calls_.end(), &function) != calls_.end()) {
      return report(call.location, concat("'", function.name, "' calls itself"),
                    "calls are inlined, so recursion is not supported");
    }
    if (calls_.size() >= kMaxCallDepth)
      return report(call.location, concat("calls are nested more than ", kMaxCallDepth, " deep"),
                    "inline some of them by hand");
    lowered_ += static_cast<int>(function.parameters.size());  // binding counts as work
    Scope scope;
    if (!bind_parameters(call, function, arguments, scope)) return Value::broken();
    const std::string outer = builder_.target();
    calls_.push_back(&function);
    lower_body(function, scope, outer + "/");
    calls_.pop_back();
    builder_.set_target(outer);
    std::vector<Value> values = std::move(returned_);
    returned_.clear();
    if (values.empty()) return Value::broken();
    if (values.size() == 1) return values.front();
    return Value::of(std::move(values));
  }

  bool bind_parameters(const Expression& call, const Function& function, const std::vector<Value>& arguments,
                       Scope& scope) {
    const auto usage = [&] { return concat("write ", function.name, "(", parameter_names(function), ")"); };
    for (size_t k = 0; k < arguments.size(); ++k) {
      size_t position = k;
      if (!call.keywords[k].empty()) {
        const std::map<std::string, size_t>& positions = positions_of(function);
        const auto named = positions.find(call.keywords[k]);
        position = named == positions.end() ? function.parameters.size() : named->second;
      }
      if (position >= function.parameters.size() || scope.contains(function.parameters[position].name)) {
        report(call.children[k].location, concat("'", function.name, "' has no parameter for this argument"), usage());
        return false;
      }
      const Parameter& parameter = function.parameters[position];
      if (!fits_annotation(parameter, arguments[k], call.children[k].location)) return false;
      scope[parameter.name] = arguments[k];
    }
    for (const Parameter& parameter : function.parameters) {
      if (scope.contains(parameter.name)) continue;
      if (!parameter.fallback) {
        report(call.location, concat("'", function.name, "' needs an argument '", parameter.name, "'"), usage());
        return false;
      }
      scope[parameter.name] = evaluate_number(*parameter.fallback, numbers_, diagnostics_);
    }
    return true;
  }

  // The position of each parameter of a function.
  const std::map<std::string, size_t>& positions_of(const Function& function) {
    std::map<std::string, size_t>& positions = positions_[&function];
    if (positions.empty()) {
      for (size_t k = 0; k < function.parameters.size(); ++k) positions.emplace(function.parameters[k].name, k);
    }
    return positions;
  }

  static std::string parameter_names(const Function& function) {
    std::vector<std::string> names;
    for (const Parameter& parameter : function.parameters) names.push_back(parameter.name);
    return join(names, ", ");
  }

  bool fits_annotation(const Parameter& parameter, const Value& value, SourceLocation location) {
    if (value.kind == ValueKind::broken) return false;
    if (!parameter.annotation || parameter.annotation->kind != ExpressionKind::index) return true;
    const std::optional<std::vector<DimId>> dims =
        annotated_dims(*parameter.annotation, numbers_, builder_, diagnostics_);
    if (!dims) return false;
    bool fits = value.kind == ValueKind::view && value.view.axes.size() == dims->size();
    for (size_t axis = 0; fits && axis < dims->size(); ++axis)
      fits = builder_.extent(value.view, axis) == builder_.graph.extent((*dims)[axis]);
    if (fits) return true;
    std::vector<int64_t> extents;
    for (const DimId dim : *dims) extents.push_back(builder_.graph.extent(dim));
    report(location,
           concat("parameter '", parameter.name, "' is [", join(extents, ", "), "], not ",
                  value.kind == ValueKind::view ? builder_.shape(value.view) : "a number"),
           "pass a tensor of the annotated shape, or remove the annotation");
    return false;
  }

  const Module& module_;
  const Numbers& numbers_;
  const ProgramOptions& options_;
  Diagnostics& diagnostics_;
  Builder builder_;
  std::map<std::string, const Function*> functions_;
  std::map<const Function*, std::map<std::string, size_t>> positions_;
  std::vector<const Function*> calls_;
  std::vector<Value> returned_;
  int lowered_ = 0;
  bool too_long_ = false;
};

}  // namespace

Graph lower_module(const Module& module, const Numbers& numbers, const ProgramOptions& options,
                   Diagnostics& diagnostics) {
  return Lowerer(module, numbers, options, diagnostics).run();
}

}  // namespace millrace
