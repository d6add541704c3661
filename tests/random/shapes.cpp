#include "random/shapes.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "base/text.h"

namespace millrace::random_programs {
namespace {

Axis axis_of(int64_t extent) { return extent == 1 ? Axis{} : Axis{std::to_string(extent), extent}; }

size_t any_axis(Random& random, const Shape& shape) {
  return static_cast<size_t>(random.below(static_cast<int64_t>(shape.size())));
}

// The axis counted from the front or from the back.
int64_t signed_axis(Random& random, size_t axis, size_t rank) {
  const auto position = static_cast<int64_t>(axis);
  return random.chance(50) ? position : position - static_cast<int64_t>(rank);
}

Value with_shape(const Value& value, std::string text, Shape shape) {
  return {std::move(text), Binding::atom, std::move(shape), value.bound, value.exact};
}

bool is_name(const Value& value) {
  return std::all_of(value.text.begin(), value.text.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; });
}

// np.f(x, arguments), or x.f(arguments) where x has a name.
std::string function_or_method(Random& random, const std::string& function, const Value& value,
                               const std::string& arguments) {
  if (is_name(value) && random.chance(40)) return concat(value.text, ".", function, "(", arguments, ")");
  return concat("np.", function, "(", value.text, arguments.empty() ? "" : ", ", arguments, ")");
}

// A slice of an axis, as text, and the extent that it keeps.
struct RandomSlice {
  std::string text;
  int64_t count = 1;
};

RandomSlice random_slice(Random& random, int64_t extent) {
  const int64_t kind = random.below(10);
  const auto from_end = [&](int64_t position) {
    return std::to_string(position < extent && random.chance(40) ? position - extent : position);
  };
  if (kind < 2 || extent == 1) return {":", extent};
  if (kind == 2) return {"::-1", extent};
  const int64_t start = random.below(extent);
  const int64_t stop = start + 1 + random.below(extent - start);
  if (kind < 4) {  // one of several equal sections: a half, a third
    std::vector<int64_t> sections;
    for (int64_t count = 2; count <= extent; ++count) {
      if (extent % count == 0) sections.push_back(count);
    }
    const int64_t length = extent / random.pick(sections);
    const int64_t first = length * random.below(extent / length);
    return {concat(first, ":", first + length), length};
  }
  if (kind < 6) {
    const int64_t step = 2 + random.below(2);
    return {concat(start == 0 ? "" : std::to_string(start), "::", step), (extent - start + step - 1) / step};
  }
  if (kind == 6) {
    const int64_t step = 1 + random.below(2);
    return {concat(from_end(start), "::-", step), start / step + 1};
  }
  const std::string first = start == 0 && random.chance(50) ? "" : from_end(start);
  const std::string last = stop == extent && random.chance(50) ? "" : from_end(stop);
  return {concat(first, ":", last), stop - start};
}

Value sliced(Body& body, const Value& value) {
  Random& random = body.random;
  std::vector<std::string> items;
  Shape shape;
  for (const Axis& axis : value.shape) {
    if (random.chance(20)) {
      items.push_back(std::to_string(random.below(2 * axis.extent) - axis.extent));
      continue;
    }
    const RandomSlice slice = random_slice(random, axis.extent);
    items.push_back(slice.text);
    shape.push_back(slice.count == axis.extent ? axis : axis_of(slice.count));
    if (random.chance(8) && shape.size() < kMostAxes) {
      items.emplace_back("None");
      shape.emplace_back();
    }
  }
  // Full slices at the front may be an ellipsis.
  const auto partial = std::find_if(items.begin(), items.end(), [](const std::string& item) { return item != ":"; });
  if (partial != items.begin() && partial != items.end() && random.chance(50)) {
    items.erase(items.begin(), partial);
    items.insert(items.begin(), "...");
  }
  return with_shape(value, concat(operand(value, Binding::atom), "[", join(items, ", "), "]"), shape);
}

// Extents with this product: factors that the axes have, in part, and others.
std::vector<int64_t> factors_of(Random& random, int64_t product) {
  std::vector<int64_t> factors;
  while (product > 1 && factors.size() + 1 < kMostAxes) {
    std::vector<int64_t> divisors;
    for (int64_t divisor = 2; divisor <= product; ++divisor) {
      if (product % divisor == 0) divisors.push_back(divisor);
    }
    factors.push_back(random.pick(divisors));
    product /= factors.back();
  }
  if (product > 1 || factors.empty()) factors.push_back(product);
  return factors;
}

Value reshaped(Body& body, const Value& value) {
  Random& random = body.random;
  std::vector<int64_t> extents;
  const size_t split = any_axis(random, value.shape);
  const int64_t kind = random.below(4);
  for (size_t axis = 0; kind < 3 && axis < value.shape.size(); ++axis) {
    const int64_t extent = value.shape[axis].extent;
    if (kind == 0 && axis == split) {
      const std::vector<int64_t> factors = factors_of(random, extent);
      extents.insert(extents.end(), factors.begin(), factors.end());
    } else if (kind == 1 && axis == split && axis > 0) {
      extents.back() *= extent;
    } else {
      extents.push_back(extent);
    }
  }
  if (kind == 2 || kind == 3) extents = factors_of(random, elements(value.shape));
  if (extents.size() > kMostAxes) extents = {elements(value.shape)};
  Shape shape;
  std::vector<std::string> texts;
  for (const int64_t extent : extents) {
    shape.push_back(axis_of(extent));
    texts.push_back(std::to_string(extent));
  }
  if (random.chance(25)) texts[any_axis(random, shape)] = "-1";
  if (is_name(value) && random.chance(50))
    return with_shape(value, concat(value.text, ".reshape(", join(texts, ", "), ")"), shape);
  const std::string tuple = concat("(", join(texts, ", "), texts.size() == 1 ? ",)" : ")");
  return with_shape(value, concat("np.reshape(", value.text, ", ", tuple, ")"), shape);
}

Value raveled(Body& body, const Value& value) {
  return with_shape(value, function_or_method(body.random, "ravel", value, ""), {axis_of(elements(value.shape))});
}

Value transposed(Body& body, const Value& value) {
  Random& random = body.random;
  const size_t rank = value.shape.size();
  Shape shape = value.shape;
  const int64_t kind = random.below(4);
  if (kind == 0) {
    std::reverse(shape.begin(), shape.end());
    if (is_name(value) && random.chance(80)) return with_shape(value, value.text + ".T", shape);
    return with_shape(value, function_or_method(random, "transpose", value, ""), shape);
  }
  const size_t a = any_axis(random, shape);
  const size_t b = any_axis(random, shape);
  const int64_t from = signed_axis(random, a, rank);
  const int64_t to = signed_axis(random, b, rank);
  const std::string axes = concat(from, ", ", to);
  if (kind == 1) {
    std::swap(shape[a], shape[b]);
    return with_shape(value, function_or_method(random, "swapaxes", value, axes), shape);
  }
  if (kind == 2) {
    const Axis axis = shape[a];
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(a));
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(b), axis);
    return with_shape(value, concat("np.moveaxis(", value.text, ", ", axes, ")"), shape);
  }
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(order);
  std::vector<std::string> texts;
  for (size_t k = 0; k < rank; ++k) {
    shape[k] = value.shape[order[k]];
    texts.push_back(std::to_string(signed_axis(random, order[k], rank)));
  }
  const std::string tuple = concat("(", join(texts, ", "), rank == 1 ? ",)" : ")");
  return with_shape(value, function_or_method(random, "transpose", value, tuple), shape);
}

Value with_axes_changed(Body& body, const Value& value) {
  Random& random = body.random;
  Shape shape = value.shape;
  if (random.chance(60) && shape.size() < kMostAxes) {
    const auto at = static_cast<size_t>(random.below(static_cast<int64_t>(shape.size()) + 1));
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), Axis{});
    return with_shape(value, concat("np.expand_dims(", value.text, ", ", signed_axis(random, at, shape.size()), ")"),
                      shape);
  }
  std::erase_if(shape, [](const Axis& axis) { return axis.extent == 1; });
  return with_shape(value, function_or_method(random, "squeeze", value, ""), shape);
}

Value broadcast_to(Body& body, const Value& value) {
  Random& random = body.random;
  Shape shape = value.shape;
  for (Axis& axis : shape) {
    if (axis.extent == 1 && random.chance(60)) axis = body.size(std::max<int64_t>(kMostElements / elements(shape), 1));
  }
  if (random.chance(50) && shape.size() < kMostAxes)
    shape.insert(shape.begin(), body.size(std::max<int64_t>(kMostElements / elements(shape), 1)));
  std::vector<std::string> texts;
  for (const Axis& axis : shape) texts.push_back(axis.size.empty() ? "1" : axis.size);
  return with_shape(value, concat("np.broadcast_to(", value.text, ", (", join(texts, ", "), ",))"), shape);
}

Value repeated(Body& body, const Value& value) {
  Random& random = body.random;
  const size_t rank = value.shape.size();
  const size_t axis = any_axis(random, value.shape);
  const int64_t times = std::clamp<int64_t>(kMostElements / elements(value.shape), 1, 2 + random.below(2));
  Shape shape = value.shape;
  shape[axis] = axis_of(shape[axis].extent * times);
  if (random.chance(50)) {
    const std::string arguments = concat(times, ", axis=", signed_axis(random, axis, rank));
    return with_shape(value, function_or_method(random, "repeat", value, arguments), shape);
  }
  std::vector<int64_t> all(rank, 1);
  all[axis] = times;
  return with_shape(value, concat("np.tile(", value.text, ", (", join(all, ", "), ",))"), shape);
}

Value flipped(Body& body, const Value& value) {
  Random& random = body.random;
  const size_t axis = any_axis(random, value.shape);
  const std::string argument =
      random.chance(20) ? "" : concat(", axis=", signed_axis(random, axis, value.shape.size()));
  return with_shape(value, concat("np.flip(", value.text, argument, ")"), value.shape);
}

Value rolled(Body& body, const Value& value) {
  Random& random = body.random;
  body.spend(1);
  const size_t axis = any_axis(random, value.shape);
  const int64_t shift = random.below(9) - 4;
  const std::string argument =
      random.chance(20) ? "" : concat(", axis=", signed_axis(random, axis, value.shape.size()));
  return with_shape(value, concat("np.roll(", value.text, ", ", shift, argument, ")"), value.shape);
}

Value windows(Body& body, const Value& value) {
  Random& random = body.random;
  const size_t rank = value.shape.size();
  const size_t axis = any_axis(random, value.shape);
  const int64_t extent = value.shape[axis].extent;
  const int64_t room = std::max<int64_t>(kMostElements / elements(value.shape), 1);
  const int64_t window = std::min(1 + random.below(std::min<int64_t>(extent, 4)), room);
  Shape shape = value.shape;
  shape[axis] = window == 1 ? shape[axis] : axis_of(extent - window + 1);
  shape.push_back(axis_of(window));
  return with_shape(value,
                    concat("np.lib.stride_tricks.sliding_window_view(", value.text, ", ", window,
                           ", axis=", signed_axis(random, axis, rank), ")"),
                    shape);
}

Value padded(Body& body, const Value& value) {
  Random& random = body.random;
  body.spend(1);
  Shape shape = value.shape;
  std::vector<std::string> widths;
  for (Axis& axis : shape) {
    const int64_t before = random.below(3);
    const int64_t after = random.below(3);
    const int64_t extent = axis.extent + before + after;
    const bool pads = random.chance(60) && elements(shape) / axis.extent * extent <= kMostElements;
    widths.push_back(pads ? concat("(", before, ", ", after, ")") : "(0, 0)");
    if (pads && extent != axis.extent) axis = axis_of(extent);
  }
  const bool filled = random.chance(30);
  const std::string text =
      concat("np.pad(", value.text, ", (", join(widths, ", "), ",)", random.chance(20) ? ", mode=\"constant\"" : "",
             filled ? ", constant_values=0.5" : "", ")");
  return {text, Binding::atom, shape, std::max(value.bound, 0.5), false};
}

// Joins the value with one or two others, whose extents are the same except along the axis.
Value joined(Body& body, const Value& first) {
  Random& random = body.random;
  body.spend(1);
  const bool stacks = random.chance(50) && first.shape.size() < kMostAxes;
  const Value value = random.chance(50) ? body.keep(first) : first;
  const size_t axis = any_axis(random, value.shape);
  const auto fits = [&](const Value& other) {
    if (other.shape.size() != value.shape.size()) return false;
    for (size_t k = 0; k < value.shape.size(); ++k) {
      if ((stacks || k != axis) && other.shape[k].extent != value.shape[k].extent) return false;
    }
    return true;
  };
  std::vector<Value> values = {value};
  int64_t extent = value.shape[axis].extent;
  int64_t size = elements(value.shape);
  const int64_t count = 1 + random.below(2);
  for (int64_t k = 0; k < count; ++k) {
    std::optional<Value> other = body.any_that(fits);
    if (!other || random.chance(30)) other = value;
    if (!stacks && random.chance(30)) other = flipped(body, *other);
    if (size + elements(other->shape) > kMostElements) continue;
    size += elements(other->shape);
    extent += other->shape[axis].extent;
    values.push_back(*other);
  }
  random.shuffle(values);
  std::vector<std::string> texts;
  double bound = 0;
  bool exact = true;
  for (const Value& item : values) {
    texts.push_back(item.text);
    bound = std::max(bound, item.bound);
    exact = exact && item.exact;
  }
  Shape shape = value.shape;
  int64_t at = signed_axis(random, axis, shape.size());
  if (stacks) {
    const auto place = static_cast<size_t>(random.below(static_cast<int64_t>(shape.size()) + 1));
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(place), axis_of(static_cast<int64_t>(values.size())));
    at = signed_axis(random, place, shape.size());
  } else {
    shape[axis] = axis_of(extent);
  }
  const std::string text = concat(stacks ? "np.stack([" : "np.concatenate([", join(texts, ", "), "], axis=", at, ")");
  return {text, Binding::atom, shape, bound, exact};
}

// One of the sections of an axis; the others are for later statements.
Value section(Body& body, const Value& value) {
  Random& random = body.random;
  const size_t axis = any_axis(random, value.shape);
  const int64_t extent = value.shape[axis].extent;
  std::vector<int64_t> counts;
  for (const int64_t count : {2, 3, 4}) {
    if (extent % count == 0) counts.push_back(count);
  }
  const bool unequal = extent > 1 && random.chance(30);
  if (counts.empty() && !unequal) return flipped(body, value);
  std::vector<int64_t> extents;
  std::string how;
  if (unequal) {
    extents = {1 + random.below(extent - 1)};
    how = concat("[", extents[0], "]");
    extents.push_back(extent - extents[0]);
  } else {
    const int64_t count = random.pick(counts);
    extents.assign(static_cast<size_t>(count), extent / count);
    how = std::to_string(count);
  }
  std::vector<std::string> names;
  for (size_t k = 0; k < extents.size(); ++k) names.push_back(body.new_name());
  const int64_t at = signed_axis(random, axis, value.shape.size());
  body.statement(concat(join(names, ", "), " = np.split(", value.text, ", ", how, ", axis=", at, ")"));
  std::vector<Value> sections;
  for (size_t k = 0; k < extents.size(); ++k) {
    Shape shape = value.shape;
    shape[axis] = axis_of(extents[k]);
    sections.push_back(with_shape(value, names[k], shape));
    body.add(sections.back());
  }
  return random.pick(sections);
}

// The halves of an axis swapped and one of them negated, as a rotary embedding does.
Value rotated(Body& body, const Value& value) {
  Random& random = body.random;
  const Axis& last = value.shape.back();
  if (last.extent % 2 != 0) return rolled(body, value);
  body.spend(2);
  const Value x = body.keep(value);
  const int64_t half = last.extent / 2;
  const bool interleaved = random.chance(45);
  if (!interleaved) {
    return {concat("np.concatenate([-", x.text, "[..., ", half, ":], ", x.text, "[..., :", half, "]], axis=-1)"),
            Binding::atom, x.shape, x.bound, false};
  }
  std::vector<std::string> extents;
  for (const Axis& axis : x.shape) extents.push_back(std::to_string(axis.extent));
  return {concat("np.stack([-", x.text, "[..., 1::2], ", x.text, "[..., 0::2]], axis=-1).reshape(", join(extents, ", "),
                 ")"),
          Binding::atom, x.shape, x.bound, false};
}

}  // namespace

Value moved(Body& body, const Value& value) {
  switch (body.random.below(24)) {
    case 0:
    case 1:
    case 2: return sliced(body, value);
    case 3:
    case 4:
    case 5: return reshaped(body, value);
    case 6: return raveled(body, value);
    case 7:
    case 8:
    case 9:
    case 10: return transposed(body, value);
    case 11:
    case 12: return with_axes_changed(body, value);
    case 13: return broadcast_to(body, value);
    case 14:
    case 15: return repeated(body, value);
    case 16: return flipped(body, value);
    case 17: return rolled(body, value);
    case 18: return value.shape.size() < kMostAxes ? windows(body, value) : sliced(body, value);
    case 19: return padded(body, value);
    case 20:
    case 21: return joined(body, value);
    case 22: return section(body, value);
    default: return rotated(body, value);
  }
}

}  // namespace millrace::random_programs
