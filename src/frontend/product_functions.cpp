// NumPy's products, as einsums over the axes that they pair.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "frontend/einsum.h"
#include "frontend/function_handlers.h"

namespace millrace {
namespace {

constexpr std::string_view kProductLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

// Both operands as tensors of numbers; nothing, with a report, otherwise.
std::optional<std::vector<View>> factors_of(const FunctionCall& call) {
  std::vector<View> factors;
  for (const size_t k : {0U, 1U}) {
    const View* const view = call.tensor(k);
    if (view == nullptr) return std::nullopt;
    if (call.builder.graph.tensor(view->tensor).dtype == DType::boolean) {
      call.report("a comparison is not a number", "choose with np.where(a < b, x, y)");
      return std::nullopt;
    }
    factors.push_back(*view);
  }
  return factors;
}

Value einsum_of(const FunctionCall& call, const std::string& subscripts, const std::vector<View>& factors) {
  return lower_einsum(subscripts, factors, {}, call.location(), call.builder, call.diagnostics);
}

bool check_pair(const FunctionCall& call, const std::vector<View>& factors, size_t a_axis, size_t b_axis) {
  const int64_t a = call.builder.extent(factors[0], a_axis);
  const int64_t b = call.builder.extent(factors[1], b_axis);
  if (a == b) return true;
  call.report(concat("'", call.expression.text, "' of ", call.builder.shape(factors[0]), " and ",
                     call.builder.shape(factors[1]), " would sum over ", a, " and ", b, " elements"),
              concat("axis ", a_axis, " of the first and axis ", b_axis, " of the second must have the same extent"));
  return false;
}

// Σ a · b over the paired axes; the result has the other axes of a, then those of b.
Value product_over(const FunctionCall& call, const std::vector<View>& factors,
                   const std::vector<std::pair<size_t, size_t>>& pairs) {
  const size_t a_rank = factors[0].axes.size();
  const size_t b_rank = factors[1].axes.size();
  if (a_rank + b_rank - pairs.size() > kProductLetters.size()) {
    return call.report(concat("this product has ", a_rank + b_rank - pairs.size(), " indices"),
                       concat("at most ", kProductLetters.size(), " are allowed"));
  }
  std::string a(kProductLetters.substr(0, a_rank));
  std::string b(kProductLetters.substr(a_rank, b_rank));
  std::string out = a + b;
  for (const auto& [a_axis, b_axis] : pairs) {
    if (!check_pair(call, factors, a_axis, b_axis)) return Value::broken();
    out.erase(out.find(a[a_axis]), 1);
    out.erase(out.find(b[b_axis]), 1);
    b[b_axis] = a[a_axis];
  }
  return einsum_of(call, concat(a, ",", b, "->", out), factors);
}

bool is_scalar(const View& view) { return view.axes.empty(); }

Value elementwise_product(const FunctionCall& call) {
  return call.map(OperatorKind::multiply, {*call.arguments[0], *call.arguments[1]});
}

bool has_number(const FunctionCall& call) {
  return call.arguments[0]->kind == ValueKind::number || call.arguments[1]->kind == ValueKind::number;
}

// The axes of one operand of a tensordot: a number or a tuple of them.
std::optional<std::vector<size_t>> axes_of_factor(const FunctionCall& call, const Value& value, size_t rank) {
  std::vector<size_t> axes;
  for (const Value& item : value.kind == ValueKind::tuple ? *value.items : std::vector<Value>{value}) {
    const std::optional<size_t> axis = call.axis(item, rank);
    if (!axis) return std::nullopt;
    if (std::find(axes.begin(), axes.end(), *axis) != axes.end()) {
      call.report(concat("axis ", *axis, " is given twice"), "give each axis once");
      return std::nullopt;
    }
    axes.push_back(*axis);
  }
  return axes;
}

std::optional<std::vector<std::pair<size_t, size_t>>> tensordot_pairs(const FunctionCall& call,
                                                                      const std::vector<View>& factors) {
  const Value axes = call.arguments[2].value_or(Value::of_integer(2));
  std::vector<std::pair<size_t, size_t>> pairs;
  if (axes.kind == ValueKind::number && axes.integer && *axes.integer >= 0 &&
      *axes.integer <= static_cast<int64_t>(std::min(factors[0].axes.size(), factors[1].axes.size()))) {
    const auto count = static_cast<size_t>(*axes.integer);
    for (size_t k = 0; k < count; ++k) pairs.emplace_back(factors[0].axes.size() - count + k, k);
    return pairs;
  }
  if (axes.kind != ValueKind::tuple || axes.items->size() != 2) {
    call.report("np.tensordot's axes are neither a number of axes that both tensors have nor two lists of axes",
                "write axes=1, or axes=((0,), (1,))");
    return std::nullopt;
  }
  std::array<std::vector<size_t>, 2> lists;
  for (const size_t k : {0U, 1U}) {
    const std::optional<std::vector<size_t>> list = axes_of_factor(call, (*axes.items)[k], factors[k].axes.size());
    if (!list) return std::nullopt;
    lists.at(k) = *list;
  }
  if (lists[0].size() != lists[1].size()) {
    call.report(concat("np.tensordot pairs ", lists[0].size(), " axes with ", lists[1].size()),
                "give as many axes of the first as of the second");
    return std::nullopt;
  }
  for (size_t k = 0; k < lists[0].size(); ++k) pairs.emplace_back(lists[0][k], lists[1][k]);
  return pairs;
}

}  // namespace

// Axes before the last two broadcast; a vector is a row on the left and a column on the right.
Value call_matmul(const FunctionCall& call, OperatorKind) {
  const std::optional<std::vector<View>> factors = factors_of(call);
  if (!factors) return Value::broken();
  const size_t a_rank = (*factors)[0].axes.size();
  const size_t b_rank = (*factors)[1].axes.size();
  if (a_rank == 0 || b_rank == 0) {
    return call.report("a matrix product needs tensors with axes", "multiply by a scalar with *");
  }
  if (!check_pair(call, *factors, a_rank - 1, b_rank == 1 ? 0 : b_rank - 2)) return Value::broken();
  const std::string a = a_rank == 1 ? "k" : "...mk";
  const std::string b = b_rank == 1 ? "k" : "...kn";
  const std::string out = concat(a_rank > 1 || b_rank > 1 ? "..." : "", a_rank == 1 ? "" : "m", b_rank == 1 ? "" : "n");
  return einsum_of(call, concat(a, ",", b, "->", out), *factors);
}

Value call_dot(const FunctionCall& call, OperatorKind) {
  if (has_number(call)) return elementwise_product(call);
  const std::optional<std::vector<View>> factors = factors_of(call);
  if (!factors) return Value::broken();
  if (is_scalar((*factors)[0]) || is_scalar((*factors)[1])) return elementwise_product(call);
  const size_t b_rank = (*factors)[1].axes.size();
  return product_over(call, *factors, {{(*factors)[0].axes.size() - 1, b_rank == 1 ? 0 : b_rank - 2}});
}

Value call_inner(const FunctionCall& call, OperatorKind) {
  if (has_number(call)) return elementwise_product(call);
  const std::optional<std::vector<View>> factors = factors_of(call);
  if (!factors) return Value::broken();
  if (is_scalar((*factors)[0]) || is_scalar((*factors)[1])) return elementwise_product(call);
  return product_over(call, *factors, {{(*factors)[0].axes.size() - 1, (*factors)[1].axes.size() - 1}});
}

Value call_vdot(const FunctionCall& call, OperatorKind) {
  const std::optional<std::vector<View>> factors = factors_of(call);
  if (!factors) return Value::broken();
  if (call.builder.shape((*factors)[0]) != call.builder.shape((*factors)[1])) {
    return call.report(concat("np.vdot of ", call.builder.shape((*factors)[0]), " and ",
                              call.builder.shape((*factors)[1]), " is not supported"),
                       "pass tensors of one shape, or write the product with np.einsum");
  }
  if (is_scalar((*factors)[0])) return elementwise_product(call);
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t axis = 0; axis < (*factors)[0].axes.size(); ++axis) pairs.emplace_back(axis, axis);
  return product_over(call, *factors, pairs);
}

Value call_outer(const FunctionCall& call, OperatorKind) {
  const std::optional<std::vector<View>> factors = factors_of(call);
  if (!factors) return Value::broken();
  if ((*factors)[0].axes.size() != 1 || (*factors)[1].axes.size() != 1) {
    return call.report(concat("np.outer of ", call.builder.shape((*factors)[0]), " and ",
                              call.builder.shape((*factors)[1]), " is not supported"),
                       "pass vectors, or write np.tensordot(a, b, axes=0)");
  }
  return product_over(call, *factors, {});
}

Value call_tensordot(const FunctionCall& call, OperatorKind) {
  const std::optional<std::vector<View>> factors = factors_of(call);
  if (!factors) return Value::broken();
  const std::optional<std::vector<std::pair<size_t, size_t>>> pairs = tensordot_pairs(call, *factors);
  return pairs ? product_over(call, *factors, *pairs) : Value::broken();
}

}  // namespace millrace
