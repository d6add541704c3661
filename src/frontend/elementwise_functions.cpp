#include <numbers>

#include "base/text.h"
#include "frontend/function_handlers.h"

namespace millrace {
namespace {

Value mapped_arguments(const FunctionCall& call, OperatorKind kind, double value = 0) {
  std::vector<Value> inputs;
  for (int k = 0; k < info_of(kind).inputs; ++k) inputs.push_back(*call.arguments[as_index(k)]);
  return call.map(kind, inputs, value);
}

Value scaled_by(const FunctionCall& call, const Value& value, double factor) {
  if (value.kind == ValueKind::broken) return value;
  if (value.kind == ValueKind::number) return Value::of(value.number * factor);
  return call.map(OperatorKind::multiply, {value, Value::of(factor)});
}

}  // namespace

Value call_map(const FunctionCall& call, OperatorKind kind) { return mapped_arguments(call, kind); }

// a > b is b < a
Value call_swapped(const FunctionCall& call, OperatorKind kind) {
  return call.map(kind, {*call.arguments[1], *call.arguments[0]});
}

Value call_square(const FunctionCall& call, OperatorKind kind) { return mapped_arguments(call, kind, 2); }

Value call_power(const FunctionCall& call, OperatorKind kind) {
  const std::optional<double> exponent = call.number(1, 0);
  return exponent ? mapped_arguments(call, kind, *exponent) : Value::broken();
}

Value call_where(const FunctionCall& call, OperatorKind kind) {
  if (call.arguments[0]->kind != ValueKind::view) {
    return call.report("the condition of np.where is not a comparison of tensors", "write np.where(a < b, x, y)");
  }
  return mapped_arguments(call, kind);
}

// np.minimum(np.maximum(x, low), high), as NumPy does; either bound may be absent.
Value call_clip(const FunctionCall& call, OperatorKind) {
  Value value = *call.arguments[0];
  if (call.arguments[1]) value = call.map(OperatorKind::maximum, {value, *call.arguments[1]});
  if (value.kind == ValueKind::broken) return value;
  if (call.arguments[2]) value = call.map(OperatorKind::minimum, {value, *call.arguments[2]});
  return value;
}

Value call_exp2(const FunctionCall& call, OperatorKind) {
  return call.map(OperatorKind::exp, {scaled_by(call, *call.arguments[0], std::numbers::ln2)});
}

Value call_log2(const FunctionCall& call, OperatorKind) {
  return scaled_by(call, call_map(call, OperatorKind::log), std::numbers::log2e);
}

Value call_log10(const FunctionCall& call, OperatorKind) {
  return scaled_by(call, call_map(call, OperatorKind::log), std::numbers::log10e);
}

Value call_reciprocal(const FunctionCall& call, OperatorKind) {
  if (call.tensor(0) == nullptr) return Value::broken();
  return call.map(OperatorKind::divide, {Value::of_integer(1), *call.arguments[0]});
}

Value call_dropout(const FunctionCall& call, OperatorKind) {
  const std::optional<double> probability = call.number(1, 0.1);
  if (call.tensor(0) == nullptr || !probability) return Value::broken();
  if (!(*probability >= 0 && *probability < 1)) {
    return call.report(concat("the dropout probability is ", *probability), "choose p with 0 <= p < 1");
  }
  return call.builder.dropout(*call.arguments[0], *probability, call.location());
}

Value call_causal_mask(const FunctionCall& call, OperatorKind kind) {
  const View* const view = call.tensor(0);
  if (view == nullptr) return Value::broken();
  if (view->axes.size() < 2) {
    return call.report("causal_mask needs a tensor with at least two axes",
                       "the last axis counts keys, the one before it queries");
  }
  return mapped_arguments(call, kind);
}

}  // namespace millrace
