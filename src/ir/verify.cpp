#include "ir/verify.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/text.h"

namespace millrace {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), written_(graph.tensors.size(), false) {}

  Result<Done> run() {
    tensors();
    for (const TensorId argument : graph_.arguments) {
      if (check(in_range(argument), "an argument is not a tensor")) {
        const TensorRole role = graph_.tensor(argument).role;
        check(role == TensorRole::argument || role == TensorRole::scalar, "argument ", graph_.tensor(argument).name,
              " has the wrong role");
      }
    }
    std::set<std::string> names;
    for (const Operator& op : graph_.operators) {
      at_ = &op;
      check(names.insert(op.name).second, "another operator has its name");
      if (message_.empty()) one(op);  // checks on a graph known to be broken are not safe
    }
    at_ = nullptr;
    for (const Output& result : graph_.results) {
      check(in_range(result.tensor) && written_[result.tensor.at()], "no operator writes result ", result.name);
    }
    if (message_.empty()) return Done{};
    return Error::make(ErrorKind::failed, concat("invalid graph: ", message_),
                       "this is a bug in Millrace: please report it with the program");
  }

 private:
  // Builds the message only on failure.
  template <class... Parts>
  bool check(bool holds, const Parts&... message) {
    if (!holds && message_.empty())
      message_ = concat(at_ == nullptr ? "" : concat("operator '", at_->name, "': "), message...);
    return holds;
  }

  bool in_range(TensorId id) const { return id.valid() && id.at() < graph_.tensors.size(); }

  void tensors() {
    std::set<std::string> names;
    for (const Dim& dim : graph_.dims) check(dim.extent >= 1, "dimension ", dim.name, " is empty");
    for (const Tensor& tensor : graph_.tensors) {
      check(names.insert(tensor.name).second, "two tensors are named ", tensor.name);
      for (const DimId dim : tensor.dims)
        check(dim.valid() && dim.at() < graph_.dims.size(), "tensor ", tensor.name, " has an unknown dimension");
      const bool rank_zero = tensor.role == TensorRole::scalar || tensor.role == TensorRole::constant;
      check(!rank_zero || tensor.dims.empty(), "scalar ", tensor.name, " has dimensions");
    }
  }

  void one(const Operator& op) {
    const OperatorInfo& info = info_of(op.kind);
    if (!check(op.reduced.size() == op.space.size(), "`reduced` does not have one entry per index")) return;
    for (const DimId dim : op.space) {
      if (!check(dim.valid() && dim.at() < graph_.dims.size(), "unknown dimension")) return;
    }
    const bool at_least = op.kind == OperatorKind::contraction || op.kind == OperatorKind::join;
    const auto inputs = static_cast<size_t>(info.inputs);
    const bool arity = at_least ? op.inputs.size() >= inputs : op.inputs.size() == inputs;
    if (!check(arity && op.outputs.size() == static_cast<size_t>(info.outputs), "wrong number of inputs or outputs"))
      return;
    if (op.kind == OperatorKind::join && !regions(op)) return;
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      const Access& input = op.inputs[k];
      if (!access(op, input, points_of_input(graph_, op, k))) return;
      check(op.pass == Pass::backward || !takes_partial_diagonal(graph_, op, input), "a diagonal of ",
            graph_.tensor(input.tensor).name, " is taken of a slice, or of an axis that several indices count");
      const TensorRole role = graph_.tensor(input.tensor).role;
      check(role != TensorRole::computed || written_[input.tensor.at()], "reads ", graph_.tensor(input.tensor).name,
            " before it is written");
    }
    for (const Access& output : op.outputs) {
      if (!access(op, output, all_points(graph_, op))) return;
      check(graph_.tensor(output.tensor).role == TensorRole::computed, "writes ", graph_.tensor(output.tensor).name,
            ", which is an input of the graph");
      check(!written_[output.tensor.at()], "writes ", graph_.tensor(output.tensor).name, " a second time");
      written_[output.tensor.at()] = true;
      digits(op, output);
    }
    space(op);
  }

  // The indices of each axis of an output count its positions like the digits of a number; each is on one axis.
  void digits(const Operator& op, const Access& output) {
    std::set<int> indices;
    for (size_t axis = 0; axis < output.axes.size(); ++axis) {
      std::vector<IndexTerm> terms = output.axes[axis].terms;
      std::sort(terms.begin(), terms.end(), [](const IndexTerm& l, const IndexTerm& r) { return l.stride < r.stride; });
      int64_t next = 1;
      for (const IndexTerm& term : terms) {
        check(indices.insert(term.index).second, "two axes of an output run along one index");
        const int64_t extent = graph_.extent(op.space[as_index(term.index)]);
        check(term.stride == next || extent == 1, "an output's position is not made of digits");
        next *= extent;
      }
      check(output.axes[axis].offset == 0 && next == graph_.extent(graph_.tensor(output.tensor).dims[axis]),
            "an output is not written whole along axis ", axis);
    }
  }

  // One box of points per input, none of them empty, and no two of them overlap.
  bool regions(const Operator& op) {
    if (!check(op.regions.size() == op.inputs.size(), "a join has not one region per input")) return false;
    for (size_t k = 0; k < op.regions.size(); ++k) {
      if (!check(op.regions[k].size() == op.space.size(), "a region has not one range per index")) return false;
      for (size_t index = 0; index < op.space.size(); ++index) {
        const Range& range = op.regions[k][index];
        const bool inside =
            range.first >= 0 && range.first <= range.last && range.last < graph_.extent(op.space[index]);
        check(inside, "a region is empty or outside the space");
      }
      for (size_t other = 0; other < k; ++other)
        check(!overlap(op.regions[k], op.regions[other]), "two regions of a join overlap");
    }
    return true;
  }

  bool access(const Operator& op, const Access& access, const Region& points) {
    if (!check(in_range(access.tensor), "unknown tensor")) return false;
    const Tensor& tensor = graph_.tensor(access.tensor);
    if (!check(access.axes.size() == tensor.dims.size(), "an access has not one index per axis of ", tensor.name))
      return false;
    for (size_t axis = 0; axis < access.axes.size(); ++axis) {
      const Position& position = access.axes[axis];
      int before = kFixed;
      for (const IndexTerm& term : position.terms) {
        const bool known = term.index > before && static_cast<size_t>(term.index) < op.space.size() && term.stride != 0;
        if (!check(known, "unknown index on ", tensor.name)) return false;
        before = term.index;
      }
      const int64_t extent = graph_.extent(tensor.dims[axis]);
      const Range range = range_of(position, points);
      check(range.first >= 0 && range.last < extent, "positions ", range.first, " to ", range.last, " on axis ", axis,
            " of ", tensor.name, " are not all inside its extent ", extent);
    }
    return true;
  }

  // The rules of each class about reduced indices.
  void space(const Operator& op) {
    const OperatorClass operator_class = info_of(op.kind).operator_class;
    const bool folds = op.kind == OperatorKind::sum || op.kind == OperatorKind::max || op.kind == OperatorKind::min ||
                       op.kind == OperatorKind::log_sum_exp || op.kind == OperatorKind::scatter_add ||
                       operator_class == OperatorClass::contraction;
    for (size_t index = 0; index < op.space.size(); ++index) {
      if (operator_class == OperatorClass::elementwise) {
        check(!op.reduced[index], "an elementwise operator has a reduced index");
        check(runs_along(op.outputs[0], index),
              "the output of an elementwise operator does not run along its space in order");
      }
      if (folds)
        check(op.reduced[index] != runs_along(op.outputs[0], index),
              "the output does not run along exactly the indices that are not reduced");
      if (operator_class == OperatorClass::contraction) {
        const bool in_an_operand = runs_along(op.inputs[0], index) || runs_along(op.inputs[1], index);
        check(in_an_operand || graph_.extent(op.space[index]) == 1, "a contraction's index is in neither operand");
      }
    }
    if (operator_class == OperatorClass::contraction) {
      check(std::any_of(op.reduced.begin(), op.reduced.end(), [](bool r) { return r; }),
            "a contraction has no reduced index");
      for (size_t k = 2; k < op.inputs.size(); ++k)
        check(op.inputs[k].axes.empty(), "a contraction's scale is not a scalar");
    }
    if (operator_class == OperatorClass::elementwise)
      check(in_order_of_space(op.outputs[0]),
            "the output of an elementwise operator does not run along its space in order");
    if (op.kind == OperatorKind::where)
      check(graph_.tensor(op.inputs[0].tensor).dtype == DType::boolean, "the condition of a where is not a boolean");
    if (op.kind == OperatorKind::gather) gather(op);
    if (op.kind == OperatorKind::scatter_add) scatter_add(op);
  }

  void gather(const Operator& op) {
    const Access& table = op.inputs[0];
    const bool known = op.gathered >= 0 && as_index(op.gathered) < table.axes.size();
    check(known && table.axes[as_index(op.gathered)] == Position(kFixed), "the gathered axis is not at position zero");
  }

  void scatter_add(const Operator& op) {
    const bool known = op.gathered >= 0 && as_index(op.gathered) < op.space.size();
    check(known && !op.reduced[as_index(op.gathered)] && !runs_along(op.inputs[0], as_index(op.gathered)) &&
              !runs_along(op.inputs[1], as_index(op.gathered)),
          "the index that ids select is reduced, or an input runs along it");
  }

  // The indices of its axes, outermost first, are 0, 1, …
  static bool in_order_of_space(const Access& output) {
    int next = 0;
    for (const Position& axis : output.axes) {
      for (const IndexTerm& term : axis.terms) {  // sorted by index: strides must fall
        if (term.index != next++) return false;
      }
      for (size_t k = 0; k + 1 < axis.terms.size(); ++k) {
        if (axis.terms[k].stride < axis.terms[k + 1].stride) return false;
      }
    }
    return true;
  }

  const Graph& graph_;
  std::vector<bool> written_;
  const Operator* at_ = nullptr;
  std::string message_;
};

}  // namespace

Result<Done> verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace millrace
