#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/checked.h"
#include "base/text.h"
#include "frontend/constants.h"
#include "frontend/static_values.h"
#include "frontend/token_cursor.h"

namespace millrace {
namespace {

// A call of a function of static values.
struct StaticCall {
  const Expression& expression;
  const std::vector<Value>& arguments;
  Diagnostics& diagnostics;

  Value report(std::string_view message, std::string_view remedy) const {
    diagnostics.report(expression.location, message, remedy);
    return Value::broken();
  }
  Value sequence(std::vector<Value> items, bool list = false) const {
    return make_sequence(std::move(items), list, expression.location, diagnostics);
  }
};

using StaticHandler = Value (*)(const StaticCall& call);

struct StaticFunction {
  std::string_view name;
  std::string_view
      usage;  // one letter for each argument: n number, i integer, s sequence, v any; those after '|' optional
  std::string_view written;
  StaticHandler handler;
};

Value call_range(const StaticCall& call) {
  const std::vector<Value>& a = call.arguments;
  const int64_t start = a.size() > 1 ? *a[0].integer : 0;
  const int64_t stop = *a[a.size() > 1 ? 1 : 0].integer;
  const int64_t step = a.size() > 2 ? *a[2].integer : 1;
  if (step == 0) return call.report("the step of this range is 0", "choose another step");
  std::vector<Value> items;
  std::optional<int64_t> k = start;
  while (k && (step > 0 ? *k < stop : *k > stop)) {
    if (items.size() >= kMaxItems)
      return call.report(concat("this range has more than ", kMaxItems, " items"),
                         "loops are unrolled: compute with whole tensors instead");
    items.push_back(Value::of_integer(*k));
    k = checked_add(*k, step);
  }
  return call.sequence(std::move(items));
}

Value call_zip(const StaticCall& call) {
  size_t count = call.arguments.empty() ? 0 : kMaxItems;
  for (const Value& argument : call.arguments) count = std::min(count, argument.items->size());
  std::vector<Value> rows;
  for (size_t k = 0; k < count; ++k) {
    std::vector<Value> row;
    for (const Value& argument : call.arguments) row.push_back((*argument.items)[k]);
    rows.push_back(call.sequence(std::move(row)));
  }
  return call.sequence(std::move(rows), true);
}

Value call_enumerate(const StaticCall& call) {
  std::vector<Value> rows;
  int64_t k = call.arguments.size() > 1 ? *call.arguments[1].integer : 0;
  if (k > INT64_MAX - static_cast<int64_t>(kMaxItems)) return call.report("this number is too large", "count from 0");
  for (const Value& item : *call.arguments[0].items) rows.push_back(call.sequence({Value::of_integer(k++), item}));
  return call.sequence(std::move(rows), true);
}

Value call_reversed(const StaticCall& call) {
  return call.sequence({call.arguments[0].items->rbegin(), call.arguments[0].items->rend()}, true);
}

Value call_sequence(const StaticCall& call) {
  return call.sequence(*call.arguments[0].items, call.expression.text == "list");
}

Value call_len(const StaticCall& call) {
  return Value::of_integer(static_cast<int64_t>(call.arguments[0].items->size()));
}

Value integer_of(const StaticCall& call, double number) {
  if (std::abs(number) < 9e18) return Value::of_integer(static_cast<int64_t>(number));
  return call.report("this number does not fit into 64 bits", "choose smaller sizes");
}

Value call_int(const StaticCall& call) {
  return call.arguments[0].integer ? call.arguments[0] : integer_of(call, std::trunc(call.arguments[0].number));
}
Value call_floor(const StaticCall& call) { return integer_of(call, std::floor(call.arguments[0].number)); }
Value call_ceil(const StaticCall& call) { return integer_of(call, std::ceil(call.arguments[0].number)); }
Value call_float(const StaticCall& call) { return Value::of(call.arguments[0].number); }
Value call_bool(const StaticCall& call) { return Value::of_integer(*condition_of(call.arguments[0]) ? 1 : 0); }

Value call_absolute(const StaticCall& call) {
  const Value& a = call.arguments[0];
  return a.number < 0 ? fold_negation(a, call.expression.location, call.diagnostics) : a;
}

// The numbers that max, min, sum and prod take: one sequence, or several arguments.
const std::vector<Value>* numbers_in(const StaticCall& call) {
  const bool one = call.arguments.size() == 1 && call.arguments[0].kind == ValueKind::tuple;
  const std::vector<Value>& numbers = one ? *call.arguments[0].items : call.arguments;
  for (const Value& value : numbers) {
    if (value.kind == ValueKind::number) continue;
    call.report(concat("'", call.expression.text, "' needs numbers here"), "write np.maximum, np.sum, … for tensors");
    return nullptr;
  }
  return &numbers;
}

Value call_extremum(const StaticCall& call) {
  const std::vector<Value>* const numbers = numbers_in(call);
  if (numbers == nullptr) return Value::broken();
  if (numbers->empty()) return call.report(concat("'", call.expression.text, "' of no numbers"), "give at least one");
  const auto less = [](const Value& a, const Value& b) { return a.number < b.number; };
  return call.expression.text == "max" ? *std::max_element(numbers->begin(), numbers->end(), less)
                                       : *std::min_element(numbers->begin(), numbers->end(), less);
}

Value folded(const StaticCall& call, std::string_view op, int64_t first) {
  const std::vector<Value>* const numbers = numbers_in(call);
  Value total = numbers == nullptr ? Value::broken() : Value::of_integer(first);
  for (size_t k = 0; total.kind == ValueKind::number && k < numbers->size(); ++k)
    total = fold_binary(op, total, (*numbers)[k], call.expression.location, call.diagnostics);
  return total;
}

Value call_sum_of_numbers(const StaticCall& call) { return folded(call, "+", 0); }
Value call_prod_of_numbers(const StaticCall& call) { return folded(call, "*", 1); }

template <double (*function)(double)>
Value call_math(const StaticCall& call) {
  const double result = function(call.arguments[0].number);
  if (std::isfinite(result)) return Value::of(result);
  return call.report("this constant is not a finite number", "check for a division by zero or an overflow");
}

Value call_pow(const StaticCall& call) {
  return fold_binary("**", Value::of(call.arguments[0].number), call.arguments[1], call.expression.location,
                     call.diagnostics);
}

constexpr auto kBuiltIn = std::to_array<StaticFunction>({
    {"len", "s", "len(xs)", call_len},
    {"range", "i|ii", "range(n), range(start, stop) or range(start, stop, step)", call_range},
    {"zip", "*", "zip(xs, ys)", call_zip},
    {"enumerate", "s|i", "enumerate(xs)", call_enumerate},
    {"reversed", "s", "reversed(xs)", call_reversed},
    {"list", "s", "list(xs)", call_sequence},
    {"tuple", "s", "tuple(xs)", call_sequence},
    {"int", "n", "int(number)", call_int},
    {"float", "n", "float(number)", call_float},
    {"bool", "v", "bool(value)", call_bool},
    {"abs", "n", "abs(number)", call_absolute},
    {"max", "v|vvvvvvv", "max(a, b)", call_extremum},
    {"min", "v|vvvvvvv", "min(a, b)", call_extremum},
    {"sum", "s", "sum(xs)", call_sum_of_numbers},
});

constexpr auto kMath = std::to_array<StaticFunction>({
    {"sqrt", "n", "math.sqrt(number)", call_math<std::sqrt>},
    {"exp", "n", "math.exp(number)", call_math<std::exp>},
    {"log", "n", "math.log(number)", call_math<std::log>},
    {"log2", "n", "math.log2(number)", call_math<std::log2>},
    {"sin", "n", "math.sin(number)", call_math<std::sin>},
    {"cos", "n", "math.cos(number)", call_math<std::cos>},
    {"tanh", "n", "math.tanh(number)", call_math<std::tanh>},
    {"fabs", "n", "math.fabs(number)", call_math<std::fabs>},
    {"pow", "nn", "math.pow(a, b)", call_pow},
    {"floor", "n", "math.floor(number)", call_floor},
    {"ceil", "n", "math.ceil(number)", call_ceil},
    {"prod", "s", "math.prod(xs)", call_prod_of_numbers},
});

const StaticFunction* find_static(const Expression& call) {
  const auto find = [&](const auto& table) -> const StaticFunction* {
    for (const StaticFunction& function : table) {
      if (function.name == call.text) return &function;
    }
    return nullptr;
  };
  if (call.method) return nullptr;
  if (call.prefix.empty()) return find(kBuiltIn);
  return call.prefix == "math" ? find(kMath) : nullptr;
}

bool fits_letter(char letter, const Value& value) {
  if (letter == 'n') return value.kind == ValueKind::number;
  if (letter == 'i') return value.kind == ValueKind::number && value.integer;
  return letter == 's' ? value.kind == ValueKind::tuple : value.kind != ValueKind::view;
}

bool fits_usage(const StaticFunction& function, const std::vector<Value>& arguments) {
  if (function.usage == "*")
    return std::all_of(arguments.begin(), arguments.end(), [](const Value& v) { return fits_letter('s', v); });
  std::string letters(function.usage);
  const size_t bar = letters.find('|');
  const size_t required = std::min(bar, letters.size());
  if (bar != std::string::npos) letters.erase(bar, 1);
  if (arguments.size() < required || arguments.size() > letters.size()) return false;
  for (size_t k = 0; k < arguments.size(); ++k) {
    if (!fits_letter(letters[k], arguments[k])) return false;
  }
  return true;
}

}  // namespace

std::optional<Value> named_constant(const Expression& name) {
  const bool module = name.prefix == "np" || name.prefix == "numpy" || name.prefix == "math" || name.prefix == "mr" ||
                      name.prefix == "millrace.numpy";
  if (!module) return std::nullopt;
  if (name.text == "pi") return Value::of(std::numbers::pi);
  if (name.text == "e") return Value::of(std::numbers::e);
  if (name.text == "inf") return Value::of(std::numeric_limits<double>::infinity());
  return std::nullopt;
}

std::optional<Value> imported_constant(std::string_view origin) {
  const size_t dot = origin.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  Expression name;
  name.prefix = origin.substr(0, dot);
  name.text = origin.substr(dot + 1);
  return named_constant(name);
}

bool is_static_function(const Expression& call) { return find_static(call) != nullptr; }

Value call_static_function(const Expression& call, const std::vector<Value>& arguments, Diagnostics& diagnostics) {
  const StaticFunction& function = *find_static(call);
  const StaticCall bound{call, arguments, diagnostics};
  for (const Value& argument : arguments) {
    if (argument.kind == ValueKind::broken) return Value::broken();
  }
  const bool named = std::any_of(call.keywords.begin(), call.keywords.end(),
                                 [](const std::string& keyword) { return !keyword.empty() && keyword != "start"; });
  if (named || !fits_usage(function, arguments))
    return bound.report(concat("'", call.text, "' does not take these arguments"), concat("write ", function.written));
  return function.handler(bound);
}

}  // namespace millrace
