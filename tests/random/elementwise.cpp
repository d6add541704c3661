#include "random/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace millrace::random_programs {
namespace {

Value call(const std::string& function, const Value& argument, double bound) {
  return {concat(function, "(", argument.text, ")"), Binding::atom, argument.shape, bound, false};
}

Value plus(const Value& a, const Value& b, const Shape& shape) {
  return {operand(a, Binding::sum) + " + " + operand(b, Binding::product), Binding::sum, shape, a.bound + b.bound,
          false};
}

Value times(const Value& a, const Value& b, const Shape& shape) {
  return {operand(a, Binding::product) + " * " + operand(b, Binding::sign), Binding::product, shape, a.bound * b.bound,
          false};
}

Value raised(const Value& value, const std::string& exponent, double bound) {
  return {concat(operand(value, Binding::atom), " ** ", exponent), Binding::power, value.shape, bound, false};
}

Value number(const std::string& text, double magnitude) {
  return {text, text[0] == '-' ? Binding::sign : Binding::atom, {}, magnitude, true};
}

// At least one half and at most the bound's square and a half.
Value positive(Body& body, const Value& value) {
  body.spend(2);
  const double square = value.bound * value.bound;
  const Value half = number("0.5", 0.5);
  switch (body.random.below(3)) {
    case 0: return plus(raised(value, "2", square), half, value.shape);
    case 1: return plus(call("np.square", value, square), half, value.shape);
    default: {
      const Value name = body.keep(value);
      return plus(half, times(name, name, value.shape), value.shape);
    }
  }
}

}  // namespace

Value tame(Body& body, const Value& value) {
  if (value.bound <= 8) return value;
  body.spend(1);
  if (body.random.chance(50)) return call("np.tanh", value, 1);
  const double factor = std::exp2(-std::ceil(std::log2(value.bound)));
  const bool in_front = body.random.chance(50);
  const Value factor_value = number(number_text(factor), factor);
  return in_front ? times(factor_value, value, value.shape) : times(value, factor_value, value.shape);
}

Value activation(Body& body, const Value& value) {
  static const std::vector<std::string> kActivations = {"relu", "gelu", "gelu_tanh", "silu"};
  body.spend(1);
  const std::string& name = body.random.pick(kActivations);
  return call(name, value, value.bound + 0.2);
}

Value unary(Body& body, const Value& value) {
  Random& random = body.random;
  const double b = value.bound;
  const double most = b * b + 0.5;  // of positive()
  body.spend(1);
  switch (random.below(16)) {
    case 0: return call("np.tanh", value, 1);
    case 1: return call("np.abs", value, b);
    case 2: {
      if (random.chance(15)) return call("np.square", value, b * b);
      const Value exponent = b > 3 ? call("np.tanh", value, 1) : value;
      body.spend(b > 3 ? 2 : 1);
      return {concat("0.5 ** ", operand(exponent, Binding::atom)), Binding::power, value.shape,
              std::exp2(exponent.bound), false};
    }
    case 3:
    case 4: {
      body.spend(1);
      return call("np.exp", value.exact ? value : call("np.tanh", value, 1), std::exp(1));
    }
    case 5: return call("np.log", positive(body, value), std::max(1.0, std::log(most)));
    case 6: return call("np.sqrt", positive(body, value), std::sqrt(most));
    case 7: return raised(value, "2", b * b);
    case 8: return b <= 3 ? raised(value, "3", b * b * b) : raised(value, "1", b);
    case 9: return raised(positive(body, value), "-1", 2);
    case 10: {
      const std::string exponent = random.chance(50) ? "0.5" : "-0.5";
      return raised(positive(body, value), exponent, std::max(2.0, std::sqrt(most)));
    }
    case 11: {
      // -x ** 2 is -(x ** 2), as in Python.
      const bool squares = random.chance(30);
      if (squares) body.spend(1);
      const Value inner = squares ? raised(value, "2", b * b) : value;
      return {"-" + operand(inner, Binding::sign), Binding::sign, value.shape, inner.bound, false};
    }
    case 12: return {concat("np.power(", value.text, ", 2)"), Binding::atom, value.shape, b * b, false};
    case 13: {
      body.spend(1);
      const Value denominator = positive(body, value);
      return {concat("1 / ", operand(denominator, Binding::sign)), Binding::product, value.shape, 2, false};
    }
    default: {
      body.spend(-1);
      return activation(body, value);
    }
  }
}

Value sum_of(Body& body, const Value& a, const Value& b) {
  body.spend(1);
  const Shape shape = *broadcast(a.shape, b.shape);
  if (body.random.chance(80)) return plus(a, b, shape);
  return {operand(a, Binding::sum) + " - " + operand(b, Binding::product), Binding::sum, shape, a.bound + b.bound,
          false};
}

Value product_of(Body& body, const Value& a, const Value& b) {
  body.spend(1);
  return times(a, b, *broadcast(a.shape, b.shape));
}

Value combine(Body& body, const Value& a, const Value& b) {
  const Shape shape = *broadcast(a.shape, b.shape);
  switch (body.random.below(12)) {
    case 0:
    case 1:
    case 2: return sum_of(body, a, b);
    case 3:
    case 4: return product_of(body, a, b);
    case 5: {
      body.spend(1);
      const Value denominator = positive(body, b);
      return {operand(a, Binding::product) + " / " + operand(denominator, Binding::sign), Binding::product, shape,
              2 * a.bound, false};
    }
    default: {
      static const std::vector<std::string> kFunctions = {"maximum", "minimum", "add", "subtract", "multiply"};
      body.spend(1);
      const std::string name = body.random.pick(kFunctions);
      const double bound = name == "multiply" ? a.bound * b.bound : a.bound + b.bound;
      return {concat("np.", name, "(", a.text, ", ", b.text, ")"), Binding::atom, shape, bound, false};
    }
  }
}

Value indexed(Body& body, const Value& value, const std::vector<size_t>& positions, size_t rank) {
  if (positions.size() == rank) return value;
  Random& random = body.random;
  const std::string none = random.chance(5) ? "np.newaxis" : "None";
  std::vector<std::string> items(rank, none);
  Shape shape(rank);
  for (size_t i = 0; i < positions.size(); ++i) {
    items[positions[i]] = ":";
    shape[positions[i]] = value.shape[i];
  }
  // A run of full slices may be an ellipsis; the last run may also be omitted.
  std::vector<size_t> slices;
  for (size_t i = 0; i < rank; ++i) {
    if (items[i] == ":") slices.push_back(i);
  }
  if (!slices.empty() && random.chance(40)) {
    const size_t first = random.pick(slices);
    size_t last = first;
    while (last + 1 < rank && items[last + 1] == ":") ++last;
    const auto begin = items.begin() + static_cast<std::ptrdiff_t>(first);
    items.erase(begin, begin + static_cast<std::ptrdiff_t>(last - first + 1));
    if (last + 1 < rank || random.chance(50)) items.insert(items.begin() + static_cast<std::ptrdiff_t>(first), "...");
  }
  const std::string text = concat(operand(value, Binding::atom), "[", join(items, random.chance(80) ? ", " : ","), "]");
  return {text, Binding::atom, shape, value.bound, value.exact};
}

Value expanded(Body& body, const Value& value) {
  const size_t rank = value.shape.size() + 1;
  const auto none = static_cast<size_t>(body.random.below(static_cast<int64_t>(rank)));
  std::vector<size_t> positions;
  for (size_t i = 0; i < rank; ++i) {
    if (i != none) positions.push_back(i);
  }
  return indexed(body, value, positions, rank);
}

Value biased(Body& body, const Value& value) {
  if (value.shape.empty()) return sum_of(body, value, body.parameter({body.size(1)}));
  Random& random = body.random;
  const size_t rank = value.shape.size();
  std::vector<size_t> positions;
  for (size_t i = 0; i < rank; ++i) {
    if (random.chance(40)) positions.push_back(i);
  }
  if (positions.empty()) positions.push_back(static_cast<size_t>(random.below(static_cast<int64_t>(rank))));
  Shape shape;
  for (const size_t position : positions) shape.push_back(value.shape[position]);
  Value bias = body.parameter(shape);
  // Axes in front need no None: broadcasting puts them there.
  const size_t lead = random.chance(50) ? positions[0] : 0;
  for (size_t& position : positions) position -= lead;
  bias = indexed(body, bias, positions, rank - lead);
  const bool in_front = random.chance(20);
  return in_front ? sum_of(body, bias, value) : sum_of(body, value, bias);
}

Value partner(Body& body, const Value& value) {
  Random& random = body.random;
  const auto fits = [&](const Value& other) { return broadcast(value.shape, other.shape).has_value(); };
  const auto same = [&](const Value& other) { return same_extents(value.shape, other.shape); };
  const int64_t choice = random.below(10);
  if (choice < 3) {
    if (const auto found = body.any_that(same)) return *found;
  } else if (choice < 6) {
    if (const auto found = body.any_that(fits)) return *found;
  } else if (choice < 8) {
    // An outer sum or product: axes of the other come before or after those of this one.
    const auto small = [&](const Value& other) {
      return !other.shape.empty() && other.shape.size() + value.shape.size() <= 5 &&
             elements(other.shape) * elements(value.shape) <= kMostElements;
    };
    if (const auto found = body.any_that(small)) {
      std::vector<size_t> positions;
      for (size_t i = 0; i < found->shape.size(); ++i) positions.push_back(i);
      return indexed(body, *found, positions, found->shape.size() + value.shape.size());
    }
  }
  Shape shape = value.shape;
  for (Axis& axis : shape) {
    if (random.chance(25)) axis = body.size(1);
  }
  const int64_t dropped = shape.empty() ? 0 : random.below(static_cast<int64_t>(shape.size()));
  if (random.chance(40)) shape.erase(shape.begin(), shape.begin() + dropped);
  if (shape.empty()) shape.push_back(body.size(7));
  return body.parameter(shape);
}

Value scaled(Body& body, const Value& value) {
  Random& random = body.random;
  static const std::vector<std::string> kNumbers = {"2", "0.5", "-0.75", "1.5", "1e-1", ".25", "1 / 8", "3.", "+0.5"};
  body.spend(1);
  Value factor;
  const int64_t choice = random.below(10);
  if (choice < 5) {
    factor = number(random.chance(60) ? "np.pi" : random.pick(kNumbers), 3.2);
    if (factor.text == "1 / 8") factor.binding = Binding::product;
    if (factor.text[0] == '+') factor.binding = Binding::sign;
  } else if (choice < 8) {
    factor = body.scalar();
    if (random.chance(20)) {
      factor = {factor.text + " + 0.5", Binding::sum, {}, 1.5, false};
      body.spend(1);
    }
  } else {
    const std::string size = body.size(kMostElements).size;
    factor = {concat("np.sqrt(", size.empty() ? "1" : size, ")"), Binding::atom, {}, 8, false};
    return {operand(value, Binding::product) + " / " + factor.text, Binding::product, value.shape, value.bound, false};
  }
  if (random.chance(15)) {
    const std::string name = random.chance(50) ? "np.maximum" : "np.minimum";
    return {concat(name, "(", value.text, ", ", factor.text, ")"), Binding::atom, value.shape,
            value.bound + factor.bound, false};
  }
  if (random.chance(20)) return plus(factor, value, value.shape);
  if (random.chance(20)) {
    return {operand(factor, Binding::sum) + " - " + operand(value, Binding::product), Binding::sum, value.shape,
            factor.bound + value.bound, false};
  }
  const bool in_front = random.chance(50);
  return in_front ? times(factor, value, value.shape) : times(value, factor, value.shape);
}

Value selected(Body& body, const Value& value) {
  Random& random = body.random;
  static const std::vector<std::string> kComparisons = {"<", "<=", ">", ">=", "==", "!="};
  // Numbers that no structure of a program produces, so that values equal them only by chance.
  static const std::vector<std::string> kThresholds = {"0.3719", "-0.2183", "0.1127", "-0.0571"};
  body.spend(2);
  const auto moved = [&](const Value& other) { return other.exact && broadcast(value.shape, other.shape).has_value(); };
  Value left = value;
  Value right = number(random.pick(kThresholds), 1);
  if (random.chance(15)) right = body.scalar();
  if (const auto argument = body.any_that(moved); argument && random.chance(60)) {
    left = *argument;
    const auto fits = [&](const Value& other) {
      const auto both = broadcast(left.shape, other.shape);
      return other.exact && both && broadcast(value.shape, *both).has_value();
    };
    if (const auto other = body.any_that(fits); other && random.chance(70)) right = *other;
  }
  if (random.chance(20)) std::swap(left, right);
  const std::string comparison = random.pick(kComparisons);
  Shape shape = *broadcast(value.shape, *broadcast(left.shape, right.shape));
  Value other = number("0", 0);
  if (random.chance(60)) {
    const Value candidate = partner(body, value);
    if (const auto all = broadcast(shape, candidate.shape)) {
      other = candidate;
      shape = *all;
    }
  } else if (random.chance(30)) {
    other = number("-0.75", 0.75);
  }
  const bool swap = random.chance(50);
  const std::string condition = concat(operand(left, Binding::sum), " ", comparison, " ", operand(right, Binding::sum));
  const Value& first = swap ? other : value;
  const Value& second = swap ? value : other;
  return {concat("np.where(", condition, ", ", first.text, ", ", second.text, ")"), Binding::atom, shape,
          std::max(first.bound, second.bound), false};
}

}  // namespace millrace::random_programs
