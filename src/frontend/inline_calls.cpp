#include <algorithm>

#include "base/text.h"
#include "frontend/annotations.h"
#include "frontend/lowerer.h"

namespace millrace {
namespace {

constexpr size_t kMaxCallDepth = 16;

std::string parameter_names(const Function& function) {
  std::vector<std::string> names;
  for (const Parameter& parameter : function.parameters) names.push_back(parameter.name);
  return join(names, ", ");
}

}  // namespace

Value Lowerer::inline_call(const Expression& call, const Function& function, const std::vector<Value>& arguments) {
  if (std::find(calls_.begin(), calls_.end(), &function) != calls_.end()) {
    return report(call.location, concat("'", function.name, "' calls itself"),
                  "calls are inlined, so recursion is not supported");
  }
  if (calls_.size() >= kMaxCallDepth)
    return report(call.location, concat("calls are nested more than ", kMaxCallDepth, " deep"),
                  "inline some of them by hand");
  lowered_ += function.parameters.size();  // binding counts as work
  Scope scope;
  if (!bind_parameters(call, function, arguments, scope)) return Value::broken();
  const std::string outer = builder_.target();
  calls_.push_back(&function);
  lower_body(function, scope, outer + "/");
  calls_.pop_back();
  builder_.set_target(outer);
  return std::exchange(returned_, Value::broken());
}

bool Lowerer::bind_parameters(const Expression& call, const Function& function, const std::vector<Value>& arguments,
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
    if (parameter.by_name && call.keywords[k].empty()) {
      report(call.children[k].location, concat("parameter '", parameter.name, "' is passed by name only"),
             concat("write ", function.name, "(…, ", parameter.name, "=…)"));
      return false;
    }
    if (!fits_annotation(parameter, arguments[k], call.children[k].location)) return false;
    scope[parameter.name] = arguments[k];
  }
  for (const Parameter& parameter : function.parameters) {
    if (scope.contains(parameter.name)) continue;
    if (!parameter.fallback) {
      report(call.location, concat("'", function.name, "' needs an argument '", parameter.name, "'"), usage());
      return false;
    }
    scope[parameter.name] = default_value(parameter);
  }
  return true;
}

// Python makes a default value once, so a list would keep what every call appends to it.
Value Lowerer::default_value(const Parameter& parameter) {
  const Value value = evaluate_number(*parameter.fallback, numbers_, diagnostics_);
  if (!value.list) return value;
  return report(parameter.fallback->location, "a default value cannot be a list", "write a tuple, or None");
}

// The position of each parameter of a function.
const std::map<std::string, size_t>& Lowerer::positions_of(const Function& function) {
  std::map<std::string, size_t>& positions = positions_[&function];
  if (positions.empty()) {
    for (size_t k = 0; k < function.parameters.size(); ++k) positions.emplace(function.parameters[k].name, k);
  }
  return positions;
}

bool Lowerer::fits_annotation(const Parameter& parameter, const Value& value, SourceLocation location) {
  if (value.kind == ValueKind::broken) return false;
  if (!parameter.annotation || parameter.annotation->kind != ExpressionKind::index) return true;
  const bool optional = parameter.fallback && parameter.fallback->kind == ExpressionKind::none;
  if (optional && value.kind == ValueKind::nothing) return true;
  const Expression& type = parameter.annotation->children[0];
  if (!tensor_type(type) && !is_integer_type(type)) return true;  // tuple[float, float]
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

}  // namespace millrace
