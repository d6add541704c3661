#include "frontend/builder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "base/significant.h"
#include "base/text.h"
#include "ir/label.h"

namespace millrace {
namespace {

constexpr size_t kMaxOperators = 50000;  // inlined calls multiply
constexpr int64_t kMaxPoints = int64_t{1} << 50;

DType statistics_dtype(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

// Whether two axes have one label.
bool repeats_a_label(const Builder::Term& term) {
  std::set<int> seen;
  return std::any_of(term.labels.begin(), term.labels.end(),
                     [&](int label) { return label != kFixed && !seen.insert(label).second; });
}

// 0, 1, …: each axis is its own label.
std::vector<int> labels_of(size_t rank) {
  std::vector<int> labels(rank);
  std::iota(labels.begin(), labels.end(), 0);
  return labels;
}

}  // namespace

TensorId Builder::add_argument(const std::string& name, DType dtype, const std::vector<DimId>& dims, TensorRole role) {
  const TensorId id(graph.tensors.size());
  graph.tensors.push_back({tensor_names_.take(name, "."), dtype, dims, role, 0});
  graph.arguments.push_back(id);
  return id;
}

Value Builder::constant(double number) {
  const auto [entry, fresh] = constants_.try_emplace(number, TensorId(graph.tensors.size()));
  if (fresh) {
    graph.tensors.push_back({significant(number, 17), DType::float64, {}, TensorRole::constant, number});
  }
  return Value::of(View{entry->second, {}, {}, {}});
}

TensorId Builder::add_tensor(DType dtype, const std::vector<DimId>& dims, const char* suffix) {
  const TensorId id(graph.tensors.size());
  graph.tensors.push_back({tensor_names_.take(target_ + suffix, "."), dtype, dims, TensorRole::computed, 0});
  return id;
}

// Checks the limits on the whole program, then names and appends the operator.
std::optional<OperatorId> Builder::add_operator(Operator op, SourceLocation location) {
  if (full_) return std::nullopt;
  if (graph.operators.size() >= kMaxOperators) {
    full_ = true;
    diagnostics_.report(location, concat("the program has more than ", kMaxOperators, " operators"),
                        "calls are inlined: make fewer or less nested calls");
    return std::nullopt;
  }
  int64_t points = 1;
  for (const DimId dim : op.space) {
    const std::optional<int64_t> product = checked_multiply(points, graph.extent(dim));
    if (!product || *product > kMaxPoints) {
      diagnostics_.report(location, "this operator runs over more than 2^50 points", "choose smaller sizes");
      return std::nullopt;
    }
    points = *product;
  }
  const bool of_numbers = std::all_of(op.inputs.begin(), op.inputs.end(), [&](const Access& input) {
    const TensorRole role = graph.tensor(input.tensor).role;
    return role == TensorRole::constant || role == TensorRole::scalar || made_of_numbers_.contains(input.tensor);
  });
  if (of_numbers && !op.space.empty()) made_of_numbers_.insert(op.outputs[0].tensor);
  note_integers(op);
  op.name = operator_names_.take(concat(target_, " ", label_of(graph, op)), " ");
  graph.operators.push_back(std::move(op));
  return OperatorId(graph.operators.size() - 1);
}

Value Builder::map(OperatorKind kind, const std::vector<Value>& given, SourceLocation location, double value) {
  const bool agreement = kind == OperatorKind::equal || kind == OperatorKind::not_equal;
  if (agreement && is_condition(given[0]) && is_condition(given[1])) return compare_conditions(kind, given, location);
  const size_t large_factors = large_factors_.size();
  const std::optional<std::vector<Value>> inputs = with_held_numbers(kind, given, location);
  if (!inputs) return Value::broken();
  std::vector<View> views;
  for (const Value& input : *inputs) {
    if (input.kind == ValueKind::broken) return Value::broken();
    views.push_back(input.kind == ValueKind::number ? constant(input.number).view : input.view);
    if (!check_boolean(kind, views.size() - 1, views.back(), location)) return Value::broken();
    if (!takes_integers(kind) && !check_floating(views.back(), location)) return Value::broken();
  }
  size_t rank = 0;
  for (const View& view : views) rank = std::max(rank, view.axes.size());
  std::map<int, DimId> dims;
  std::vector<int64_t> extents(rank, 0);
  std::vector<bool> repeats(rank, false);  // along a broadcast part, which names the axis only if no operand does
  for (const View& view : views) {
    for (size_t axis = 0; axis < view.axes.size(); ++axis) {
      const size_t index = rank - view.axes.size() + axis;
      const int64_t here = extent(view, axis);
      const bool named = extents[index] == here && repeats[index] && !is_repeated(view, axis);
      if (extents[index] == 0 || (extents[index] == 1 && here != 1) || named) {
        extents[index] = here;
        repeats[index] = is_repeated(view, axis);
        dims[static_cast<int>(index)] = dim_of(view, axis);
      } else if (here != 1 && here != extents[index]) {
        std::vector<std::string> shapes;
        for (const View& operand : views) shapes.push_back(shape(operand));
        diagnostics_.report(location, concat("shapes ", millrace::join(shapes, " and "), " do not broadcast"),
                            concat("axis ", index, " of the result would be ", extents[index], " and ", here,
                                   "; insert axes with x[:, None]"));
        return Value::broken();
      }
    }
  }
  std::vector<Term> terms;
  for (const View& view : views) {
    terms.push_back({view, {}});
    for (size_t axis = 0; axis < view.axes.size(); ++axis) {
      const size_t index = rank - view.axes.size() + axis;
      terms.back().labels.push_back(extent(view, axis) == extents[index] ? static_cast<int>(index) : kFixed);
    }
  }
  if (kind == OperatorKind::causal_mask && !merge_last_two(terms[0].view, location)) return Value::broken();
  std::optional<Space> space = common_space(terms, location);
  if (!space) return Value::broken();
  std::vector<size_t> counts;
  for (const auto& [label, dim] : dims) {
    add_label(*space, label, dim, terms);
    counts.push_back(space->indices[label].size());
  }
  Operator op;
  op.kind = kind;
  op.value = value;
  op.space = space->dims;
  op.reduced.resize(op.space.size(), false);
  for (const Term& term : terms) op.inputs.push_back(access(term, *space));
  const bool compares = kind == OperatorKind::less || kind == OperatorKind::less_equal || kind == OperatorKind::equal ||
                        kind == OperatorKind::not_equal || is_logical(kind);
  const DType dtype = compares                      ? DType::boolean
                      : kind == OperatorKind::where ? dtype_of_choice(views)
                                                    : common_dtype(views);
  const TensorId output = add_tensor(dtype, op.space);
  for (size_t k = large_factors; k < large_factors_.size(); ++k) large_factors_[k].product = output;
  if (compares) {
    const DType compared = common_dtype(views);
    compared_[output] = is_integer(compared) ? dtype_of_arguments() : compared;
  }
  op.outputs.push_back({output, in_order(op.space.size())});
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(grouped(output, counts));
}

// A causal mask compares the positions on the last two axes: neither may be several indices.
bool Builder::merge_last_two(View& view, SourceLocation location) {
  std::vector<bool> merged(view.axes.size(), false);
  for (size_t axis = view.axes.size() - 2; axis < view.axes.size(); ++axis) merged[axis] = view.axes[axis].size() > 1;
  if (std::none_of(merged.begin(), merged.end(), [](bool m) { return m; })) return true;
  const std::optional<View> copied = materialized(view, merged, location);
  if (copied) view = *copied;
  return copied.has_value();
}

bool Builder::is_condition(const Value& value) const {
  return value.kind == ValueKind::view && graph.tensor(value.view.tensor).dtype == DType::boolean;
}

Value Builder::compare_conditions(OperatorKind kind, const std::vector<Value>& given, SourceLocation location) {
  const Value either = map(OperatorKind::logical_or, given, location);
  const Value both = map(OperatorKind::logical_and, given, location);
  const Value differ =
      map(OperatorKind::logical_and, {either, map(OperatorKind::logical_not, {both}, location)}, location);
  return kind == OperatorKind::not_equal ? differ : map(OperatorKind::logical_not, {differ}, location);
}

Value Builder::cast(const Value& value, DType dtype, SourceLocation location) {
  if (value.kind != ValueKind::view || graph.tensor(value.view.tensor).dtype == dtype) return value;
  // As in NumPy, a condition becomes ones and zeros.
  const bool condition = is_condition(value);
  const Value result = condition ? map(OperatorKind::where, {value, Value::of(1), Value::of(0)}, location)
                                 : map(OperatorKind::copy, {value}, location);
  if (result.kind == ValueKind::view) graph.tensors[result.view.tensor.at()].dtype = dtype;
  return result;
}

Value Builder::dropout(const Value& input, double probability, SourceLocation location) {
  const uint32_t subsequence = dropouts_++;
  if (probability == 0) return input;
  const Value result = map(OperatorKind::dropout, {input}, location, probability);
  if (result.kind != ValueKind::view) return result;
  Operator& op = graph.operators.back();
  op.subsequence = subsequence;
  const TensorId mask = add_tensor(graph.tensor(result.view.tensor).dtype, op.space, ".mask");
  op.outputs.push_back({mask, op.outputs[0].axes});
  return result;
}

Value Builder::reduce(OperatorKind kind, const View& view, const std::vector<bool>& reduced, bool keep_dims,
                      SourceLocation location) {
  if (!check_floating(view, location)) return Value::broken();
  if (std::none_of(reduced.begin(), reduced.end(), [](bool r) { return r; })) return Value::of(view);
  std::vector<Term> terms = {{view, labels_of(view.axes.size())}};
  std::optional<Space> space = common_space(terms, location);
  if (!space) return Value::broken();
  Operator op;
  op.kind = kind;
  Access output;
  std::vector<DimId> dims;
  std::vector<size_t> counts;
  for (size_t axis = 0; axis < view.axes.size(); ++axis) {
    add_label(*space, static_cast<int>(axis), dim_of(view, axis), terms);
    const std::vector<int>& indices = space->indices[static_cast<int>(axis)];
    op.reduced.resize(space->dims.size(), reduced[axis]);
    if (reduced[axis] && !keep_dims) continue;
    counts.push_back(reduced[axis] ? 1 : indices.size());
    for (const int index : reduced[axis] ? std::vector<int>{kFixed} : indices) {
      dims.push_back(index == kFixed ? dim("1", 1) : space->dims[as_index(index)]);
      output.axes.emplace_back(index);
    }
  }
  op.space = space->dims;
  output.tensor = add_tensor(common_dtype({view}), dims);
  op.inputs.push_back(access(terms[0], *space));
  op.outputs.push_back(output);
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(grouped(output.tensor, counts));
}

bool Builder::check_weight(const View& weight, const View& view, const std::vector<bool>& axes,
                           SourceLocation location) {
  std::vector<size_t> numbers;
  std::vector<int64_t> extents;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (!axes[axis]) continue;
    numbers.push_back(axis);
    extents.push_back(extent(view, axis));
  }
  bool fits = weight.axes.size() == numbers.size();
  for (size_t k = 0; fits && k < numbers.size(); ++k) fits = extent(weight, k) == extents[k];
  if (fits) return true;
  diagnostics_.report(
      location,
      concat("a weight of shape ", shape(weight), " does not fit ", numbers.size() == 1 ? "axis" : "axes", " ",
             millrace::join(numbers, ", "), " of ", shape(view)),
      concat("its shape must be [", millrace::join(extents, ", "), "]"));
  return false;
}

View Builder::spread(const View& view, const std::vector<bool>& axes) const {
  View result = view;
  result.axes.clear();
  size_t next = 0;
  for (const bool marked : axes) result.axes.push_back(marked ? view.axes[next++] : std::vector<int>());
  return result;
}

DimId Builder::dim_of_extent(int64_t extent) {
  for (size_t k = 0; k < graph.dims.size(); ++k) {
    if (graph.dims[k].extent == extent) return DimId(k);
  }
  return dim(concat(extent), extent);
}

Value Builder::positions(DimId dim, SourceLocation location) {
  Operator op;
  op.kind = OperatorKind::index;
  op.space = {dim};
  op.reduced = {false};
  op.outputs = {{add_tensor(dtype_of_numbers(), op.space), {0}}};
  const View result = whole(op.outputs[0].tensor);
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(result);
}

Value Builder::filled(double number, const std::vector<DimId>& dims, std::optional<DType> dtype,
                      SourceLocation location) {
  Operator op;
  op.kind = OperatorKind::copy;
  op.space = dims;
  op.reduced.resize(dims.size(), false);
  op.inputs = {{constant(number).view.tensor, {}}};
  const View result = whole(add_tensor(dtype.value_or(dtype_of_numbers()), dims));
  op.outputs = {{result.tensor, in_order(dims.size())}};
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(result);
}

Value Builder::normalize(OperatorKind kind, const View& view, const std::vector<bool>& axes,
                         const std::vector<View>& weights, double epsilon, SourceLocation location) {
  if (!check_floating(view, location)) return Value::broken();
  std::vector<Term> terms = {{view, labels_of(view.axes.size())}};
  std::vector<int> normalized;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis]) normalized.push_back(static_cast<int>(axis));
  }
  for (const View& weight : weights) {
    const bool number = graph.tensor(weight.tensor).role == TensorRole::constant;
    if (!number && !check_weight(weight, view, axes, location)) return Value::broken();
    terms.push_back({weight, number ? std::vector<int>() : normalized});
    if (number) continue;
    // Copies the view so that the operator has an element of its own at each position of the axes: for an axis of
    // extent one that the tensor lacks, and for one along which it repeats.
    const bool missing = std::any_of(weight.axes.begin(), weight.axes.end(), [&](const auto& parts) {
      return parts.empty() ||
             std::any_of(parts.begin(), parts.end(), [&](int part) { return is_broadcast(weight, part); });
    });
    if (!missing) continue;
    const std::optional<View> copied = materialized(weight, std::vector<bool>(weight.axes.size(), true), location);
    if (!copied) return Value::broken();
    terms.back().view = *copied;
  }
  std::optional<Space> space = common_space(terms, location);
  if (!space) return Value::broken();
  Operator op;
  op.kind = kind;
  op.value = epsilon;
  Access outside;  // all axes but the normalized ones
  std::vector<DimId> outside_dims;
  std::vector<size_t> counts;
  for (size_t k = 0; k < view.axes.size(); ++k) {
    add_label(*space, static_cast<int>(k), dim_of(view, k), terms);
    const std::vector<int>& indices = space->indices[static_cast<int>(k)];
    op.reduced.resize(space->dims.size(), axes[k]);
    counts.push_back(indices.size());
    if (axes[k]) continue;
    for (const int index : indices) {
      outside.axes.emplace_back(index);
      outside_dims.push_back(space->dims[as_index(index)]);
    }
  }
  op.space = space->dims;
  for (const Term& term : terms) op.inputs.push_back(access(term, *space));
  const DType dtype = common_dtype({view});
  const TensorId along = add_tensor(dtype, op.space);
  op.outputs.push_back({along, in_order(op.space.size())});
  const auto add_statistic = [&](const char* suffix) {
    outside.tensor = add_tensor(statistics_dtype(dtype), outside_dims, suffix);
    op.outputs.push_back(outside);
  };
  if (kind == OperatorKind::layernorm) add_statistic(".mean");
  if (kind == OperatorKind::layernorm || kind == OperatorKind::rmsnorm) add_statistic(".rstd");
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(grouped(along, counts));
}

Value Builder::product(const Term& a, const Term& b, const std::vector<int>& out, const std::map<int, DimId>& dims,
                       SourceLocation location) {
  if (!check_floating(a.view, location) || !check_floating(b.view, location)) return Value::broken();
  std::vector<Term> terms = {a, b};
  std::optional<Space> space = common_space(terms, location);
  if (!space) return Value::broken();
  Operator op;
  op.kind = OperatorKind::multiply;
  std::vector<size_t> counts;
  for (const int label : out) {
    add_label(*space, label, dims.at(label), terms);
    counts.push_back(space->indices[label].size());
  }
  const std::vector<DimId> out_dims = space->dims;
  op.reduced.resize(out_dims.size(), false);
  for (const Term& term : terms) {
    for (const int label : term.labels) {
      if (label == kFixed || space->indices.contains(label)) continue;
      op.kind = OperatorKind::contraction;
      add_label(*space, label, dims.at(label), terms);
      op.reduced.resize(space->dims.size(), true);
    }
  }
  op.space = space->dims;
  op.inputs = {access(terms[0], *space), access(terms[1], *space)};
  if (op.kind == OperatorKind::contraction) {
    if (const std::optional<size_t> broadcast = broadcast_term(terms, *space, op)) {
      // If no operand runs along an index, a broadcast operand is copied so that it does.
      Term& term = terms[*broadcast];
      const std::optional<View> copied = materialized(term.view, std::vector<bool>(term.labels.size(), true), location);
      if (!copied) return Value::broken();
      term.view = *copied;
      return product(terms[0], terms[1], out, dims, location);
    }
  }
  const DType dtype = common_dtype({a.view, b.view});
  for (Access& input : op.inputs) {
    if (op.kind != OperatorKind::contraction || !made_of_numbers_.contains(input.tensor)) continue;
    const std::optional<TensorId> same = converted(input.tensor, dtype, location);
    if (!same) return Value::broken();
    input.tensor = *same;
  }
  const TensorId output = add_tensor(dtype, out_dims);
  op.outputs.push_back({output, in_order(out_dims.size())});
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(grouped(output, counts));
}

// The operand with the label of an index along which neither operand runs.
std::optional<size_t> Builder::broadcast_term(const std::vector<Term>& terms, const Space& space,
                                              const Operator& op) const {
  for (const auto& [label, indices] : space.indices) {
    for (const int index : indices) {
      const auto position = as_index(index);
      if (graph.extent(op.space[position]) == 1) continue;
      if (runs_along(op.inputs[0], position) || runs_along(op.inputs[1], position)) continue;
      for (size_t k = 0; k < terms.size(); ++k) {
        const std::vector<int>& labels = terms[k].labels;
        if (std::find(labels.begin(), labels.end(), label) != labels.end()) return k;
      }
    }
  }
  return std::nullopt;
}

std::optional<TensorId> Builder::converted(TensorId tensor, DType dtype, SourceLocation location) {
  if (graph.tensor(tensor).dtype == dtype) return tensor;
  Operator op;
  op.kind = OperatorKind::copy;
  op.space = graph.tensor(tensor).dims;
  op.reduced.resize(op.space.size(), false);
  const TensorId made = add_tensor(dtype, op.space);
  op.inputs = {{tensor, in_order(op.space.size())}};
  op.outputs = {{made, in_order(op.space.size())}};
  if (!add_operator(std::move(op), location)) return std::nullopt;
  return made;
}

Value Builder::copy(const Term& term, const std::vector<int>& out, const std::map<int, DimId>& dims,
                    SourceLocation location) {
  std::vector<Term> terms = {term};
  if (repeats_a_label(term) && !is_plain(graph, term.view)) {  // a diagonal is taken of whole axes
    std::vector<DimId> whole_dims;
    for (size_t axis = 0; axis < term.view.axes.size(); ++axis) whole_dims.push_back(dim_of(term.view, axis));
    const std::optional<TensorId> copied = add_copy(term.view, term.view.axes, whole_dims, location);
    if (!copied) return Value::broken();
    terms[0].view = whole(*copied);
  }
  std::optional<Space> space = common_space(terms, location);
  if (!space) return Value::broken();
  Operator op;
  op.kind = OperatorKind::copy;
  std::vector<size_t> counts;
  for (const int label : out) {
    add_label(*space, label, dims.at(label), terms);
    counts.push_back(space->indices[label].size());
  }
  op.space = space->dims;
  op.reduced.resize(op.space.size(), false);
  op.inputs.push_back(access(terms[0], *space));
  const TensorId output = add_tensor(graph.tensor(term.view.tensor).dtype, op.space);
  op.outputs.push_back({output, in_order(op.space.size())});
  if (!add_operator(std::move(op), location)) return Value::broken();
  return Value::of(grouped(output, counts));
}

void Builder::name_result(const Value& value, size_t first_tensor) {
  if (value.kind != ValueKind::view || value.view.tensor.at() < first_tensor) return;
  Tensor& tensor = graph.tensors[value.view.tensor.at()];
  if (tensor.role != TensorRole::computed) return;
  tensor_names_.release(tensor.name);
  tensor.name = tensor_names_.take(target_, ".");
}

void Builder::add_result(const std::string& name, const View& view, SourceLocation location) {
  // Every result is a separate tensor that an operator writes, so that no two results share a caller's buffer.
  TensorId tensor = view.tensor;
  if (!results_.insert(tensor).second || graph.tensor(tensor).role != TensorRole::computed || !is_whole(graph, view)) {
    std::vector<DimId> dims;
    for (size_t axis = 0; axis < view.axes.size(); ++axis) dims.push_back(dim_of(view, axis));
    const std::optional<TensorId> copied = add_copy(view, view.axes, dims, location);
    if (!copied) return;
    tensor = *copied;
  }
  graph.results.push_back({result_names_.take(name, "_"), tensor});
}

}  // namespace millrace
