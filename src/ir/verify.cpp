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
    const bool arity = op.kind == OperatorKind::contraction ? op.inputs.size() >= 2
                                                            : op.inputs.size() == static_cast<size_t>(info.inputs);
    if (!check(arity && op.outputs.size() == static_cast<size_t>(info.outputs), "wrong number of inputs or outputs"))
      return;
    for (const Access& input : op.inputs) {
      if (!access(op, input)) return;
      const TensorRole role = graph_.tensor(input.tensor).role;
      check(role != TensorRole::computed || written_[input.tensor.at()], "reads ", graph_.tensor(input.tensor).name,
            " before it is written");
    }
    for (const Access& output : op.outputs) {
      if (!access(op, output)) return;
      check(graph_.tensor(output.tensor).role == TensorRole::computed, "writes ", graph_.tensor(output.tensor).name,
            ", which is an input of the graph");
      check(!written_[output.tensor.at()], "writes ", graph_.tensor(output.tensor).name, " a second time");
      written_[output.tensor.at()] = true;
      std::set<int> indices;
      for (const int index : output.axes)
        check(index == kFixed || indices.insert(index).second, "two axes of an output run along one index");
    }
    space(op);
  }

  bool access(const Operator& op, const Access& access) {
    if (!check(in_range(access.tensor), "unknown tensor")) return false;
    const Tensor& tensor = graph_.tensor(access.tensor);
    if (!check(access.axes.size() == tensor.dims.size(), "an access has not one index per axis of ", tensor.name))
      return false;
    for (size_t axis = 0; axis < access.axes.size(); ++axis) {
      const int index = access.axes[axis];
      const int64_t extent = graph_.extent(tensor.dims[axis]);
      if (index == kFixed) {
        check(extent == 1, "axis ", axis, " of ", tensor.name, " runs along no index but its extent is not one");
      } else if (check(index >= 0 && static_cast<size_t>(index) < op.space.size(), "unknown index on ", tensor.name)) {
        check(extent == graph_.extent(op.space[as_index(index)]), "axis ", axis, " of ", tensor.name,
              " has another extent than its index");
      } else {
        return false;
      }
    }
    return true;
  }

  // The rules of each class about reduced indices.
  void space(const Operator& op) {
    const OperatorClass operator_class = info_of(op.kind).operator_class;
    const bool folds = op.kind == OperatorKind::sum || op.kind == OperatorKind::max || op.kind == OperatorKind::min ||
                       op.kind == OperatorKind::log_sum_exp || operator_class == OperatorClass::contraction;
    for (size_t index = 0; index < op.space.size(); ++index) {
      if (operator_class == OperatorClass::elementwise) {
        check(!op.reduced[index], "an elementwise operator has a reduced index");
        check(op.outputs[0].axes.size() == op.space.size() && op.outputs[0].axes[index] == static_cast<int>(index),
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
    if (op.kind == OperatorKind::where)
      check(graph_.tensor(op.inputs[0].tensor).dtype == DType::boolean, "the condition of a where is not a boolean");
  }

  const Graph& graph_;
  std::vector<bool> written_;
  const Operator* at_ = nullptr;
  std::string message_;
};

}  // namespace

Result<Done> verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace millrace
