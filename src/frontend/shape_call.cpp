#include "frontend/shape_call.h"

#include <algorithm>

#include "base/checked.h"
#include "base/text.h"

namespace millrace {

Value ShapeCall::report(std::string_view message, std::string_view remedy) const {
  diagnostics.report(location(), message, remedy);
  return Value::broken();
}

bool ShapeCall::bind(const std::vector<Value>& values, size_t required, bool many_integers) {
  const std::string usage = concat("write ", expression.text, "(", join(parameters, ", "), ")");
  arguments.assign(parameters.size(), std::nullopt);
  nones.assign(parameters.size(), false);
  std::vector<bool> seen(parameters.size(), false);
  std::vector<Value> gathered;
  for (size_t k = 0; k < values.size(); ++k) {
    if (values[k].kind == ValueKind::broken) return false;
    const std::string& keyword = expression.keywords[k];
    size_t parameter = k;
    if (keyword.empty() && many_integers && k >= 1 && values[k].kind == ValueKind::number) {
      gathered.push_back(values[k]);
      continue;
    }
    if (!keyword.empty()) {
      const auto named = std::find(parameters.begin(), parameters.end(), keyword);
      parameter = static_cast<size_t>(named - parameters.begin());
    }
    if (parameter >= parameters.size()) {
      const char* const noun = parameters.size() == 1 ? " argument" : " arguments";
      report(keyword.empty() ? concat("'", expression.text, "' takes at most ", parameters.size(), noun)
                             : concat("'", expression.text, "' has no argument '", keyword, "'"),
             usage);
      return false;
    }
    if (seen[parameter]) {
      report(concat("argument '", parameters[parameter], "' is given twice"), usage);
      return false;
    }
    seen[parameter] = true;
    nones[parameter] = values[k].kind == ValueKind::nothing;
    if (!nones[parameter]) arguments[parameter] = values[k];
  }
  if (!gathered.empty()) {
    if (seen[1]) {
      report(concat("argument '", parameters[1], "' is given twice"), usage);
      return false;
    }
    arguments[1] = Value::of(std::move(gathered));
  }
  for (size_t k = 0; k < required; ++k) {
    if (arguments[k]) continue;
    report(concat("'", expression.text, "' needs an argument '", parameters[k], "'"), usage);
    return false;
  }
  return true;
}

std::optional<View> ShapeCall::tensor(size_t parameter) const {
  const Value& value = *arguments[parameter];
  if (value.kind == ValueKind::view) return value.view;
  report(concat("'", expression.text, "' needs a tensor, not a ", value.kind == ValueKind::tuple ? "tuple" : "number"),
         "pass an argument, or a value computed from one");
  return std::nullopt;
}

std::optional<std::vector<View>> ShapeCall::tensors(size_t parameter) const {
  const Value& value = *arguments[parameter];
  std::vector<View> views;
  if (value.kind == ValueKind::tuple) {
    for (const Value& item : *value.items) {
      if (item.kind == ValueKind::broken) return std::nullopt;
      if (item.kind == ValueKind::view) views.push_back(item.view);
    }
    if (!views.empty() && views.size() == value.items->size()) return views;
  }
  report(concat("'", expression.text, "' needs a list of tensors"),
         concat("write np.", expression.text, "([a, b], axis=0)"));
  return std::nullopt;
}

std::optional<int64_t> ShapeCall::integer(size_t parameter) const {
  const std::optional<std::vector<int64_t>> all = integers(parameter);
  if (!all) return std::nullopt;
  if (all->size() == 1) return all->front();
  report(concat("argument '", parameters[parameter], "' of '", expression.text, "' must be one integer"),
         "write a number or a size");
  return std::nullopt;
}

std::optional<std::vector<int64_t>> ShapeCall::integers(size_t parameter) const {
  const Value& value = *arguments[parameter];
  std::vector<int64_t> numbers;
  for (const Value& item : value.kind == ValueKind::tuple ? *value.items : std::vector<Value>{value}) {
    if (item.kind == ValueKind::broken) return std::nullopt;
    if (item.kind != ValueKind::number || !item.integer) {
      report(concat("argument '", parameters[parameter], "' of '", expression.text, "' must be made of integers"),
             "write numbers or sizes: shapes do not depend on data");
      return std::nullopt;
    }
    numbers.push_back(*item.integer);
  }
  return numbers;
}

std::optional<size_t> ShapeCall::axis(int64_t position, size_t rank) const {
  const auto signed_rank = static_cast<int64_t>(rank);
  if (position >= -signed_rank && position < signed_rank)
    return static_cast<size_t>(position < 0 ? position + signed_rank : position);
  report(concat("axis ", position, " of '", expression.text, "' is not one of ", rank, " axes"),
         rank == 0 ? "a scalar has no axes" : concat("write axis=0 to axis=", rank - 1, ", or -1 for the last"));
  return std::nullopt;
}

std::optional<std::vector<size_t>> ShapeCall::axes(size_t parameter, size_t rank,
                                                   const std::vector<size_t>& missing) const {
  if (!given(parameter)) return missing;
  const std::optional<std::vector<int64_t>> positions = integers(parameter);
  if (!positions) return std::nullopt;
  std::vector<size_t> axes;
  for (const int64_t position : *positions) {
    const std::optional<size_t> one = axis(position, rank);
    if (!one) return std::nullopt;
    if (std::find(axes.begin(), axes.end(), *one) != axes.end()) {
      report(concat("axis ", *one, " is given twice"), "give each axis once");
      return std::nullopt;
    }
    axes.push_back(*one);
  }
  return axes;
}

std::optional<size_t> ShapeCall::one_axis(size_t parameter, size_t rank, size_t missing) const {
  const std::optional<std::vector<size_t>> all = axes(parameter, rank, {missing});
  if (!all) return std::nullopt;
  if (all->size() == 1 && all->front() < rank && !is_none(parameter)) return all->front();
  report(concat("'", expression.text, "' needs one axis of ", rank), "write axis=0, or -1 for the last");
  return std::nullopt;
}

bool ShapeCall::fits(const std::vector<int64_t>& extents) const {
  std::optional<int64_t> elements = 1;
  for (const int64_t extent : extents) {
    if (elements) elements = checked_multiply(*elements, extent);
    if (elements && *elements > kMaxElements) elements = std::nullopt;
  }
  if (!elements) report("this tensor would have more than 2^50 elements", "choose smaller sizes");
  if (extents.size() > kMaxRank)
    report(concat("this tensor has ", extents.size(), " dimensions"), concat("at most ", kMaxRank, " are allowed"));
  return elements && extents.size() <= kMaxRank;
}

std::vector<int64_t> extents_of(const View& view, const Builder& builder) {
  std::vector<int64_t> extents;
  for (size_t axis = 0; axis < view.axes.size(); ++axis) extents.push_back(builder.extent(view, axis));
  return extents;
}

}  // namespace millrace
