#include "random/body.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace millrace::random_programs {

Value Body::parameter(const Shape& shape, double bound) {
  const std::string name = new_name();
  parameters_.push_back({name, shape, false, bound});
  // Parameters of helpers may get any value.
  const Value value{name, Binding::atom, shape, bound, kind_ == BodyKind::program};
  pool_.push_back({value, Origin::parameter, false});
  return value;
}

Value Body::typed_parameter(const Shape& shape, const std::string& type) {
  const std::string name = new_name();
  parameters_.push_back({name, shape, false, 1, type});
  return {name, Binding::atom, shape, 1, true};
}

Value Body::scalar() {
  for (const Parameter& known : parameters_) {
    if (known.by_value && random.chance(50)) return {known.name, Binding::atom, {}, 1, true};
  }
  const std::string name = new_name();
  parameters_.push_back({name, {}, true, 1});
  return {name, Binding::atom, {}, 1, true};  // not in the pool: only some operations take a scalar
}

Axis Body::size(int64_t most) {
  std::vector<Axis> fitting;
  for (const Axis& axis : module.sizes) {
    if (axis.extent <= most) fitting.push_back(axis);
  }
  return fitting.empty() ? Axis{} : random.pick(fitting);
}

Shape Body::shape() {
  const int64_t rank = random.pick(std::vector<int64_t>{1, 2, 2, 2, 3, 3, 3, 4});
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) shape.push_back(size(kMostElements / elements(shape)));
  return shape;
}

Value Body::any() {
  const std::optional<Value> found = random.chance(8) ? std::nullopt : any_that([](const Value&) { return true; });
  return found ? *found : parameter(shape());
}

std::optional<Value> Body::any_that(const std::function<bool(const Value&)>& fits) {
  std::vector<Value> fitting;
  std::vector<Value> computed;
  std::vector<Value> fresh;
  for (const Entry& entry : pool_) {
    if (entry.value.shape.size() > kMostAxes || !fits(entry.value)) continue;
    fitting.push_back(entry.value);
    if (entry.origin == Origin::parameter) continue;
    computed.push_back(entry.value);
    if (!entry.read) fresh.push_back(entry.value);
  }
  if (fitting.empty()) return std::nullopt;
  if (!fresh.empty() && random.chance(70)) return random.pick(fresh);
  if (!computed.empty() && random.chance(70)) return random.pick(computed);
  return random.pick(fitting);
}

void Body::statement(const std::string& line) {
  lines_.push_back(line);
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const size_t assigned = line.find(" = ");
  for (Entry& entry : pool_) {
    const std::string& name = entry.value.text;
    for (size_t at = line.find(name, assigned); at != std::string::npos && !entry.read; at = line.find(name, at + 1)) {
      const size_t end = at + name.size();
      entry.read = !in_name(line[at - 1]) && (end == line.size() || !in_name(line[end]));
    }
  }
}

std::string Body::new_name() {
  // Includes names that an implementation might use internally; none may be a size, a function or a keyword.
  static const std::vector<std::string> kStems = {"x",    "h",   "q", "w",         "d_x", "out",
                                                  "mask", "sum", "t", "softmax_1", "x_1"};
  while (true) {
    std::string name = random.pick(kStems);
    if (!random.chance(15)) name += std::to_string(names_.size());
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
    names_.push_back(name);
    return name;
  }
}

Value Body::keep(const Value& value) {
  const std::string name = new_name();
  statement(name + " = " + value.text);
  const Value named{name, Binding::atom, value.shape, value.bound, value.exact};
  add(named);
  return named;
}

Value Body::settle(const Value& value) { return random.chance(60) ? keep(value) : value; }

void Body::finish(const Value& value) {
  std::string name = random.chance(90) || pool_.empty() ? new_name() : random.pick(pool_).value.text;
  statement(name + " = " + value.text);
  std::erase_if(pool_, [&](const Entry& entry) { return entry.value.text == name; });
  add({name, Binding::atom, value.shape, value.bound, value.exact});
}

std::vector<Value> Body::unread() const {
  std::vector<Value> values;
  for (const Entry& entry : pool_) {
    if (!entry.read && entry.origin == Origin::statement) values.push_back(entry.value);
  }
  return values;
}

std::string Body::text(const std::string& name, const std::string& results) const {
  std::vector<std::string> parameters;
  for (const Parameter& parameter : parameters_) {
    std::string annotation = parameter.name + ": " + (parameter.type.empty() ? module.dtype : parameter.type);
    if (!parameter.by_value) {
      std::vector<std::string> sizes;
      for (const Axis& axis : parameter.shape) sizes.push_back(axis.size.empty() ? "1" : axis.size);
      annotation += "[" + join(sizes, ", ") + "]";
    }
    parameters.push_back(annotation);
  }
  std::string text = concat("def ", name, "(", join(parameters, ", "), "):\n");
  if (text.size() > 100) text = concat("def ", name, "(\n    ", join(parameters, ",\n    "), ",\n):\n");
  for (const std::string& line : lines_) text += concat("    ", line, "\n");
  return text + concat("    return ", results, "\n");
}

}  // namespace millrace::random_programs
