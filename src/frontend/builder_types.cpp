// Types in the builder: promotion, and the operations that integers and booleans allow.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/significant.h"
#include "base/text.h"
#include "frontend/builder.h"

namespace millrace {
namespace {

// Whether the operator gives integers if its inputs are integers.
bool keeps_integers(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::index:
    case OperatorKind::copy:
    case OperatorKind::join:
    case OperatorKind::add:
    case OperatorKind::subtract:
    case OperatorKind::multiply:
    case OperatorKind::negate:
    case OperatorKind::absolute:
    case OperatorKind::maximum:
    case OperatorKind::minimum:
    case OperatorKind::where: return true;
    default: return false;
  }
}

// The largest number that a type holds; infinite for integers and booleans, with which programs do not compute.
double largest_of(DType dtype) {
  switch (dtype) {
    case DType::float16: return 65504;
    case DType::bfloat16: return 0x1.FEp127;
    case DType::float32: return static_cast<double>(std::numeric_limits<float>::max());
    case DType::float64: return std::numeric_limits<double>::max();
    default: return std::numeric_limits<double>::infinity();
  }
}

// A number that, added to a score, hides it from a softmax, and that leaves room for the scores.
double hiding_number(DType dtype) { return largest_of(dtype) / 2; }

std::string shown_number(double number) { return significant(number, 6); }

}  // namespace

// Whether its inputs are booleans, and its output too.
bool Builder::is_logical(OperatorKind kind) {
  return kind == OperatorKind::logical_and || kind == OperatorKind::logical_or || kind == OperatorKind::logical_not;
}

// Whether its inputs may be integers.
bool Builder::takes_integers(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::less:
    case OperatorKind::less_equal:
    case OperatorKind::equal:
    case OperatorKind::not_equal:
    case OperatorKind::where:
    case OperatorKind::copy: return true;
    default: return false;
  }
}

void Builder::note_integers(const Operator& op) {
  const bool of_integers = std::all_of(op.inputs.begin(), op.inputs.end(), [&](const Access& input) {
    const Tensor& tensor = graph.tensor(input.tensor);
    if (op.kind == OperatorKind::where && tensor.dtype == DType::boolean) return true;
    if (tensor.role == TensorRole::constant) return tensor.value == std::floor(tensor.value);
    return is_integer(tensor.dtype) || whole_numbers_.contains(input.tensor);
  });
  if (of_integers && keeps_integers(op.kind) && op.value == std::floor(op.value))
    whole_numbers_.insert(op.outputs[0].tensor);
}

DType Builder::common_dtype(const std::vector<View>& views) const {
  // Tensors decide the type, scalars and tensors made of numbers only if there are no others, constants never. np.where
  // of two numbers has the type of what its condition compares.
  std::optional<DType> of_tensors;
  std::optional<DType> of_scalars;
  bool integers = !views.empty();
  DType widest_integer = DType::int32;
  const auto widen = [](std::optional<DType>& common, DType dtype) {
    if (!common || *common == dtype) {
      common = dtype;
    } else {
      // float16 with bfloat16 needs float32 to hold both.
      common = *common == DType::float64 || dtype == DType::float64 ? DType::float64 : DType::float32;
    }
  };
  for (const View& view : views) {
    const Tensor& tensor = graph.tensor(view.tensor);
    if (tensor.role == TensorRole::constant) {
      integers = integers && tensor.value == std::floor(tensor.value);
      continue;
    }
    integers = integers && is_integer(tensor.dtype);
    if (tensor.dtype == DType::int64) widest_integer = DType::int64;
    const auto compared = compared_.find(view.tensor);
    const bool weak = tensor.role == TensorRole::scalar || made_of_numbers_.contains(view.tensor);
    if (weak || compared != compared_.end()) {
      widen(of_scalars, compared == compared_.end() ? tensor.dtype : compared->second);
    } else if (is_floating(tensor.dtype)) {
      widen(of_tensors, tensor.dtype);
    } else if (!is_integer(tensor.dtype)) {
      widen(of_scalars, dtype_of_arguments());
    }
  }
  const bool any_integer = std::any_of(views.begin(), views.end(),
                                       [&](const View& view) { return is_integer(graph.tensor(view.tensor).dtype); });
  if (integers && any_integer) return widest_integer;
  if (any_integer && !of_tensors) return dtype_of_arguments();
  return of_tensors.value_or(of_scalars.value_or(DType::float32));
}

DType Builder::dtype_of_choice(const std::vector<View>& views) const {
  const DType chosen = common_dtype({views.begin() + 1, views.end()});
  return is_integer(chosen) ? chosen : common_dtype(views);
}

DType Builder::dtype_of_arguments() const {
  std::vector<View> views;
  for (const TensorId argument : graph.arguments) {
    const Tensor& tensor = graph.tensor(argument);
    if (tensor.role == TensorRole::argument && is_floating(tensor.dtype)) views.push_back({argument, {}, {}, {}});
  }
  return common_dtype(views);
}

std::optional<std::vector<Value>> Builder::with_held_numbers(OperatorKind kind, const std::vector<Value>& inputs,
                                                             SourceLocation location) {
  const bool chosen = kind == OperatorKind::where || kind == OperatorKind::maximum || kind == OperatorKind::minimum;
  const bool computed = kind == OperatorKind::multiply || kind == OperatorKind::add || kind == OperatorKind::subtract;
  std::vector<Value> held = inputs;
  if (!chosen && !computed) return held;
  std::vector<View> tensors;
  for (const Value& input : inputs) {
    if (input.kind == ValueKind::view) tensors.push_back(input.view);
  }
  if (tensors.empty()) return held;
  const DType dtype = common_dtype(tensors);
  const double largest = largest_of(dtype);
  for (Value& input : held) {
    if (input.kind != ValueKind::number || std::isinf(input.number) || !(std::abs(input.number) > largest)) continue;
    if (kind == OperatorKind::multiply) {
      large_factors_.push_back({input.number, location, {}});
      input.number = std::copysign(hiding_number(dtype), input.number);
      continue;
    }
    if (computed) {
      report_large_number(input.number, dtype, location);
      return std::nullopt;
    }
    input.number = std::copysign(largest, input.number);
  }
  return held;
}

void Builder::report_large_number(double number, DType dtype, SourceLocation location) {
  diagnostics_.report(
      location,
      concat(shown_number(number), " is beyond the largest ", name_of(dtype), ", ", shown_number(largest_of(dtype))),
      concat("use a smaller number or --dtype ", dtype == DType::float32 ? "float64" : "float32",
             "; to hide elements write np.where(keep, x, -1e9)"));
}

// Whether the product is read only by softmaxes, after sums with something computed: the scores.
bool Builder::is_only_added_to_scores(TensorId product, const std::vector<std::vector<OperatorId>>& readers) const {
  using Reached = std::pair<TensorId, bool>;  // a tensor, and whether it contains scores
  std::set<Reached> known = {{product, false}};
  std::vector<Reached> waiting(known.begin(), known.end());
  while (!waiting.empty()) {
    const auto [tensor, added] = waiting.back();
    waiting.pop_back();
    if (results_.contains(tensor) || readers[tensor.at()].empty()) return false;
    for (const OperatorId reader : readers[tensor.at()]) {
      const Operator& op = graph.operators[reader.at()];
      if (op.kind == OperatorKind::softmax && added) continue;
      const bool sum = op.kind == OperatorKind::add || op.kind == OperatorKind::subtract;
      if (!sum && op.kind != OperatorKind::copy && op.kind != OperatorKind::where) return false;
      const auto is_score = [&, read = tensor](const Access& input) {
        return input.tensor != read && graph.tensor(input.tensor).role != TensorRole::constant;
      };
      const bool with_scores = sum && std::any_of(op.inputs.begin(), op.inputs.end(), is_score);
      const Reached next{op.outputs[0].tensor, added || with_scores};
      if (known.insert(next).second) waiting.push_back(next);
    }
  }
  return true;
}

void Builder::judge_large_factors() {
  if (large_factors_.empty()) return;
  const std::vector<std::vector<OperatorId>> readers = readers_of(graph);
  for (const LargeFactor& factor : large_factors_) {
    if (!factor.product.valid()) continue;  // there is another error
    const DType dtype = graph.tensor(factor.product).dtype;
    if (!is_only_added_to_scores(factor.product, readers)) {
      report_large_number(factor.number, dtype, factor.location);
      continue;
    }
    const std::string taken = shown_number(std::copysign(hiding_number(dtype), factor.number));
    diagnostics_.warn(
        factor.location,
        concat(shown_number(factor.number), " is beyond the largest ", name_of(dtype), ", ",
               shown_number(largest_of(dtype)), "; ", taken, " is taken, which hides as much from the softmax"),
        concat("write ", taken, ", or np.where(keep, x, -1e9)"));
  }
}

bool Builder::check_floating(const View& view, SourceLocation location) {
  if (!is_integer(graph.tensor(view.tensor).dtype)) return true;
  diagnostics_.report(location, "integers are only compared, chosen by np.where and used as indices",
                      "convert them: x.astype(float32)");
  return false;
}

// The precision of what a program computes from numbers alone, such as angles: at least float32.
DType Builder::dtype_of_numbers() const {
  const bool wide = std::any_of(graph.arguments.begin(), graph.arguments.end(),
                                [&](TensorId argument) { return graph.tensor(argument).dtype == DType::float64; });
  return wide ? DType::float64 : DType::float32;
}

bool Builder::check_boolean(OperatorKind kind, size_t input, const View& view, SourceLocation location) {
  const bool boolean = graph.tensor(view.tensor).dtype == DType::boolean;
  const bool condition = kind == OperatorKind::where && input == 0;
  if (boolean == (condition || is_logical(kind))) return true;
  if (is_logical(kind)) {
    diagnostics_.report(location, concat("an operand of ", info_of(kind).name, " is not a comparison"),
                        "write np.logical_and(a < b, c < d)");
  } else {
    diagnostics_.report(location,
                        boolean ? "a comparison is not a number" : "the condition of np.where is not a comparison",
                        "write np.where(a < b, x, y)");
  }
  return false;
}

}  // namespace millrace
