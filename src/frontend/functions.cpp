#include "frontend/functions.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "frontend/constants.h"

namespace millrace {
namespace {

// A call that is being lowered, with its arguments by parameter.
struct Call {
  const Expression& expression;
  Builder& builder;
  Diagnostics& diagnostics;
  std::vector<std::optional<Value>> arguments;  // one per parameter of the signature

  SourceLocation location() const { return expression.location; }
  Value report(std::string_view message, std::string_view remedy) const {
    diagnostics.report(location(), message, remedy);
    return Value::broken();
  }
};

using Handler = Value (*)(const Call& call, OperatorKind kind);

struct Signature {
  std::string_view name;
  std::string_view parameters;  // separated by spaces; those after '|' are optional
  Handler handler;
  OperatorKind kind = OperatorKind::copy;
};

const View* tensor_argument(const Call& call, size_t parameter) {
  const Value& value = *call.arguments[parameter];
  if (value.kind == ValueKind::view) return &value.view;
  call.report(concat("'", call.expression.text, "' needs a tensor, not a number"),
              "pass an argument, or a value computed from one");
  return nullptr;
}

std::optional<double> number_argument(const Call& call, size_t parameter, double fallback) {
  if (!call.arguments[parameter]) return fallback;
  const Value& value = *call.arguments[parameter];
  if (value.kind == ValueKind::number) return value.number;
  call.report(concat("an argument of '", call.expression.text, "' must be a constant number"),
              "write a number or a size");
  return std::nullopt;
}

std::optional<size_t> checked_axis(const Call& call, const Value& value, size_t rank) {
  const auto signed_rank = static_cast<int64_t>(rank);
  if (value.kind == ValueKind::number && value.integer && *value.integer >= -signed_rank &&
      *value.integer < signed_rank) {
    return static_cast<size_t>(*value.integer < 0 ? *value.integer + signed_rank : *value.integer);
  }
  call.report(concat("the axis of '", call.expression.text, "' is not one of the ", rank, " axes of its tensor"),
              rank == 0 ? "a scalar has no axes" : concat("write axis=0 to axis=", rank - 1, ", or -1 for the last"));
  return std::nullopt;
}

// The axis of a softmax or normalization: one number; the default is the last axis.
std::optional<size_t> axis_argument(const Call& call, size_t parameter, size_t rank) {
  return checked_axis(call, call.arguments[parameter].value_or(Value::of_integer(-1)), rank);
}

// The axes of a reduction: one number or several; the default, and None, is all.
std::optional<std::vector<bool>> axes_argument(const Call& call, size_t parameter, size_t rank) {
  if (!call.arguments[parameter] || call.arguments[parameter]->kind == ValueKind::nothing) {
    return std::vector<bool>(rank, true);
  }
  const Value& value = *call.arguments[parameter];
  std::vector<bool> marked(rank, false);
  for (const Value& item : value.kind == ValueKind::tuple ? *value.items : std::vector<Value>{value}) {
    const std::optional<size_t> axis = checked_axis(call, item, rank);
    if (!axis) return std::nullopt;
    if (marked[*axis]) {
      call.report(concat("axis ", *axis, " is given twice"), "give each axis once");
      return std::nullopt;
    }
    marked[*axis] = true;
  }
  return marked;
}

Value elementwise(const Call& call, OperatorKind kind, double value = 0) {
  std::vector<Value> inputs;
  for (int k = 0; k < info_of(kind).inputs; ++k) inputs.push_back(*call.arguments[as_index(k)]);
  const bool numbers =
      std::all_of(inputs.begin(), inputs.end(), [](const Value& v) { return v.kind == ValueKind::number; });
  if (numbers) return fold_function(kind, inputs, value, call.location(), call.diagnostics);
  return call.builder.map(kind, inputs, call.location(), value);
}

Value call_map(const Call& call, OperatorKind kind) { return elementwise(call, kind); }

Value call_square(const Call& call, OperatorKind kind) { return elementwise(call, kind, 2); }

Value call_power(const Call& call, OperatorKind kind) {
  const std::optional<double> exponent = number_argument(call, 1, 0);
  return exponent ? elementwise(call, kind, *exponent) : Value::broken();
}

Value call_where(const Call& call, OperatorKind kind) {
  if (call.arguments[0]->kind != ValueKind::view) {
    return call.report("the condition of np.where is not a comparison of tensors", "write np.where(a < b, x, y)");
  }
  return elementwise(call, kind);
}

Value call_reduction(const Call& call, OperatorKind kind) {
  const View* const view = tensor_argument(call, 0);
  if (view == nullptr) return Value::broken();
  const std::optional<std::vector<bool>> axes = axes_argument(call, 1, view->axes.size());
  const std::optional<double> keep_dims = number_argument(call, 2, 0);
  if (!axes || !keep_dims) return Value::broken();
  return call.builder.reduce(kind, *view, *axes, *keep_dims != 0, call.location());
}

Value call_mean(const Call& call, OperatorKind) {
  const Value total = call_reduction(call, OperatorKind::sum);
  if (total.kind != ValueKind::view) return Value::broken();
  const View& view = call.arguments[0]->view;
  const std::vector<bool> axes = *axes_argument(call, 1, view.axes.size());
  double count = 1;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis]) count *= static_cast<double>(call.builder.extent(view, axis));
  }
  return call.builder.map(OperatorKind::multiply, {total, Value::of(1 / count)}, call.location());
}

Value call_normalization(const Call& call, const std::vector<View>& weights, size_t axis_parameter, double epsilon,
                         OperatorKind kind) {
  const View* const view = tensor_argument(call, 0);
  if (view == nullptr) return Value::broken();
  const std::optional<size_t> axis = axis_argument(call, axis_parameter, view->axes.size());
  return axis ? call.builder.normalize(kind, *view, *axis, weights, epsilon, call.location()) : Value::broken();
}

Value call_softmax(const Call& call, OperatorKind kind) { return call_normalization(call, {}, 1, 0, kind); }

Value call_layernorm(const Call& call, OperatorKind kind) {
  const View* const weight = tensor_argument(call, 1);
  const View* const bias = tensor_argument(call, 2);
  const std::optional<double> epsilon = number_argument(call, 4, 1e-5);
  if (weight == nullptr || bias == nullptr || !epsilon) return Value::broken();
  return call_normalization(call, {*weight, *bias}, 3, *epsilon, kind);
}

Value call_rmsnorm(const Call& call, OperatorKind kind) {
  const View* const weight = tensor_argument(call, 1);
  const std::optional<double> epsilon = number_argument(call, 3, 1e-6);
  if (weight == nullptr || !epsilon) return Value::broken();
  return call_normalization(call, {*weight}, 2, *epsilon, kind);
}

Value call_dropout(const Call& call, OperatorKind) {
  const std::optional<double> probability = number_argument(call, 1, 0.1);
  if (tensor_argument(call, 0) == nullptr || !probability) return Value::broken();
  if (!(*probability >= 0 && *probability < 1)) {
    return call.report(concat("the dropout probability is ", *probability), "choose p with 0 <= p < 1");
  }
  return call.builder.dropout(*call.arguments[0], *probability, call.location());
}

Value call_causal_mask(const Call& call, OperatorKind kind) {
  const View* const view = tensor_argument(call, 0);
  if (view == nullptr) return Value::broken();
  if (view->axes.size() < 2) {
    return call.report("causal_mask needs a tensor with at least two axes",
                       "the last axis is the key's, the one before it the query's");
  }
  return elementwise(call, kind);
}

constexpr auto kSignatures = std::to_array<Signature>({
    {"exp", "x", call_map, OperatorKind::exp},
    {"log", "x", call_map, OperatorKind::log},
    {"sqrt", "x", call_map, OperatorKind::sqrt},
    {"tanh", "x", call_map, OperatorKind::tanh},
    {"abs", "x", call_map, OperatorKind::absolute},
    {"absolute", "x", call_map, OperatorKind::absolute},
    {"negative", "x", call_map, OperatorKind::negate},
    {"square", "x", call_square, OperatorKind::power},
    {"power", "x exponent", call_power, OperatorKind::power},
    {"add", "a b", call_map, OperatorKind::add},
    {"subtract", "a b", call_map, OperatorKind::subtract},
    {"multiply", "a b", call_map, OperatorKind::multiply},
    {"divide", "a b", call_map, OperatorKind::divide},
    {"maximum", "a b", call_map, OperatorKind::maximum},
    {"minimum", "a b", call_map, OperatorKind::minimum},
    {"where", "condition a b", call_where, OperatorKind::where},
    {"sum", "x |axis keepdims", call_reduction, OperatorKind::sum},
    {"mean", "x |axis keepdims", call_mean, OperatorKind::sum},
    {"max", "x |axis keepdims", call_reduction, OperatorKind::max},
    {"min", "x |axis keepdims", call_reduction, OperatorKind::min},
    {"amax", "x |axis keepdims", call_reduction, OperatorKind::max},
    {"amin", "x |axis keepdims", call_reduction, OperatorKind::min},
    {"relu", "x", call_map, OperatorKind::relu},
    {"gelu", "x", call_map, OperatorKind::gelu},
    {"gelu_tanh", "x", call_map, OperatorKind::gelu_tanh},
    {"silu", "x", call_map, OperatorKind::silu},
    {"softmax", "x |axis", call_softmax, OperatorKind::softmax},
    {"layernorm", "x weight bias |axis eps", call_layernorm, OperatorKind::layernorm},
    {"rmsnorm", "x weight |axis eps", call_rmsnorm, OperatorKind::rmsnorm},
    {"dropout", "x |p", call_dropout, OperatorKind::dropout},
    {"causal_mask", "x", call_causal_mask, OperatorKind::causal_mask},
});

const Signature* find_signature(std::string_view name) {
  const auto* const found =
      std::find_if(kSignatures.begin(), kSignatures.end(), [&](const Signature& s) { return s.name == name; });
  return found == kSignatures.end() ? nullptr : found;
}

struct Parameters {
  std::vector<std::string> names;
  size_t required = 0;
};

Parameters parameters_of(const Signature& signature) {
  Parameters parameters;
  bool optional = false;
  for (std::string& name : split(signature.parameters, ' ')) {
    if (name.front() == '|') {
      optional = true;
      name.erase(0, 1);
    }
    if (!optional) ++parameters.required;
    parameters.names.push_back(std::move(name));
  }
  return parameters;
}

// Sorts positional and named arguments into the signature's parameters.
bool bind_arguments(Call& call, const std::vector<Value>& values, const Parameters& parameters) {
  const std::string usage = concat("write ", call.expression.text, "(", join(parameters.names, ", "), ")");
  call.arguments.resize(parameters.names.size());
  for (size_t k = 0; k < values.size(); ++k) {
    const std::string& keyword = call.expression.keywords[k];
    size_t parameter = k;
    if (!keyword.empty()) {
      const auto named = std::find(parameters.names.begin(), parameters.names.end(), keyword);
      parameter = static_cast<size_t>(named - parameters.names.begin());
    }
    if (parameter >= parameters.names.size()) {
      call.report(keyword.empty()
                      ? concat("'", call.expression.text, "' takes at most ", parameters.names.size(), " arguments")
                      : concat("'", call.expression.text, "' has no argument '", keyword, "'"),
                  usage);
      return false;
    }
    if (call.arguments[parameter]) {
      call.report(concat("argument '", parameters.names[parameter], "' is given twice"), usage);
      return false;
    }
    const ValueKind kind = values[k].kind;
    const bool axis = parameters.names[parameter] == "axis";
    if (kind == ValueKind::broken) return false;
    if (kind != ValueKind::number && kind != ValueKind::view && !axis) {
      call.report(concat("argument '", parameters.names[parameter], "' is neither a tensor nor a number"), usage);
      return false;
    }
    call.arguments[parameter] = values[k];
  }
  for (size_t k = 0; k < parameters.required; ++k) {
    if (call.arguments[k]) continue;
    call.report(concat("'", call.expression.text, "' needs an argument '", parameters.names[k], "'"), usage);
    return false;
  }
  return true;
}

}  // namespace

bool is_named_function(const std::string& name) { return find_signature(name) != nullptr; }

std::vector<std::string> named_functions() {
  std::vector<std::string> names = {"einsum"};
  for (const Signature& signature : kSignatures) names.emplace_back(signature.name);
  return names;
}

Value call_named_function(const Expression& call, const std::vector<Value>& arguments, Builder& builder,
                          Diagnostics& diagnostics) {
  const Signature& signature = *find_signature(call.text);
  Call bound{call, builder, diagnostics, {}};
  if (!bind_arguments(bound, arguments, parameters_of(signature))) return Value::broken();
  return signature.handler(bound, signature.kind);
}

}  // namespace millrace
