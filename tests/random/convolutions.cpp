#include "random/convolutions.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "random/elementwise.h"

namespace millrace::random_programs {
namespace {

constexpr int64_t kMostRandomFactors = 4;  // of a product: each is an operator

Axis counted(int64_t extent) { return extent == 1 ? Axis{} : Axis{std::to_string(extent), extent}; }

// The value with axes of extent one in front, so that it has `rank` axes.
Value with_rank(const Value& value, size_t rank) {
  if (value.shape.size() == rank) return value;
  const size_t added = rank - value.shape.size();
  const std::vector<std::string> items(added, "None");
  Value result = value;
  result.text = concat(operand(value, Binding::atom), "[", join(items, ", "), "]");
  result.binding = Binding::atom;
  result.shape.insert(result.shape.begin(), added, Axis{});
  return result;
}

// How windows move along the last axes, as drawn: the axes of the result, and the arguments' text.
struct DrawnWindows {
  Shape windows;
  Shape positions;
  std::string arguments;
};

DrawnWindows draw_windows(Body& body, const Value& value) {
  Random& random = body.random;
  const int64_t stride = random.chance(60) ? 1 : 2 + random.below(2);
  const int64_t padding = random.chance(50) ? 0 : 1 + random.below(2);
  DrawnWindows drawn;
  for (size_t axis = 2; axis < value.shape.size(); ++axis) {
    const int64_t extent = value.shape[axis].extent + 2 * padding;
    const int64_t window = 1 + random.below(std::min<int64_t>(extent, 3));
    drawn.windows.push_back(counted(window));
    drawn.positions.push_back(counted((extent - window) / stride + 1));
  }
  if (stride != 1) drawn.arguments += concat(", stride=", stride);
  if (padding != 0) drawn.arguments += concat(", padding=", padding);
  return drawn;
}

// A convolution along one axis or two, of all channels or of each by itself.
std::optional<Value> convolved(Body& body, const Value& x) {
  Random& random = body.random;
  const size_t least = std::max<size_t>(x.shape.size(), 3);
  if (least > 4) return std::nullopt;
  const Value value = with_rank(x, least == 3 && random.chance(30) ? 4 : least);
  const bool depthwise = random.chance(40);
  const DrawnWindows drawn = draw_windows(body, value);
  const Axis channels = value.shape[1];
  const Axis fresh = depthwise ? channels : body.size(4);
  Shape weights = depthwise ? Shape{channels} : Shape{fresh, channels};
  weights.insert(weights.end(), drawn.windows.begin(), drawn.windows.end());
  Shape shape = {value.shape[0], fresh};
  shape.insert(shape.end(), drawn.positions.begin(), drawn.positions.end());
  const int64_t terms = elements(drawn.windows) * (depthwise ? 1 : channels.extent);
  if (elements(shape) > kMostElements || elements(shape) * terms > kMostPoints) return std::nullopt;
  body.spend(3);
  std::string arguments = concat(value.text, ", ", body.parameter(weights).text);
  if (random.chance(40)) arguments += concat(", ", body.parameter({fresh}).text);
  const std::string function = depthwise ? "depthwise" : value.shape.size() == 3 ? "conv1d" : "conv2d";
  const double bound = value.bound * std::sqrt(static_cast<double>(terms)) + 1;
  return Value{concat(function, "(", arguments, drawn.arguments, ")"), Binding::atom, shape, bound, false};
}

std::optional<Value> pooled(Body& body, const Value& x) {
  Random& random = body.random;
  if (x.shape.size() < 2 || x.shape.size() > 4) return std::nullopt;
  const Value value = with_rank(x, 4);
  const int64_t size = 2 + random.below(2);
  const int64_t padding = random.chance(50) ? 1 : 0;
  const int64_t stride = random.chance(50) ? size : 1 + random.below(2);
  Shape shape = {value.shape[0], value.shape[1]};
  for (const size_t axis : {2U, 3U}) {
    const int64_t extent = value.shape[axis].extent + 2 * padding;
    if (extent < size) return std::nullopt;
    shape.push_back(counted((extent - size) / stride + 1));
  }
  if (elements(shape) > kMostElements || elements(shape) * size * size > kMostPoints) return std::nullopt;
  body.spend(3);
  std::string arguments = concat(value.text, ", ", size);
  if (stride != size) arguments += concat(", stride=", stride);
  if (padding != 0) arguments += concat(", padding=", padding);
  const std::string function = random.chance(50) ? "max_pool2d" : "avg_pool2d";
  return Value{concat(function, "(", arguments, ")"), Binding::atom, shape, value.bound, false};
}

size_t drawn_axis(Body& body, const Value& value) {
  return static_cast<size_t>(body.random.below(static_cast<int64_t>(value.shape.size())));
}

// A product of factors near one, so that neither it nor its gradient vanishes.
std::optional<Value> multiplied_along(Body& body, const Value& value) {
  const size_t axis = drawn_axis(body, value);
  const int64_t count = value.shape[axis].extent;
  if (count < 2 || count > kMostRandomFactors || body.left() < count + 3) return std::nullopt;
  body.spend(static_cast<int>(count) + 2);
  Shape shape = value.shape;
  shape[axis] = {};
  const bool keeps = body.random.chance(60);
  if (!keeps) shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return Value{
      concat("np.prod(1.25 - 0.5 * np.tanh(", value.text, "), axis=", axis, keeps ? ", keepdims=True" : "", ")"),
      Binding::atom, shape, std::pow(1.75, static_cast<double>(count)), false};
}

std::optional<Value> summed_up(Body& body, const Value& value) {
  const size_t axis = drawn_axis(body, value);
  if (elements(value.shape) * value.shape[axis].extent > kMostPoints) return std::nullopt;
  body.spend(5);
  const auto count = static_cast<double>(value.shape[axis].extent);
  return Value{concat("np.cumsum(", value.text, ", axis=", axis, ")"), Binding::atom, value.shape, value.bound * count,
               false};
}

}  // namespace

std::vector<std::string> imported_convolutions() {
  return {"avg_pool2d", "conv1d", "conv2d", "depthwise", "max_pool2d"};
}

std::optional<Value> with_convolutions(Body& body, const Value& x) {
  if (x.shape.empty() || body.left() < 6) return std::nullopt;
  const int64_t draw = body.random.below(100);
  if (draw < 40) return convolved(body, x);
  if (draw < 69) return pooled(body, x);
  return draw < 88 ? multiplied_along(body, x) : summed_up(body, x);
}

}  // namespace millrace::random_programs
