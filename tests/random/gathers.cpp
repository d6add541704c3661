#include "random/gathers.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace millrace::random_programs {
namespace {

std::string positions_type(Random& random) { return random.chance(50) ? "int32" : "int64"; }

Shape id_shape(Body& body) {
  const int64_t rank = 1 + body.random.below(2);
  Shape shape;
  for (int64_t k = 0; k < rank; ++k) shape.push_back(body.size(5));
  return shape;
}

bool is_small(const Shape& shape) { return elements(shape) <= kMostElements && shape.size() <= kMostAxes; }

Shape with_axes_at(const Shape& shape, size_t axis, const Shape& axes) {
  Shape made = shape;
  made.erase(made.begin() + static_cast<std::ptrdiff_t>(axis));
  made.insert(made.begin() + static_cast<std::ptrdiff_t>(axis), axes.begin(), axes.end());
  return made;
}

// Positions on an axis: an argument, or every position, backwards or only the even ones.
Value ids_on(Body& body, const Axis& axis) {
  Random& random = body.random;
  const std::string size = axis.size.empty() ? "1" : axis.size;
  const int64_t form = random.below(8);
  body.spend(1);
  if (form == 0) return {concat("np.arange(", size, ")"), Binding::atom, {axis}, 1, true};
  if (form == 1) return {concat("np.arange(", size, ")[::-1]"), Binding::atom, {axis}, 1, true};
  if (form == 2) {
    body.spend(1);
    const int64_t count = (axis.extent + 1) / 2;
    const Axis half = count == 1 ? Axis{} : Axis{std::to_string(count), count};
    return {concat("np.arange(0, ", size, ", 2)"), Binding::atom, {half}, 1, true};
  }
  const Shape shape = id_shape(body);
  const std::string type = positions_type(random);
  return body.typed_parameter(shape, type);
}

// x[ids], x[:, ids], x[..., ids] or np.take.
std::optional<Value> taken(Body& body, const Value& x) {
  Random& random = body.random;
  const auto axis = static_cast<size_t>(random.below(static_cast<int64_t>(x.shape.size())));
  const Value ids = ids_on(body, x.shape[axis]);
  const Shape shape = with_axes_at(x.shape, axis, ids.shape);
  body.spend(1);
  if (!is_small(shape)) return std::nullopt;
  const bool last = axis + 1 == x.shape.size();
  std::string text;
  if (random.chance(50)) {
    text = concat("np.take(", x.text, ", ", ids.text, ", axis=", axis, ")");
  } else {
    std::string before;
    if (last && axis > 0 && random.chance(50))
      before = "..., ";
    else
      for (size_t k = 0; k < axis; ++k) before += ":, ";
    const std::string after = !last && random.chance(30) ? ", :" : "";
    text = concat(operand(x, Binding::atom), "[", before, ids.text, after, "]");
  }
  return Value{text, Binding::atom, shape, x.bound, x.exact};
}

std::optional<Value> taken_along(Body& body, const Value& x) {
  Random& random = body.random;
  const auto axis = static_cast<size_t>(random.below(static_cast<int64_t>(x.shape.size())));
  Shape ids = x.shape;
  ids[axis] = body.size(5);
  Shape shape = ids;
  for (size_t k = 0; k < ids.size(); ++k) {
    if (k != axis && random.chance(20)) ids[k] = {};  // broadcast
  }
  body.spend(1);
  if (!is_small(shape)) return std::nullopt;
  const Value positions = body.typed_parameter(ids, positions_type(random));
  return Value{
      concat("np.take_along_axis(", x.text, ", ", positions.text, ", ", random.chance(50) ? "axis=" : "", axis, ")"),
      Binding::atom, shape, x.bound, x.exact};
}

Value loss(Body& body, const Value& x) {
  const Shape shape(x.shape.begin(), x.shape.end() - 1);
  body.spend(5);
  const bool own = shape.size() == 1 && shape[0].extent <= x.shape.back().extent && body.random.chance(30);
  const std::string labels = shape.empty() ? ""
                             : own         ? concat("np.arange(", shape[0].size.empty() ? "1" : shape[0].size, ")")
                                           : body.typed_parameter(shape, positions_type(body.random)).text;
  return {concat("cross_entropy(", x.text, ", ", labels, ")"), Binding::atom, {}, 2 * x.bound + 3, false};
}

// A mask of booleans, or of integers that are compared, of the shape of x or of its last axis.
Value chosen(Body& body, const Value& x) {
  Random& random = body.random;
  const Shape shape = random.chance(50) ? x.shape : Shape{x.shape.back()};
  const std::string a = body.typed_parameter(shape, random.chance(50) ? "bool_" : positions_type(random)).text;
  const bool boolean = body.parameters().back().type == "bool_";
  static const std::vector<std::string> kComparisons = {" == ", " != ", " < ", " >= "};
  const std::string comparison = random.pick(kComparisons);
  const int64_t number = random.below(3);
  std::string mask = boolean ? a : concat("(", a, comparison, number, ")");
  if (random.chance(40)) {
    const Value flag = body.typed_parameter(shape, "bool_");
    const char* const both = random.chance(50) ? " & " : " | ";
    mask = concat("(", mask, both, flag.text, ")");
    body.spend(1);
  }
  if (random.chance(50)) {
    mask = concat("~", mask);
    body.spend(1);
  }
  body.spend(2);
  if (random.chance(30)) {
    const Value scale{concat("np.where(", mask, ", 0.5, -1.0)"), Binding::atom, shape, 1, false};
    return {concat(operand(x, Binding::product), " * ", scale.text), Binding::product, x.shape, x.bound, false};
  }
  return {concat("np.where(", mask, ", ", x.text, ", 0.25)"), Binding::atom, x.shape, x.bound + 0.25, false};
}

}  // namespace

std::optional<Value> with_integers(Body& body, const Value& x) {
  const int64_t draw = body.random.below(12);
  if (draw < 4) return taken(body, x);
  if (draw < 6) return taken_along(body, x);
  if (draw < 8) return x.shape.size() > 1 ? std::optional(loss(body, x)) : std::nullopt;
  return chosen(body, x);
}

}  // namespace millrace::random_programs
