#include "random/fused_rows.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "base/text.h"
#include "ir/verify.h"
#include "reference/bounded.h"
#include "reference/philox.h"
#include "reference/scalar.h"

namespace millrace::random_programs {
namespace {

using Point = std::vector<int64_t>;  // of the group's space

constexpr int kWhole = -1;  // an axis that a row has all of

// Which elements of a tensor belong to a row.
struct Slice {
  std::vector<int> rows;  // one per axis: the outer index of the group that it runs along, or kWhole
  std::vector<int64_t> strides;
  std::vector<int64_t> elements;  // of the row at the origin, in the tensor's order

  size_t at(const Point& point, size_t element) const {
    int64_t position = elements[element];
    for (size_t axis = 0; axis < rows.size(); ++axis) {
      if (rows[axis] != kWhole) position += point[static_cast<size_t>(rows[axis])] * strides[axis];
    }
    return static_cast<size_t>(position);
  }
};

Slice slice_of(const Graph& graph, std::span<const DimId> dims, std::vector<int> rows) {
  Slice slice{std::move(rows), std::vector<int64_t>(dims.size()), {0}};
  int64_t stride = 1;
  for (size_t axis = dims.size(); axis-- > 0;) {
    slice.strides[axis] = stride;
    stride *= graph.extent(dims[axis]);
  }
  for (size_t axis = 0; axis < dims.size(); ++axis) {
    if (slice.rows[axis] != kWhole) continue;
    std::vector<int64_t> elements;
    for (const int64_t before : slice.elements) {
      for (int64_t i = 0; i < graph.extent(dims[axis]); ++i) elements.push_back(before + i * slice.strides[axis]);
    }
    slice.elements = std::move(elements);
  }
  return slice;
}

// What a row loads from memory, or from a generated tensor that depends on the position in the whole tensor.
template <class Scalar>
struct Load {
  TensorId to;    // of the row's graph
  TensorId from;  // of the whole graph; invalid: `generated`
  std::vector<Scalar> generated;
  Slice slice;
};

// How the results of rows are combined if an output does not run along an outer index.
enum class Fold { none, sum, max, min };

struct Store {
  TensorId from;
  TensorId to;
  Slice slice;
  Fold fold = Fold::none;
};

// A group as a graph of one row: its operators with outer indices of extent one.
template <class Scalar>
class Row {
 public:
  Row(const Graph& graph, const FusedOperator& group, const RandomState& random)
      : graph_(graph), group_(group), random_(random) {
    row_.name = group.name;
    row_.dims = graph.dims;
    row_.dims.push_back({"row", 1});
    for (size_t m = 0; m < group.members.size(); ++m) add_member(m);
  }

  std::optional<std::string> run(Memory<Scalar>& memory) {
    if (!complaint_.empty()) return complaint_;
    if (const Result<Done> valid = verify(row_); !valid) return to_string(valid.error());
    for (const Load<Scalar>& load : loads_) {
      if (load.from.valid() && memory.values[load.from.at()].empty())
        return concat("reads ", graph_.tensor(load.from).name, ", which is not in memory");
    }
    for (const Store& store : stores_) {
      memory.values[store.to.at()].assign(static_cast<size_t>(elements_of(graph_, store.to)), Scalar(0));
      written_.emplace_back(memory.values[store.to.at()].size(), false);
    }
    Point point(group_.space.size(), 0);
    do {
      if (const std::optional<std::string> complaint = run_at(point, memory)) return complaint;
    } while (advance(point));
    for (const OperatorId member : group_.members) mark_reordered(graph_.operators[member.at()], memory);
    return std::nullopt;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  void complain(const std::string& complaint) {
    if (complaint_.empty()) complaint_ = complaint;
  }

  // The outer index of the group for an index of a member, or kWhole. A contraction runs as a whole.
  int row_index(size_t member, int index) const {
    if (index == kFixed || group_.kind == FusedKind::contraction) return kWhole;
    const int of_group = group_.index_of[member][static_cast<size_t>(index)];
    return of_group >= 0 && group_.space[static_cast<size_t>(of_group)].outer ? of_group : kWhole;
  }

  // The index of the group; for an index of extent one, any.
  int group_index(size_t member, const Operator& op, int index) const {
    if (index == kFixed || graph_.extent(op.space[static_cast<size_t>(index)]) == 1) return kFixed;
    return group_.index_of[member][static_cast<size_t>(index)];
  }

  TensorId add_tensor(const std::string& name, DType dtype, TensorRole role, std::span<const DimId> dims,
                      const std::vector<int>& rows) {
    Tensor tensor{concat(name, "#", row_.tensors.size()), dtype, {dims.begin(), dims.end()}, role, 0};
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      if (rows[axis] != kWhole) tensor.dims[axis] = DimId(graph_.dims.size());
    }
    row_.tensors.push_back(tensor);
    return TensorId(row_.tensors.size() - 1);
  }

  TensorId constant(double value) {
    row_.tensors.push_back({concat("constant#", row_.tensors.size()), DType::float64, {}, TensorRole::constant, value});
    return TensorId(row_.tensors.size() - 1);
  }

  void add_member(size_t member) {
    const Operator& whole = graph_.operators[group_.members[member].at()];
    Operator op = whole;
    for (size_t index = 0; index < op.space.size(); ++index) {
      if (row_index(member, static_cast<int>(index)) != kWhole) op.space[index] = DimId(graph_.dims.size());
    }
    for (Access& input : op.inputs) input.tensor = input_of(member, whole, input);
    for (Access& output : op.outputs) output.tensor = output_of(member, whole, output);
    switch (op.kind) {
      case OperatorKind::dropout: return add_dropout(member, whole, op);
      case OperatorKind::causal_mask: return add_choice(member, whole, op, constant(-kInfinity));
      case OperatorKind::causal_mask_dx:
      case OperatorKind::embed_diagonal: return add_choice(member, whole, op, constant(0));
      default: row_.operators.push_back(op);
    }
  }

  std::vector<int> rows_of(size_t member, const Access& access) const {
    std::vector<int> rows;
    for (const int index : indices_of(access)) rows.push_back(row_index(member, index));
    return rows;
  }

  // One tensor for each access, since two members may read different slices of a tensor in memory. A tensor that a
  // member wrote in this row can only be read at the same point of the group's space.
  TensorId input_of(size_t member, const Operator& op, const Access& input) {
    const Tensor& tensor = graph_.tensor(input.tensor);
    if (const auto written = made_.find(input.tensor.at()); written != made_.end()) {
      for (size_t axis = 0; axis < input.axes.size(); ++axis) {
        if (group_index(member, op, input.axes[axis].index()) != written->second.indices[axis])
          complain(concat(op.name, " reads ", tensor.name, " at another point than where it was written"));
      }
      if (written->second.folded) complain(concat(op.name, " reads ", tensor.name, ", which no row has"));
      return written->second.tensor;
    }
    if (tensor.role == TensorRole::constant) return constant(tensor.value);
    const std::vector<int> rows = rows_of(member, input);
    const TensorRole role = tensor.role == TensorRole::scalar ? TensorRole::scalar : TensorRole::argument;
    const TensorId id = add_tensor(tensor.name, tensor.dtype, role, tensor.dims, rows);
    loads_.push_back({id, input.tensor, {}, slice_of(graph_, tensor.dims, rows)});
    return id;
  }

  TensorId output_of(size_t member, const Operator& op, const Access& output) {
    const Tensor& tensor = graph_.tensor(output.tensor);
    const std::vector<int> rows = rows_of(member, output);
    const TensorId id = add_tensor(tensor.name, tensor.dtype, TensorRole::computed, tensor.dims, rows);
    Made made{id, {}, crosses_rows(member, op)};
    for (const int index : indices_of(output)) made.indices.push_back(group_index(member, op, index));
    made_[output.tensor.at()] = made;
    if (std::find(group_.writes.begin(), group_.writes.end(), output.tensor) != group_.writes.end())
      stores_.push_back(
          {id, output.tensor, slice_of(graph_, tensor.dims, rows), made.folded ? fold_of(op) : Fold::none});
    return id;
  }

  bool crosses_rows(size_t member, const Operator& op) const {
    for (size_t index = 0; index < op.space.size(); ++index) {
      if (op.reduced[index] && graph_.extent(op.space[index]) > 1 &&
          row_index(member, static_cast<int>(index)) != kWhole)
        return true;
    }
    return false;
  }

  Fold fold_of(const Operator& op) {
    switch (op.kind) {
      case OperatorKind::sum:
      case OperatorKind::layernorm_dw:
      case OperatorKind::rmsnorm_dw: return Fold::sum;
      case OperatorKind::max: return Fold::max;
      case OperatorKind::min: return Fold::min;
      default: complain(concat(op.name, " uses a reduction across rows")); return Fold::none;
    }
  }

  // A tensor over an operator's space that depends on the position in the whole tensor, which a row does not know.
  template <class Formula>
  Access generated(size_t member, const Operator& whole, DType dtype, const Formula& formula) {
    const Access& output = whole.outputs[0];  // elementwise: it runs along the space in order
    const std::vector<int> rows = rows_of(member, output);
    const TensorId id = add_tensor("position", dtype, TensorRole::argument, whole.space, rows);
    Load<Scalar> load{id, {}, {}, slice_of(graph_, whole.space, rows)};
    Point point(whole.space.size());
    for (int64_t element = 0; element < points_of(graph_, whole); ++element) {
      int64_t rest = element;
      for (size_t k = point.size(); k-- > 0; rest /= graph_.extent(whole.space[k]))
        point[k] = rest % graph_.extent(whole.space[k]);
      load.generated.push_back(formula(element, point));
    }
    loads_.push_back(std::move(load));
    return {id, output.axes};
  }

  // y = a · mask, and a copy of the mask.
  void add_dropout(size_t member, const Operator& whole, Operator op) {
    const Scalar scale = Scalar(1) / (Scalar(1) - Scalar(op.value));
    const Access mask = generated(member, whole, DType::float64, [&](int64_t element, const Point&) {
      const auto e = static_cast<uint64_t>(element);
      return dropout_keeps(random_.seed, random_.step, op.subsequence, e, op.value) ? scale : Scalar(0);
    });
    Operator copy = op;
    copy.name += " mask";
    copy.kind = OperatorKind::copy;
    copy.inputs = {mask};
    copy.outputs = {op.outputs[1]};
    op.kind = OperatorKind::multiply;
    op.inputs.push_back(mask);
    op.outputs.pop_back();
    row_.operators.push_back(op);
    row_.operators.push_back(copy);
  }

  // y = a where the operator passes it, else `other`.
  void add_choice(size_t member, const Operator& whole, Operator op, TensorId other) {
    const Access passes = generated(member, whole, DType::boolean, [&](int64_t, const Point& point) {
      if (whole.kind != OperatorKind::embed_diagonal) return Scalar(point.back() > point[point.size() - 2] ? 0 : 1);
      for (size_t k = 0; k < point.size(); ++k) {
        if (point[k] != point[static_cast<size_t>(whole.diagonal[k])]) return Scalar(0);
      }
      return Scalar(1);
    });
    op.kind = OperatorKind::where;
    op.inputs = {passes, op.inputs[0], {other, {}}};
    row_.operators.push_back(op);
  }

  std::optional<std::string> run_at(const Point& point, Memory<Scalar>& memory) {
    Values<Scalar> values(row_.tensors.size());
    for (const Load<Scalar>& load : loads_) {
      const std::vector<Scalar>& from = load.from.valid() ? memory.values[load.from.at()] : load.generated;
      std::vector<Scalar>& to = values[load.to.at()];
      for (size_t e = 0; e < load.slice.elements.size(); ++e) to.push_back(from[load.slice.at(point, e)]);
    }
    if (const Result<Done> done = interpret<Scalar>(row_, values, random_); !done) return to_string(done.error());
    for (size_t s = 0; s < stores_.size(); ++s) {
      const Store& store = stores_[s];
      for (size_t e = 0; e < store.slice.elements.size(); ++e) {
        const size_t position = store.slice.at(point, e);
        const Scalar& value = values[store.from.at()][e];
        Scalar& to = memory.values[store.to.at()][position];
        if (!written_[s][position]) {
          to = value;
          written_[s][position] = true;
        } else {
          switch (store.fold) {
            case Fold::none: return concat("two rows write one element of ", graph_.tensor(store.to).name);
            case Fold::sum: to = to + value; break;
            case Fold::max: to = larger(to, value); break;
            case Fold::min: to = smaller(to, value); break;
          }
        }
      }
    }
    return std::nullopt;
  }

  // The next row; false after the last.
  bool advance(Point& point) const {
    if (group_.kind == FusedKind::contraction) return false;
    for (size_t index = point.size(); index-- > 0;) {
      if (!group_.space[index].outer) continue;
      if (++point[index] < graph_.extent(group_.space[index].dim)) return true;
      point[index] = 0;
    }
    return false;
  }

  // A maximum is the same in every order; only sums are not.
  void mark_reordered(const Operator& op, Memory<Scalar>& memory) const {
    bool reordered = std::any_of(op.inputs.begin(), op.inputs.end(),
                                 [&](const Access& input) { return memory.reordered[input.tensor.at()]; });
    const bool picks = op.kind == OperatorKind::max || op.kind == OperatorKind::min;
    for (const Access& output : op.outputs) {
      reordered = reordered || (!picks && made_.at(output.tensor.at()).folded);
      memory.reordered[output.tensor.at()] = reordered;
    }
  }

  // What a member has written in this row.
  struct Made {
    TensorId tensor;
    std::vector<int> indices;  // one per axis: the group's index that it runs along
    bool folded = false;       // complete only after all rows
  };

  const Graph& graph_;
  const FusedOperator& group_;
  const RandomState& random_;
  Graph row_;
  std::map<size_t, Made> made_;
  std::vector<Load<Scalar>> loads_;
  std::vector<Store> stores_;
  std::vector<std::vector<bool>> written_;  // for each store, one per element
  std::string complaint_;
};

}  // namespace

template <class Scalar>
std::optional<std::string> run_group(const Graph& graph, const FusedOperator& group, const RandomState& random,
                                     Memory<Scalar>& memory) {
  return Row<Scalar>(graph, group, random).run(memory);
}

template std::optional<std::string> run_group(const Graph&, const FusedOperator&, const RandomState&, Memory<double>&);
template std::optional<std::string> run_group(const Graph&, const FusedOperator&, const RandomState&,
                                              Memory<Bounded<53>>&);

}  // namespace millrace::random_programs
