#include "random/named_functions.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "random/convolutions.h"
#include "random/elementwise.h"

namespace millrace::random_programs {
namespace {

std::string size_text(const Axis& axis) { return axis.size.empty() ? std::to_string(axis.extent) : axis.size; }

std::string shape_text(const Shape& shape) {
  std::vector<std::string> sizes;
  for (const Axis& axis : shape) sizes.push_back(size_text(axis));
  return sizes.size() == 1 ? concat("(", sizes[0], ",)") : concat("(", join(sizes, ", "), ")");
}

Value call_of(const std::string& function, const std::string& arguments, const Shape& shape, double bound) {
  return {concat(function, "(", arguments, ")"), Binding::atom, shape, bound, false};
}

// --- Elementwise ---

// One elementwise function of the value.
Value one_function(Body& body, const Value& value) {
  Random& random = body.random;
  const double b = value.bound;
  const std::string& x = value.text;
  if (random.chance(35)) return unary(body, value);
  body.spend(1);
  switch (random.below(14)) {
    case 0: return call_of("np.sin", x, value.shape, 1);
    case 1: return call_of("np.cos", x, value.shape, 1);
    case 2: return call_of("sigmoid", x, value.shape, 1);
    case 3: return call_of("softplus", x, value.shape, b + 0.7);
    case 4: return call_of("erf", x, value.shape, 1);
    case 5: {
      body.spend(1);
      return call_of("np.log1p", concat("np.square(", x, ")"), value.shape, std::log1p(b * b));
    }
    case 6: {
      body.spend(1);
      return call_of("np.expm1", concat("np.tanh(", x, ")"), value.shape, 1.72);
    }
    case 7: {
      // A sign of a value that is rarely zero, where it jumps.
      body.spend(2);
      const Value name = body.keep(value);
      return {concat("np.sign(", name.text, " - 0.2719) * ", name.text), Binding::product, value.shape, b, false};
    }
    case 8: {
      body.spend(1);
      static const std::vector<std::string> kBounds = {"-0.5, 0.75", "None, 0.625", "a_min=-1.5, a_max=1.5",
                                                       "-0.3125, None"};
      return call_of("np.clip", concat(x, ", ", random.pick(kBounds)), value.shape, b);
    }
    case 9: {
      body.spend(2);
      return call_of("np.exp2", concat("np.tanh(", x, ")"), value.shape, 2);
    }
    case 10:
    case 11: {
      body.spend(3);
      const std::string function = random.chance(50) ? "np.log2" : "np.log10";
      return call_of(function, concat("np.square(", x, ") + 0.5"), value.shape, std::max(1.0, std::log2(b * b + 0.5)));
    }
    case 12:
      return {concat(operand(value, Binding::atom), ".astype(np.float64)"), Binding::atom, value.shape, b, value.exact};
    default: {
      body.spend(2);
      return call_of("np.reciprocal", concat("np.square(", x, ") + 0.5"), value.shape, 2);
    }
  }
}

Value chained(Body& body, const Value& value) {
  Value chain = value;
  const int64_t count = 2 + body.random.below(3);
  for (int64_t k = 0; k < count; ++k) chain = tame(body, one_function(body, chain));
  return chain;
}

// --- Comparisons and logic ---

// A comparison that rounding cannot decide: of arguments, or of the value with a number that no program produces.
Value comparison(Body& body, const Value& value) {
  static const std::vector<std::string> kFunctions = {"np.less",          "np.less_equal", "np.greater",
                                                      "np.greater_equal", "np.equal",      "np.not_equal"};
  static const std::vector<std::string> kThresholds = {"0.3719", "-0.2183", "0.1127", "-0.0571"};
  Random& random = body.random;
  body.spend(1);
  // A value of a shape that adds no axis, so that all comparisons of one value broadcast together.
  const auto moved = [&](const Value& other) {
    const std::optional<Shape> both = broadcast(value.shape, other.shape);
    return other.exact && both && same_extents(*both, value.shape);
  };
  const std::optional<Value> argument = body.any_that(moved);
  const Value left = argument && random.chance(70) ? *argument : value;
  const std::string threshold = random.pick(kThresholds);
  const bool swap = random.chance(30);
  const std::string operands = swap ? concat(threshold, ", ", left.text) : concat(left.text, ", ", threshold);
  const std::string function = random.pick(kFunctions);
  return call_of(function, operands, left.shape, 1);
}

Value condition(Body& body, const Value& value) {
  Random& random = body.random;
  Value made = comparison(body, value);
  const int64_t count = 1 + random.below(2);
  for (int64_t k = 0; k < count; ++k) {
    const Value other = comparison(body, value);
    const std::string function = random.chance(50) ? "np.logical_and" : "np.logical_or";
    body.spend(1);
    made = call_of(function, concat(made.text, ", ", other.text), *broadcast(made.shape, other.shape), 1);
  }
  if (random.chance(60)) {
    body.spend(1);
    made = call_of("np.logical_not", made.text, made.shape, 1);
  }
  return made;
}

// Both choices depend on the value, so that the program's gradient does not vanish.
Value masked(Body& body, const Value& value) {
  const Value name = body.keep(value);
  const Value chosen = condition(body, name);
  body.spend(2);
  const Shape shape = *broadcast(chosen.shape, name.shape);
  return call_of("np.where", concat(chosen.text, ", ", name.text, ", -0.25 * ", name.text), shape, name.bound);
}

// --- Statistics and normalizations ---

struct DrawnAxes {
  std::vector<size_t> axes;
  std::string text;
};

// One or several axes, counted from the front or from the back.
DrawnAxes draw_axes(Body& body, const Value& value) {
  Random& random = body.random;
  const size_t rank = value.shape.size();
  DrawnAxes drawn;
  for (size_t axis = 0; axis < rank; ++axis) {
    if (random.chance(50)) drawn.axes.push_back(axis);
  }
  if (drawn.axes.empty()) drawn.axes.push_back(static_cast<size_t>(random.below(static_cast<int64_t>(rank))));
  std::vector<std::string> numbers;
  for (const size_t axis : drawn.axes) {
    const int64_t shift = random.chance(50) ? 0 : static_cast<int64_t>(rank);
    numbers.push_back(std::to_string(static_cast<int64_t>(axis) - shift));
  }
  drawn.text = numbers.size() == 1 ? numbers[0] : concat("(", join(numbers, ", "), ")");
  return drawn;
}

int64_t extent_along(const Value& value, const std::vector<size_t>& axes) {
  int64_t extent = 1;
  for (const size_t axis : axes) extent *= value.shape[axis].extent;
  return extent;
}

Shape kept_as_ones(const Value& value, const std::vector<size_t>& axes) {
  Shape shape = value.shape;
  for (const size_t axis : axes) shape[axis] = {};
  return shape;
}

// A statistic along some axes, kept with extent one so that it broadcasts with the value.
Value statistic(Body& body, const Value& value) {
  Random& random = body.random;
  const DrawnAxes drawn = draw_axes(body, value);
  const Shape shape = kept_as_ones(value, drawn.axes);
  const auto count = static_cast<double>(extent_along(value, drawn.axes));
  const std::string at = concat(", axis=", drawn.text);
  const std::string keep = ", keepdims=True";
  switch (random.below(10)) {
    case 0:
    case 6: {
      body.spend(6);
      const std::string ddof = count > 1 && random.chance(50) ? ", ddof=1" : "";
      return call_of("np.var", concat(value.text, at, ddof, keep), shape, 4 * value.bound * value.bound);
    }
    case 1:
    case 2:
    case 3:
    case 9: {
      // Positions make the elements of a row differ: the root of a variance of zero has no derivative.
      body.spend(11);
      const bool in_row = drawn.axes.back() + 1 == value.shape.size() && value.shape.back().extent > 1;
      if (!in_row) return call_of("np.sum", concat(value.text, at, keep), shape, value.bound * count);
      const std::string apart =
          concat("np.tanh(", value.text, ") + 4 * np.arange(", size_text(value.shape.back()), ")");
      return call_of("np.std", concat(apart, at, keep), shape, 4 * count);
    }
    case 4:
    case 5: {
      body.spend(4);
      if (drawn.axes.size() > 2) return call_of("np.mean", concat(value.text, at, keep), shape, value.bound);
      const std::string order = drawn.axes.size() == 1 && random.chance(50) ? ", ord=1" : "";
      const Value shifted = {concat(value.text, " + 8.5"), Binding::sum, value.shape, value.bound + 8.5, false};
      return call_of("np.linalg.norm", concat(shifted.text, order, at, keep), shape, shifted.bound * count);
    }
    default: {
      body.spend(1);
      return call_of("logsumexp", concat(value.text, at, keep), shape, value.bound + std::log(count));
    }
  }
}

Value with_statistic(Body& body, const Value& value) {
  const Value name = body.keep(value);
  const Value found = tame(body, statistic(body, name));
  body.spend(1);
  return {concat(name.text, " + ", operand(found, Binding::product)), Binding::sum, name.shape,
          name.bound + found.bound, false};
}

// A normalization whose weights are absent, or along several axes.
Value normalized_along(Body& body, const Value& value) {
  Random& random = body.random;
  const DrawnAxes drawn = draw_axes(body, value);
  if (extent_along(value, drawn.axes) == 1) return chained(body, value);  // its gradient would vanish
  const double bound = std::sqrt(static_cast<double>(extent_along(value, drawn.axes))) + 1;
  const std::string at = concat(", axis=", drawn.text);
  Shape weights;
  for (const size_t axis : drawn.axes) weights.push_back(value.shape[axis]);
  body.spend(2);
  switch (random.below(7)) {
    case 0: return call_of("softmax", concat(value.text, at), value.shape, 1);
    case 1:
    case 6: return call_of("log_softmax", concat(value.text, at), value.shape, 2 * value.bound + 5);
    case 2: return call_of("layernorm", concat(value.text, at), value.shape, bound);
    case 3: {
      const Value bias = body.parameter(weights);
      return call_of("layernorm", concat(value.text, ", None, ", bias.text, at), value.shape, bound + 1);
    }
    case 4: {
      const Value weight = body.parameter(weights);
      const std::string bias = random.chance(50) ? ", " + body.parameter(weights).text : "";
      return call_of("layernorm", concat(value.text, ", ", weight.text, bias, at), value.shape, bound + 1);
    }
    default: {
      const std::string weight = random.chance(50) ? ", " + body.parameter(weights).text : "";
      return call_of("rmsnorm", concat(value.text, weight, at), value.shape, bound);
    }
  }
}

// How many groups the channels form: any divisor, but not one channel in each where a group would be one element.
int64_t drawn_groups(Random& random, int64_t channels, bool one_each) {
  std::vector<int64_t> divisors;
  for (int64_t groups = 1; groups <= channels; ++groups) {
    if (channels % groups == 0 && (groups < channels || one_each)) divisors.push_back(groups);
  }
  return divisors.empty() ? 1 : random.pick(divisors);
}

// batchnorm, or a groupnorm.
Value normalized_by_channel(Body& body, const Value& value) {
  Random& random = body.random;
  const size_t rank = value.shape.size();
  const bool grouped = random.chance(50);
  const auto axis = static_cast<size_t>(grouped ? 1 + random.below(static_cast<int64_t>(rank) - 1)
                                                : random.below(static_cast<int64_t>(rank)));
  const Shape channels = {value.shape[axis]};
  if (elements(value.shape) <= channels[0].extent * value.shape[0].extent) return chained(body, value);  // as there
  std::string arguments = value.text;
  if (grouped) arguments += concat(", ", drawn_groups(random, channels[0].extent, rank > 2));
  if (random.chance(70)) arguments += ", " + body.parameter(channels).text;
  if (random.chance(50)) arguments += concat(", bias=", body.parameter(channels).text);
  if (axis != 1 || random.chance(30)) arguments += concat(", axis=", axis);
  body.spend(3);
  const double bound = std::sqrt(static_cast<double>(elements(value.shape))) + 2;
  return call_of(grouped ? "groupnorm" : "batchnorm", arguments, value.shape, bound);
}

// --- Products ---

double product_bound(const Value& a, const Value& b, int64_t terms) {
  return a.bound * b.bound * std::sqrt(static_cast<double>(terms));
}

bool fits(const Shape& shape) { return elements(shape) <= kMostElements && shape.size() <= kMostAxes; }

// np.matmul, dot, inner, vdot, outer or tensordot of the value and a new argument.
std::optional<Value> multiplied(Body& body, const Value& value) {
  Random& random = body.random;
  const Axis last = value.shape.back();
  const Axis fresh = body.size(7);
  Shape shape(value.shape.begin(), value.shape.end() - 1);
  body.spend(1);
  switch (random.below(7)) {
    case 0:
    case 6: {
      const bool vector = random.chance(25);
      if (!vector) shape.push_back(fresh);
      if (!fits(shape)) return std::nullopt;
      const Value other = body.parameter(vector ? Shape{last} : Shape{last, fresh});
      if (random.chance(50))
        return Value{concat(operand(value, Binding::product), " @ ", other.text), Binding::product, shape,
                     product_bound(value, other, last.extent), false};
      return call_of("np.matmul", concat(value.text, ", ", other.text), shape,
                     product_bound(value, other, last.extent));
    }
    case 1: {
      shape.push_back(fresh);
      if (!fits(shape)) return std::nullopt;
      const Value other = body.parameter({last, fresh});
      return call_of("np.dot", concat(value.text, ", ", other.text), shape, product_bound(value, other, last.extent));
    }
    case 2: {
      shape.push_back(fresh);
      if (!fits(shape)) return std::nullopt;
      const Value other = body.parameter({fresh, last});
      return call_of("np.inner", concat(value.text, ", ", other.text), shape, product_bound(value, other, last.extent));
    }
    case 3: {
      const Value other = body.parameter(value.shape);
      return call_of("np.vdot", concat(value.text, ", ", other.text), {},
                     product_bound(value, other, elements(value.shape)));
    }
    case 4: {
      const Value a = body.parameter({fresh});
      const Value b = body.parameter({last});
      const Shape both = {fresh, last};
      return call_of("np.outer", concat(a.text, ", ", b.text), both, 1);
    }
    default: {
      const size_t count = 1 + static_cast<size_t>(random.below(static_cast<int64_t>(value.shape.size())));
      const auto split = value.shape.end() - static_cast<std::ptrdiff_t>(count);
      Shape weights(split, value.shape.end());
      const int64_t terms = elements(weights);
      Shape out(value.shape.begin(), split);
      weights.push_back(fresh);
      out.push_back(fresh);
      if (!fits(out) || !fits(weights)) return std::nullopt;
      const Value other = body.parameter(weights);
      const std::string axes = count == 2 && random.chance(50) ? "" : concat(", axes=", count);
      return call_of("np.tensordot", concat(value.text, ", ", other.text, axes), out,
                     product_bound(value, other, terms));
    }
  }
}

// --- Tensors made of numbers ---

// A tensor of numbers that broadcasts with the value.
Value made_tensor(Body& body, const Value& value) {
  Random& random = body.random;
  const Axis last = value.shape.back();
  const std::string size = size_text(last);
  const Shape row = {last};
  const Shape& shape = random.chance(50) ? value.shape : row;
  body.spend(1);
  switch (random.below(8)) {
    case 0: return call_of("np.zeros", shape_text(shape), shape, 0);
    case 1: return call_of("np.ones", shape_text(shape), shape, 1);
    case 2: return call_of("np.full", concat(shape_text(shape), ", 0.375"), shape, 0.375);
    case 3: return call_of("np.zeros_like", value.text, value.shape, 0);
    case 4: return call_of("np.ones_like", value.text, value.shape, 1);
    case 5: return call_of("np.full_like", concat(value.text, ", -0.5"), value.shape, 0.5);
    default: {
      const auto extent = static_cast<double>(last.extent);
      const int64_t form = random.below(3);
      if (form == 0) return call_of("np.arange", size, row, extent);
      body.spend(1);
      if (form == 1) return call_of("np.arange", concat("1, ", size, " + 1"), row, extent + 1);
      return call_of("np.arange", concat("0, 2 * ", size, ", 2"), row, 2 * extent);
    }
  }
}

Value with_made_tensors(Body& body, const Value& value) {
  Random& random = body.random;
  Value sum = value;
  const int64_t count = 1 + random.below(3);
  for (int64_t k = 0; k < count; ++k) {
    const Value made = tame(body, made_tensor(body, value));
    body.spend(1);
    sum = {concat(operand(sum, Binding::sum), " + ", operand(made, Binding::product)), Binding::sum, value.shape,
           sum.bound + made.bound, false};
  }
  return sum;
}

// A triangle of the value's matrices, or the value plus a unit matrix.
std::optional<Value> with_triangle(Body& body, const Value& value) {
  Random& random = body.random;
  static const std::vector<std::string> kOffsets = {"", "", ", k=1", ", k=-1", ", 2"};
  const Axis rows = value.shape[value.shape.size() - 2];
  const Axis columns = value.shape.back();
  body.spend(5);
  if (random.chance(35)) {
    const std::string offset = random.chance(60) ? "" : ", k=1";
    return Value{
        concat(operand(value, Binding::sum), " + np.eye(", size_text(rows), ", ", size_text(columns), offset, ")"),
        Binding::sum, value.shape, value.bound + 1, false};
  }
  const std::string offset = random.pick(kOffsets);
  return call_of(random.chance(50) ? "np.tril" : "np.triu", value.text + offset, value.shape, value.bound);
}

}  // namespace

std::vector<std::string> imported_functions() {
  std::vector<std::string> names = imported_convolutions();
  for (const char* const name : {"batchnorm", "erf", "groupnorm", "log_softmax", "logsumexp", "sigmoid", "softplus"})
    names.emplace_back(name);
  return names;
}

std::optional<Value> with_named_functions(Body& body, const Value& x) {
  const bool has_axes = !x.shape.empty();
  const bool is_matrix = x.shape.size() >= 2;
  if (body.random.chance(30)) return with_convolutions(body, x);
  const int64_t draw = body.random.below(100);
  if (draw < 18) return body.left() >= 4 ? std::optional(chained(body, x)) : std::nullopt;
  if (draw < 30) return body.left() >= 4 ? std::optional(masked(body, x)) : std::nullopt;
  if (!has_axes) return std::nullopt;
  if (draw < 50) return body.left() >= 6 ? std::optional(with_statistic(body, x)) : std::nullopt;
  if (draw < 58) return normalized_along(body, x);
  if (draw < 67) return is_matrix ? std::optional(normalized_by_channel(body, x)) : std::nullopt;
  if (draw < 80) return multiplied(body, x);
  if (draw < 90) return with_made_tensors(body, x);
  return is_matrix && body.left() >= 4 ? with_triangle(body, x) : std::nullopt;
}

}  // namespace millrace::random_programs
