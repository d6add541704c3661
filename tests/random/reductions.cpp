#include "random/reductions.h"

#include <cmath>
#include <vector>

#include "base/text.h"

namespace millrace::random_programs {
namespace {

// One axis mostly, else several: ascending.
std::vector<size_t> some_axes(Random& random, size_t rank, int several_percent) {
  if (!random.chance(several_percent)) return {static_cast<size_t>(random.below(static_cast<int64_t>(rank)))};
  std::vector<size_t> axes;
  for (size_t i = 0; i < rank; ++i) {
    if (random.chance(60)) axes.push_back(i);
  }
  if (axes.empty()) axes.push_back(rank - 1);
  return axes;
}

// An axis or a tuple of axes, each counted from the front or from the back.
std::string axis_text(Random& random, const std::vector<size_t>& axes, size_t rank) {
  std::vector<std::string> numbers;
  for (const size_t axis : axes) {
    const auto position = static_cast<int64_t>(axis);
    numbers.push_back(std::to_string(random.chance(50) ? position : position - static_cast<int64_t>(rank)));
  }
  if (numbers.size() == 1) return random.chance(90) ? numbers[0] : "(" + numbers[0] + ",)";
  return "(" + join(numbers, ", ") + ")";
}

int64_t extent_of(const Value& value, const std::vector<size_t>& axes) {
  int64_t product = 1;
  for (const size_t axis : axes) product *= value.shape[axis].extent;
  return product;
}

// The axis argument of softmax and the normalizations, which take one axis; the last is the default.
std::string axis_argument(Random& random, size_t axis, size_t rank) {
  const auto position = static_cast<int64_t>(axis);
  const int64_t shift = random.chance(50) ? 0 : static_cast<int64_t>(rank);
  if (axis + 1 == rank && random.chance(50)) return "";
  return concat(random.chance(95) ? ", axis=" : ", ", position - shift);
}

size_t some_axis(Body& body, const Value& value) {
  return static_cast<size_t>(body.random.below(static_cast<int64_t>(value.shape.size())));
}
}  // namespace

Value reduced(Body& body, const Value& value) {
  static const std::vector<std::string> kReductions = {"np.sum", "np.mean", "np.max", "np.min"};
  Random& random = body.random;
  const std::string function = random.pick(kReductions);
  body.spend(function == "np.mean" ? 2 : 1);
  const size_t rank = value.shape.size();
  std::vector<size_t> axes;
  std::string text = concat(function, "(", value.text);
  if (rank == 0 || random.chance(8)) {
    for (size_t i = 0; i < rank; ++i) axes.push_back(i);
  } else {
    axes = some_axes(random, rank, 30);
    text += ", axis=" + axis_text(random, axes, rank);
  }
  const double bound =
      function == "np.sum" ? value.bound * std::sqrt(static_cast<double>(extent_of(value, axes))) : value.bound;
  const bool keep = random.chance(50);
  Shape shape;
  for (size_t i = 0, next = 0; i < rank; ++i) {
    const bool gone = next < axes.size() && axes[next] == i;
    if (gone) ++next;
    if (!gone) shape.push_back(value.shape[i]);
    if (gone && keep) shape.push_back({});
  }
  if (keep) {
    text += ", keepdims=True";
  } else if (random.chance(40)) {
    text += ", keepdims=False";
  }
  return {text + ")", Binding::atom, shape, bound, false};
}

Value softmax_along(Body& body, const Value& value, size_t axis) {
  body.spend(1);
  const std::string argument = axis_argument(body.random, axis, value.shape.size());
  return {concat("softmax(", value.text, argument, ")"), Binding::atom, value.shape, 1, false};
}

Value softmax_somewhere(Body& body, const Value& value) { return softmax_along(body, value, some_axis(body, value)); }

Value normalized(Body& body, const Value& value) {
  Random& random = body.random;
  const size_t axis = some_axis(body, value);
  body.spend(1);
  const Shape shape = {value.shape[axis]};
  const bool by_mean = random.chance(50);
  const Value weight = body.parameter(shape);
  const std::string bias = by_mean ? ", " + body.parameter(shape).text : "";
  const std::string argument = axis_argument(random, axis, value.shape.size());
  const std::string eps = random.chance(60) ? "" : random.chance(50) ? ", eps=1e-3" : ", eps=0.01";
  const double bound = std::sqrt(static_cast<double>(value.shape[axis].extent)) + 1;
  return {concat(by_mean ? "layernorm(" : "rmsnorm(", value.text, ", ", weight.text, bias, argument, eps, ")"),
          Binding::atom, value.shape, bound, false};
}

Value dropped(Body& body, const Value& value) {
  static const std::vector<std::string> kProbabilities = {"",        ", p=0.1", ", p=0.5", ", p=0.25",
                                                          ", p=0.3", ", p=0",   ", 0.2"};
  body.spend(1);
  const std::string probability = body.random.pick(kProbabilities);
  return {concat("dropout(", value.text, probability, ")"), Binding::atom, value.shape, 2 * value.bound, false};
}

}  // namespace millrace::random_programs
