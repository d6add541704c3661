#include "autodiff/differentiate.h"

#include <algorithm>
#include <map>
#include <set>

#include "autodiff/formula.h"
#include "autodiff/keep.h"
#include "base/text.h"
#include "base/unique_names.h"

namespace millrace {
namespace {

// Visits the forward operators in reverse. Each adds a contribution to the gradient of each of its inputs. When the
// producer of a tensor is visited, all contributions to the tensor's gradient exist; they are summed in the order in
// which forward reads the tensor, products last.
class Differentiator {
 public:
  explicit Differentiator(const Graph& forward) : graph_(training_.graph) {
    graph_ = forward;
    forward_operators_ = forward.operators.size();
    for (const Tensor& tensor : graph_.tensors) tensor_names_.claim(tensor.name);
    for (const Operator& op : graph_.operators) operator_names_.claim(op.name);
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      if (graph_.tensors[k].role == TensorRole::constant) constants_.emplace(graph_.tensors[k].value, TensorId(k));
    }
    forward_readers_ = readers_of(forward);
    find_active();
    contributions_.resize(graph_.tensors.size());
  }

  TrainingGraph run() {
    for (const Output& result : graph_.results) {
      const Tensor& tensor = graph_.tensor(result.tensor);
      const TensorId gradient = add_tensor(concat("d_", result.name), tensor.dtype, tensor.dims);
      graph_.tensors[gradient.at()].role = TensorRole::result_gradient;
      training_.result_gradients.push_back(gradient);
      contributions_[result.tensor.at()].push_back(gradient);
    }
    for (size_t k = forward_operators_; k-- > 0;) {
      const Operator op = graph_.operators[k];  // a copy: the list grows
      const TensorId y = op.outputs[0].tensor;
      if (!active_[y.at()]) continue;
      const TensorId gradient = total(y);
      if (gradient.valid()) propagate(op, {gradient, op.outputs[0].axes});
    }
    for (const TensorId argument : graph_.arguments) {
      training_.argument_gradients.push_back(has_gradient(graph_.tensor(argument)) ? argument_gradient(argument)
                                                                                   : TensorId());
    }
    decide_keeping(training_);
    return std::move(training_);
  }

 private:
  // A tensor is active if an argument's gradient depends on its gradient.
  void find_active() {
    active_.resize(graph_.tensors.size(), false);
    for (const TensorId argument : graph_.arguments) active_[argument.at()] = has_gradient(graph_.tensor(argument));
    for (const Operator& op : graph_.operators) {
      const bool any =
          std::any_of(op.inputs.begin(), op.inputs.end(), [&](const Access& x) { return active_[x.tensor.at()]; });
      if (any && passes_gradients(op.kind)) active_[op.outputs[0].tensor.at()] = true;
    }
  }

  // Comparisons and signs do not.
  static bool passes_gradients(OperatorKind kind) {
    return info_of(kind).gradient.find_first_not_of("-|") != std::string_view::npos;
  }

  TensorId add_tensor(const std::string& name, DType dtype, const std::vector<DimId>& dims) {
    graph_.tensors.push_back({tensor_names_.take(name, "."), dtype, dims, TensorRole::computed, 0});
    return TensorId(graph_.tensors.size() - 1);
  }

  Access constant(double value) {
    const auto [entry, fresh] = constants_.try_emplace(value, TensorId(graph_.tensors.size()));
    if (fresh)
      graph_.tensors.push_back(
          {tensor_names_.take(concat(value), "."), DType::float64, {}, TensorRole::constant, value});
    return {entry->second, {}};
  }

  // Adds a backward operator with one output that has the given axes; kFixed axes get extent one.
  TensorId emit(Operator op, const std::string& name, const std::string& output, DType dtype,
                const std::vector<int>& axes) {
    std::vector<DimId> dims;
    for (const int index : axes) dims.push_back(index == kFixed ? unit() : op.space[as_index(index)]);
    const TensorId tensor = add_tensor(output, dtype, dims);
    op.outputs.push_back({tensor, axes});
    append(std::move(op), name);
    return tensor;
  }

  void append(Operator op, const std::string& name) {
    op.name = operator_names_.take(name, " ");
    op.pass = Pass::backward;
    graph_.operators.push_back(std::move(op));
  }

  DimId unit() {
    for (size_t k = 0; k < graph_.dims.size(); ++k) {
      if (graph_.dims[k].extent == 1) return DimId(k);
    }
    graph_.dims.push_back({"1", 1});
    return DimId(graph_.dims.size() - 1);
  }

  static Operator over(OperatorKind kind, const std::vector<DimId>& space) {
    Operator op;
    op.kind = kind;
    op.space = space;
    op.reduced.resize(space.size(), false);
    return op;
  }

  bool is_product(TensorId tensor) const {
    return std::any_of(
        graph_.operators.begin() + static_cast<std::ptrdiff_t>(forward_operators_), graph_.operators.end(),
        [&](const Operator& op) { return op.kind == OperatorKind::contraction && op.outputs[0].tensor == tensor; });
  }

  // Sums a tensor's contributions with explicit operators: the paper's backward residuals. Products come last, in the
  // order in which they are computed, so that each can be accumulated into the existing sum; two products alone can do
  // that in either order.
  TensorId total(TensorId tensor) {
    std::vector<TensorId> parts = contributions_[tensor.at()];
    if (parts.empty()) return {};
    std::reverse(parts.begin(), parts.end());
    if (parts.size() > 2) {
      const auto products =
          std::stable_partition(parts.begin(), parts.end(), [&](TensorId part) { return !is_product(part); });
      if (products != parts.begin()) std::reverse(products, parts.end());
    }
    TensorId sum = parts[0];
    const std::string name = concat("d_", graph_.tensor(tensor).name);
    for (size_t k = 1; k < parts.size(); ++k) {
      Operator add = over(OperatorKind::add, graph_.tensor(tensor).dims);
      const std::vector<int> axes = in_order(add.space.size());
      add.inputs = {{sum, axes}, {parts[k], axes}};
      sum = emit(std::move(add), concat(name, " sum"), concat(name, ".sum"), graph_.tensor(tensor).dtype, axes);
    }
    return sum;
  }

  // Every argument's gradient is a separate tensor that an operator writes: zero if no result depends on the argument.
  TensorId argument_gradient(TensorId argument) {
    TensorId gradient = total(argument);
    const bool shared = gradient.valid() &&
                        (graph_.tensor(gradient).role != TensorRole::computed || !given_away_.insert(gradient).second);
    const std::string name = concat("d_", graph_.tensor(argument).name);
    if (!gradient.valid() || shared) {
      Operator copy = over(OperatorKind::copy, graph_.tensor(argument).dims);
      const std::vector<int> axes = in_order(copy.space.size());
      copy.inputs.push_back(gradient.valid() ? Access{gradient, axes} : constant(0));
      gradient =
          emit(std::move(copy), concat(name, shared ? " copy" : " zero"), name, graph_.tensor(argument).dtype, axes);
    }
    Tensor& tensor = graph_.tensors[gradient.at()];
    if (tensor.name != name && tensor_names_.claim(name)) tensor.name = name;
    return gradient;
  }

  void contribute(const Operator& op, size_t input, const Access& gradient) {
    const TensorId tensor = op.inputs[input].tensor;
    contributions_[tensor.at()].push_back(reduce_to(op, op.inputs[input], gradient));
  }

  std::string name_of_gradient(const Operator& op, const Access& operand) const {
    return concat(op.name, " d_", graph_.tensor(operand.tensor).name);
  }

  std::string tensor_of_gradient(const Access& operand) const {
    return concat("d_", graph_.tensor(operand.tensor).name);
  }

  // Reduces a gradient over the whole space to the operand's shape: sums over indices along which the operand was
  // broadcast, permutes, and embeds the gradient of a diagonal into the diagonal.
  TensorId reduce_to(const Operator& op, const Access& operand, const Access& gradient) {
    const DType dtype = graph_.tensor(operand.tensor).dtype;
    if (operand.axes == in_order(op.space.size()) && gradient.axes == operand.axes) return gradient.tensor;
    std::vector<int> kept;  // the operand's indices, each once
    for (const int index : operand.axes) {
      if (index != kFixed && std::find(kept.begin(), kept.end(), index) == kept.end()) kept.push_back(index);
    }
    const bool diagonal = static_cast<size_t>(std::count_if(operand.axes.begin(), operand.axes.end(),
                                                            [](int i) { return i != kFixed; })) > kept.size();
    const std::vector<int> axes = diagonal ? kept : operand.axes;
    Operator sum = over(OperatorKind::sum, op.space);
    bool sums = false;
    for (size_t index = 0; index < op.space.size(); ++index) {
      sum.reduced[index] = !runs_along(operand, index);
      sums = sums || (sum.reduced[index] && graph_.extent(op.space[index]) > 1);
    }
    TensorId reduced;
    if (sums) {
      sum.inputs.push_back(gradient);
      reduced = emit(std::move(sum), name_of_gradient(op, operand), tensor_of_gradient(operand), dtype, axes);
    } else {
      reduced = rearrange(op, operand, gradient, axes);
    }
    return diagonal ? embed(op, operand, kept, reduced) : reduced;
  }

  // A copy with the gradient's axes in the order of `axes`; other indices, all of extent one, are dropped.
  TensorId rearrange(const Operator& op, const Access& operand, const Access& gradient, const std::vector<int>& axes) {
    Operator copy = over(OperatorKind::copy, {});
    std::map<int, int> position;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      if (axes[axis] != kFixed) position.emplace(axes[axis], static_cast<int>(axis));
      copy.space.push_back(axes[axis] == kFixed ? unit() : op.space[as_index(axes[axis])]);
    }
    copy.reduced.resize(copy.space.size(), false);
    Access input{gradient.tensor, {}};
    for (const int index : gradient.axes) {
      const auto found = position.find(index);
      input.axes.push_back(found == position.end() ? kFixed : found->second);
    }
    if (input.axes == in_order(copy.space.size())) return gradient.tensor;
    copy.inputs.push_back(std::move(input));
    const std::vector<int> out = in_order(copy.space.size());
    return emit(std::move(copy), name_of_gradient(op, operand), tensor_of_gradient(operand),
                graph_.tensor(operand.tensor).dtype, out);
  }

  TensorId embed(const Operator& op, const Access& operand, const std::vector<int>& kept, TensorId reduced) {
    Operator embed = over(OperatorKind::embed_diagonal, graph_.tensor(operand.tensor).dims);
    std::map<int, int> first;  // the first axis that runs along an index
    Access input{reduced, std::vector<int>(kept.size(), kFixed)};
    for (size_t axis = 0; axis < operand.axes.size(); ++axis) {
      const int index = operand.axes[axis];
      const int here = static_cast<int>(axis);
      embed.diagonal.push_back(index == kFixed ? here : first.try_emplace(index, here).first->second);
    }
    for (size_t k = 0; k < kept.size(); ++k) input.axes[k] = first.at(kept[k]);
    embed.inputs.push_back(std::move(input));
    const std::vector<int> out = in_order(embed.space.size());
    return emit(std::move(embed), name_of_gradient(op, operand), tensor_of_gradient(operand),
                graph_.tensor(operand.tensor).dtype, out);
  }

  void propagate(const Operator& op, const Access& g) {
    switch (op.kind) {
      case OperatorKind::contraction:
        for (size_t input : {0U, 1U}) {
          if (active_[op.inputs[input].tensor.at()])
            contributions_[op.inputs[input].tensor.at()].push_back(contraction_gradient(op, input, g));
        }
        return;
      case OperatorKind::copy: contribute(op, 0, g); return;
      case OperatorKind::sum: contribute(op, 0, along_space(op, OperatorKind::copy, {g})); return;
      case OperatorKind::max:
      case OperatorKind::min:
        contribute(op, 0, along_space(op, OperatorKind::extremum_dx, {op.inputs[0], op.outputs[0], g}));
        return;
      case OperatorKind::relu: contribute(op, 0, along_space(op, OperatorKind::relu_dx, {sign_of(op), g})); return;
      case OperatorKind::layernorm: layernorm_gradient(op, g); return;
      case OperatorKind::rmsnorm: rmsnorm_gradient(op, g); return;
      default: break;
    }
    const std::vector<Formula> formulas = gradient_formulas(op.kind);
    for (size_t input = 0; input < formulas.size(); ++input) {
      if (formulas[input].kind == Formula::Kind::none || !active_[op.inputs[input].tensor.at()]) continue;
      contribute(op, input, evaluate(formulas[input], op, input, g));
    }
  }

  // The tensor that tells a ReLU's gradient where its output was positive. If only a dropout reads the ReLU, that is
  // the dropout's output: they differ only where the mask is zero, and there the gradient is zero too. The dropout's
  // output is kept for the next product's gradient anyway, so the ReLU's output need not be kept.
  Access sign_of(const Operator& op) const {
    const TensorId y = op.outputs[0].tensor;
    const std::vector<OperatorId>& readers = forward_readers_[y.at()];
    const bool result =
        std::any_of(graph_.results.begin(), graph_.results.end(), [&](const Output& r) { return r.tensor == y; });
    if (result || readers.size() != 1) return op.outputs[0];
    const Operator& reader = graph_.operators[readers[0].at()];
    const std::vector<int>& axes = op.outputs[0].axes;  // a dropout of y[:, None] runs along more than y
    const bool same = reader.inputs[0].axes == axes && reader.outputs[0].axes == axes;
    return reader.kind == OperatorKind::dropout && same ? reader.outputs[0] : op.outputs[0];
  }

  // An operator over the forward operator's space whose output runs along all of it.
  Access along_space(const Operator& op, OperatorKind kind, std::vector<Access> inputs, size_t input = 0) {
    Operator result = over(kind, op.space);
    if (info_of(kind).operator_class == OperatorClass::normalization) result.reduced = op.reduced;
    result.value = op.value;
    result.inputs = std::move(inputs);
    const bool compares = kind == OperatorKind::less;
    const DType dtype = compares ? DType::boolean : graph_.tensor(op.outputs[0].tensor).dtype;
    const std::vector<int> axes = in_order(op.space.size());
    const Access& operand = op.inputs[input];
    const TensorId tensor =
        emit(std::move(result), name_of_gradient(op, operand), tensor_of_gradient(operand), dtype, axes);
    return {tensor, axes};
  }

  Access evaluate(const Formula& formula, const Operator& op, size_t input, const Access& g) {
    switch (formula.kind) {
      case Formula::Kind::number: return constant(formula.number);
      case Formula::Kind::symbol:
        switch (formula.symbol) {
          case 'y': return op.outputs[0];
          case 'm': return op.outputs[1];
          case 'g': return g;
          default: return op.inputs[as_index(formula.symbol - 'a')];
        }
      default: break;
    }
    std::vector<Access> inputs;
    for (const Formula& argument : formula.arguments) inputs.push_back(evaluate(argument, op, input, g));
    return along_space(op, formula.callee, std::move(inputs), input);
  }

  // d_a = Σ g · b over the indices that a lacks: a contraction, or an elementwise product if there are none.
  TensorId contraction_gradient(const Operator& op, size_t input, const Access& g) {
    const Access& operand = op.inputs[input];
    Operator gradient = over(OperatorKind::contraction, op.space);
    bool contracts = false;
    for (size_t index = 0; index < op.space.size(); ++index) {
      gradient.reduced[index] = !runs_along(operand, index);
      contracts = contracts || gradient.reduced[index];
    }
    gradient.inputs = {op.inputs[1 - input], g};
    if (input == 1) std::swap(gradient.inputs[0], gradient.inputs[1]);
    const DType dtype = graph_.tensor(operand.tensor).dtype;
    const std::string name = name_of_gradient(op, operand);
    if (contracts) {
      gradient.inputs.insert(gradient.inputs.end(), op.inputs.begin() + 2, op.inputs.end());
      return emit(std::move(gradient), name, tensor_of_gradient(operand), dtype, operand.axes);
    }
    gradient.kind = OperatorKind::multiply;
    const std::vector<int> axes = in_order(op.space.size());
    TensorId tensor = emit(std::move(gradient), name, tensor_of_gradient(operand), dtype, axes);
    for (size_t k = 2; k < op.inputs.size(); ++k) {
      Operator scale = over(OperatorKind::multiply, op.space);
      scale.inputs = {{tensor, axes}, op.inputs[k]};
      tensor = emit(std::move(scale), name, tensor_of_gradient(operand), dtype, axes);
    }
    return reduce_to(op, operand, {tensor, axes});
  }

  // The gradients of the weights are sums over all indices that the weights lack.
  Operator weight_gradient(OperatorKind kind, const Operator& op, std::vector<Access> inputs, size_t outputs) {
    Operator result = over(kind, op.space);
    for (size_t index = 0; index < op.space.size(); ++index) result.reduced[index] = !op.reduced[index];
    result.inputs = std::move(inputs);
    for (size_t k = 1; k <= outputs; ++k) {
      const Access& weight = op.inputs[k];
      const Tensor tensor = graph_.tensor(weight.tensor);
      result.outputs.push_back({add_tensor(tensor_of_gradient(weight), tensor.dtype, tensor.dims), weight.axes});
    }
    return result;
  }

  void layernorm_gradient(const Operator& op, const Access& g) {
    const Access& x = op.inputs[0];
    const Access& mean = op.outputs[1];
    const Access& rstd = op.outputs[2];
    if (active_[op.inputs[1].tensor.at()] || active_[op.inputs[2].tensor.at()]) {
      Operator weights = weight_gradient(OperatorKind::layernorm_dw, op, {x, mean, rstd, g}, 2);
      for (size_t k : {1U, 2U}) contributions_[op.inputs[k].tensor.at()].push_back(weights.outputs[k - 1].tensor);
      append(std::move(weights), concat(op.name, " dW"));
    }
    if (active_[x.tensor.at()])
      contribute(op, 0, along_space(op, OperatorKind::layernorm_dx, {x, op.inputs[1], mean, rstd, g}));
  }

  void rmsnorm_gradient(const Operator& op, const Access& g) {
    const Access& x = op.inputs[0];
    const Access& rstd = op.outputs[1];
    if (active_[op.inputs[1].tensor.at()]) {
      Operator weight = weight_gradient(OperatorKind::rmsnorm_dw, op, {x, rstd, g}, 1);
      contributions_[op.inputs[1].tensor.at()].push_back(weight.outputs[0].tensor);
      append(std::move(weight), concat(op.name, " dW"));
    }
    if (active_[x.tensor.at()])
      contribute(op, 0, along_space(op, OperatorKind::rmsnorm_dx, {x, op.inputs[1], rstd, g}));
  }

  TrainingGraph training_;
  Graph& graph_;
  size_t forward_operators_ = 0;
  std::vector<std::vector<OperatorId>> forward_readers_;
  std::vector<bool> active_;
  std::vector<std::vector<TensorId>> contributions_;  // in reverse forward order
  std::set<TensorId> given_away_;                     // gradients already assigned to an argument
  UniqueNames tensor_names_;
  UniqueNames operator_names_;
  std::map<double, TensorId> constants_;
};

}  // namespace

TrainingGraph differentiate(const Graph& graph) { return Differentiator(graph).run(); }

}  // namespace millrace
