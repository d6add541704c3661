#include "frontend/constants.h"

#include <cmath>

#include "base/checked.h"
#include "base/text.h"

namespace millrace {
namespace {

// A result may be infinite only if an input is: np.inf is a number, an overflow is not.
Value finite(double number, SourceLocation location, Diagnostics& diagnostics, bool infinite = false) {
  if (std::isfinite(number) || (infinite && std::isinf(number))) return Value::of(number);
  diagnostics.report(location, "this constant is not a finite number", "check for a division by zero or an overflow");
  return Value::broken();
}

std::optional<int64_t> integer_power(int64_t base, int64_t exponent) {
  std::optional<int64_t> result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (int64_t k = 0; k < exponent && result; ++k) result = checked_multiply(*result, base);
  return result;
}

std::optional<int64_t> floor_divide(int64_t a, int64_t b) {
  if (a == INT64_MIN && b == -1) return std::nullopt;
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// Python's remainder has the sign of the divisor.
int64_t python_remainder(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double python_remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace

Value fold_binary(std::string_view op, const Value& a, const Value& b, SourceLocation location,
                  Diagnostics& diagnostics) {
  const bool divides = op == "/" || op == "//" || op == "%";
  const bool infinite = std::isinf(a.number) || std::isinf(b.number);
  if (divides && b.number == 0) {
    diagnostics.report(location, "division by zero", "divide by a number that is not zero");
    return Value::broken();
  }
  if (a.integer && b.integer && op != "/" && (op != "**" || *b.integer >= 0)) {
    std::optional<int64_t> result;
    if (op == "+") result = checked_add(*a.integer, *b.integer);
    if (op == "-") result = checked_subtract(*a.integer, *b.integer);
    if (op == "*") result = checked_multiply(*a.integer, *b.integer);
    if (op == "//") result = floor_divide(*a.integer, *b.integer);
    if (op == "%") result = python_remainder(*a.integer, *b.integer);
    if (op == "&") result = *a.integer & *b.integer;
    if (op == "|") result = *a.integer | *b.integer;
    if (op == "^") result = *a.integer ^ *b.integer;
    if (op == "**") result = integer_power(*a.integer, *b.integer);
    if (result) return Value::of_integer(*result);
    diagnostics.report(location, concat(*a.integer, " ", op, " ", *b.integer, " does not fit into 64 bits"),
                       "choose smaller sizes");
    return Value::broken();
  }
  if (op == "+") return finite(a.number + b.number, location, diagnostics, infinite);
  if (op == "-") return finite(a.number - b.number, location, diagnostics, infinite);
  if (op == "*") return finite(a.number * b.number, location, diagnostics, infinite);
  if (op == "/") return finite(a.number / b.number, location, diagnostics, infinite);
  if (op == "//") return finite(std::floor(a.number / b.number), location, diagnostics, infinite);
  if (op == "%") return finite(python_remainder(a.number, b.number), location, diagnostics);
  if (op != "**") {
    diagnostics.report(location, concat("'", op, "' needs integers here"), "write and, or of conditions");
    return Value::broken();
  }
  return finite(std::pow(a.number, b.number), location, diagnostics, infinite);
}

Value fold_negation(const Value& a, SourceLocation location, Diagnostics& diagnostics) {
  if (!a.integer) return Value::of(a.number == 0 ? 0 : -a.number);
  return fold_binary("-", Value::of_integer(0), a, location, diagnostics);
}

Value fold_function(OperatorKind kind, const std::vector<Value>& inputs, double value, SourceLocation location,
                    Diagnostics& diagnostics) {
  const double a = inputs[0].number;
  const bool infinite = std::isinf(a) || (inputs.size() > 1 && std::isinf(inputs[1].number));
  switch (kind) {
    case OperatorKind::exp: return finite(std::exp(a), location, diagnostics, infinite);
    case OperatorKind::log: return finite(std::log(a), location, diagnostics);
    case OperatorKind::sqrt: return finite(std::sqrt(a), location, diagnostics);
    case OperatorKind::tanh: return finite(std::tanh(a), location, diagnostics);
    case OperatorKind::sin: return finite(std::sin(a), location, diagnostics);
    case OperatorKind::cos: return finite(std::cos(a), location, diagnostics);
    case OperatorKind::log1p: return finite(std::log1p(a), location, diagnostics);
    case OperatorKind::expm1: return finite(std::expm1(a), location, diagnostics);
    case OperatorKind::absolute: return finite(std::abs(a), location, diagnostics, infinite);
    case OperatorKind::power: return finite(std::pow(a, value), location, diagnostics);
    case OperatorKind::maximum: return finite(std::max(a, inputs[1].number), location, diagnostics, infinite);
    case OperatorKind::minimum: return finite(std::min(a, inputs[1].number), location, diagnostics, infinite);
    default:
      diagnostics.report(location, "this function needs a tensor, not a number",
                         "pass an argument, or a value computed from one");
      return Value::broken();
  }
}

}  // namespace millrace
