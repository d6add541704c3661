#include "autodiff/differentiate.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "autodiff/access_gradient.h"
#include "autodiff/backward_builder.h"
#include "autodiff/formula.h"
#include "autodiff/keep.h"
#include "base/text.h"
#include "ir/push_slices.h"

namespace millrace {
namespace {

// Visits the forward operators in reverse. Each adds a contribution to the gradient of each of its inputs. When the
// producer of a tensor is visited, all contributions to the tensor's gradient exist; they are summed in the order in
// which forward reads the tensor, products last.
class Differentiator {
 public:
  explicit Differentiator(const Graph& forward)
      : training_{forward, {}, {}, {}, {}, {}, {}}, graph_(training_.graph), builder_(graph_) {
    forward_operators_ = forward.operators.size();
    forward_readers_ = readers_of(forward);
    find_active();
    contributions_.resize(graph_.tensors.size());
  }

  TrainingGraph run() {
    for (const Output& result : graph_.results) {
      const Tensor& tensor = graph_.tensor(result.tensor);
      const TensorId gradient = builder_.add_tensor(concat("d_", result.name), tensor.dtype, tensor.dims);
      graph_.tensors[gradient.at()].role = TensorRole::result_gradient;
      training_.result_gradients.push_back(gradient);
      contributions_[result.tensor.at()].push_back({gradient, {}});
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
    push_slices(graph_, Pass::backward, training_.argument_gradients);
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

  bool is_product(TensorId tensor) const {
    return std::any_of(
        graph_.operators.begin() + static_cast<std::ptrdiff_t>(forward_operators_), graph_.operators.end(),
        [&](const Operator& op) { return op.kind == OperatorKind::contraction && op.outputs[0].tensor == tensor; });
  }

  // Sums a tensor's contributions with explicit operators: the paper's backward residuals. Products come last, in the
  // order in which they are computed, so that each can be accumulated into the existing sum; two products alone can do
  // that in either order.
  TensorId total(TensorId tensor) {
    if (contributions_[tensor.at()].empty()) return {};
    std::vector<Contribution> all = contributions_[tensor.at()];
    std::reverse(all.begin(), all.end());
    const std::string name = concat("d_", graph_.tensor(tensor).name);
    std::vector<TensorId> parts = join_parts(builder_, tensor, all, {concat(name, " join"), name});
    if (parts.size() > 2) {
      const auto products =
          std::stable_partition(parts.begin(), parts.end(), [&](TensorId part) { return !is_product(part); });
      if (products != parts.begin()) std::reverse(products, parts.end());
    }
    TensorId sum = parts[0];
    for (size_t k = 1; k < parts.size(); ++k) {
      Operator add = BackwardBuilder::over(OperatorKind::add, graph_.tensor(tensor).dims);
      const std::vector<Position> axes = in_order(add.space.size());
      add.inputs = {{sum, axes}, {parts[k], axes}};
      sum =
          builder_.emit(std::move(add), concat(name, " sum"), concat(name, ".sum"), graph_.tensor(tensor).dtype, axes);
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
      Operator copy = BackwardBuilder::over(OperatorKind::copy, graph_.tensor(argument).dims);
      const std::vector<Position> axes = in_order(copy.space.size());
      copy.inputs.push_back(gradient.valid() ? Access{gradient, axes} : builder_.constant(0));
      gradient = builder_.emit(std::move(copy), concat(name, shared ? " copy" : " zero"), name,
                               graph_.tensor(argument).dtype, axes);
    }
    builder_.rename(gradient, name);
    return gradient;
  }

  void contribute(const Operator& op, size_t input, const Access& gradient) {
    const TensorId tensor = op.inputs[input].tensor;
    contributions_[tensor.at()].push_back(reduce_to(op, op.inputs[input], gradient));
  }

  GradientNames names_of_gradient(const Operator& op, const Access& operand) const {
    return {name_of_gradient(op, operand), tensor_of_gradient(operand)};
  }

  std::string name_of_gradient(const Operator& op, const Access& operand) const {
    return concat(op.name, " d_", graph_.tensor(operand.tensor).name);
  }

  std::string tensor_of_gradient(const Access& operand) const {
    return concat("d_", graph_.tensor(operand.tensor).name);
  }

  // Reduces a gradient over the whole space to the operand's shape: sums over indices along which the operand was
  // broadcast, permutes, and places the gradient of a slice, window or diagonal.
  Contribution reduce_to(const Operator& op, const Access& operand, const Access& gradient) {
    const bool same = gradient.axes == operand.axes && is_whole(graph_, op, operand) && is_whole(graph_, op, gradient);
    if (same) return {gradient.tensor, {}};
    if (takes_diagonal(operand)) return {reduce_to_diagonal(op, operand, gradient), {}};
    const CompactTensor compact = compact_tensor(builder_, op, operand);
    const TensorId reduced = reduce(op, operand, gradient, compact);
    if (compact.whole) return {reduced, {}};
    return place(builder_, op, operand, reduced, names_of_gradient(op, operand));
  }

  TensorId reduce_to_diagonal(const Operator& op, const Access& operand, const Access& gradient) {
    std::vector<int> kept;  // the operand's indices, each once
    for (const int index : indices_of(operand)) {
      if (index != kFixed && std::find(kept.begin(), kept.end(), index) == kept.end()) kept.push_back(index);
    }
    CompactTensor compact;
    for (const int index : kept) {
      compact.axes.emplace_back(index);
      compact.dims.push_back(op.space[as_index(index)]);
    }
    return embed(op, operand, kept, reduce(op, operand, gradient, compact));
  }

  // Sums the gradient over the indices that the operand lacks, or only rearranges it if there are none.
  TensorId reduce(const Operator& op, const Access& operand, const Access& gradient, const CompactTensor& compact) {
    Operator sum = BackwardBuilder::over(OperatorKind::sum, op.space);
    bool sums = false;
    for (size_t index = 0; index < op.space.size(); ++index) {
      sum.reduced[index] = !runs_along(operand, index);
      sums = sums || (sum.reduced[index] && graph_.extent(op.space[index]) > 1);
    }
    if (!sums) return rearrange(op, operand, gradient, compact);
    sum.inputs.push_back(gradient);
    return builder_.emit(std::move(sum), name_of_gradient(op, operand), tensor_of_gradient(operand),
                         graph_.tensor(operand.tensor).dtype, compact.dims, compact.axes);
  }

  // A copy with the gradient's elements where `compact` has them; indices that it lacks have extent one.
  TensorId rearrange(const Operator& op, const Access& operand, const Access& gradient, const CompactTensor& compact) {
    Operator copy = BackwardBuilder::over(OperatorKind::copy, {});
    std::vector<Position> by(op.space.size());
    std::vector<Position> output;
    for (size_t axis = 0; axis < compact.axes.size(); ++axis) {
      std::vector<IndexTerm> terms = compact.axes[axis].terms;
      std::sort(terms.begin(), terms.end(), [](const IndexTerm& l, const IndexTerm& r) { return l.stride > r.stride; });
      Position merged;
      for (const IndexTerm& term : terms) {
        const auto here = static_cast<int>(copy.space.size());
        by[as_index(term.index)] = Position(here);
        merged.terms.push_back({here, term.stride});
        copy.space.push_back(op.space[as_index(term.index)]);
      }
      if (terms.empty()) {
        merged = Position(static_cast<int>(copy.space.size()));
        copy.space.push_back(compact.dims[axis]);
      }
      output.push_back(std::move(merged));
    }
    copy.reduced.resize(copy.space.size(), false);
    Access input{gradient.tensor, {}};
    for (const Position& axis : gradient.axes) input.axes.push_back(substituted(axis, by));
    if (output == in_order(copy.space.size()) && is_whole(graph_, copy, input)) return gradient.tensor;
    copy.inputs.push_back(std::move(input));
    return builder_.emit(std::move(copy), name_of_gradient(op, operand), tensor_of_gradient(operand),
                         graph_.tensor(operand.tensor).dtype, compact.dims, output);
  }

  TensorId embed(const Operator& op, const Access& operand, const std::vector<int>& kept, TensorId reduced) {
    Operator embed = BackwardBuilder::over(OperatorKind::embed_diagonal, graph_.tensor(operand.tensor).dims);
    std::map<int, int> first;  // the first axis that runs along an index
    Access input{reduced, std::vector<Position>(kept.size())};
    for (size_t axis = 0; axis < operand.axes.size(); ++axis) {
      const int index = operand.axes[axis].index();
      const int here = static_cast<int>(axis);
      embed.diagonal.push_back(index == kFixed ? here : first.try_emplace(index, here).first->second);
    }
    for (size_t k = 0; k < kept.size(); ++k) input.axes[k] = first.at(kept[k]);
    embed.inputs.push_back(std::move(input));
    const std::vector<Position> out = in_order(embed.space.size());
    return builder_.emit(std::move(embed), name_of_gradient(op, operand), tensor_of_gradient(operand),
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
      case OperatorKind::join:
        for (size_t input = 0; input < op.inputs.size(); ++input) {
          const Access& operand = op.inputs[input];
          if (!active_[operand.tensor.at()]) continue;
          const JoinPart part = join_part(builder_, op, input, g);
          contributions_[operand.tensor.at()].push_back(reduce_to(part.op, part.operand, part.g));
        }
        return;
      case OperatorKind::gather: gather_gradient(op, g); return;
      case OperatorKind::sum: contribute(op, 0, along_space(op, OperatorKind::copy, {g})); return;
      case OperatorKind::max:
      case OperatorKind::min:
        contribute(op, 0, along_space(op, OperatorKind::extremum_dx, {op.inputs[0], op.outputs[0], g}));
        return;
      case OperatorKind::maximum:
      case OperatorKind::minimum: larger_or_smaller_gradient(op, g); return;
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

  // The gradient of a maximum or minimum of two. If two tensors are equal, each gets half. If a tensor equals a number,
  // it gets nothing, as a ReLU's operand does.
  void larger_or_smaller_gradient(const Operator& op, const Access& g) {
    if (is_number(op.inputs[0]) || is_number(op.inputs[1])) {
      const size_t input = is_number(op.inputs[0]) ? 1 : 0;
      contribute(op, input,
                 along_space(op, OperatorKind::where, {is_result(op, input), g, builder_.constant(0)}, input));
      return;
    }
    const std::array<Access, 2> results = {is_result(op, 0), is_result(op, 1)};
    const Access half = along_space(op, OperatorKind::multiply, {g, builder_.constant(0.5)});
    for (const size_t input : {0U, 1U}) {
      if (!active_[op.inputs[input].tensor.at()]) continue;
      const Access share = along_space(op, OperatorKind::where, {results[input], g, half}, input);
      const std::vector<Access> choice = {results[1 - input], builder_.constant(0), share};
      contribute(op, input, along_space(op, OperatorKind::where, choice, input));
    }
  }

  bool is_number(const Access& input) const {
    const TensorRole role = graph_.tensor(input.tensor).role;
    return role == TensorRole::constant || role == TensorRole::scalar;
  }

  // Whether this operand of a maximum or minimum is its result, and the other one is not.
  Access is_result(const Operator& op, size_t input) {
    const size_t smaller = op.kind == OperatorKind::maximum ? 1 - input : input;
    return along_space(op, OperatorKind::less, {op.inputs[smaller], op.inputs[1 - smaller]}, input);
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
    const std::vector<Position>& axes = op.outputs[0].axes;  // a dropout of y[:, None] runs along more than y
    const bool same = reader.inputs[0].axes == axes && reader.outputs[0].axes == axes;
    return reader.kind == OperatorKind::dropout && same ? reader.outputs[0] : op.outputs[0];
  }

  // An operator over the forward operator's space whose output runs along all of it.
  Access along_space(const Operator& op, OperatorKind kind, std::vector<Access> inputs, size_t input = 0) {
    Operator result = BackwardBuilder::over(kind, op.space);
    if (info_of(kind).operator_class == OperatorClass::normalization) result.reduced = op.reduced;
    result.value = op.value;
    result.inputs = std::move(inputs);
    const bool compares = kind == OperatorKind::less;
    const DType dtype = compares ? DType::boolean : graph_.tensor(op.outputs[0].tensor).dtype;
    const std::vector<Position> axes = in_order(op.space.size());
    const Access& operand = op.inputs[input];
    const TensorId tensor =
        builder_.emit(std::move(result), name_of_gradient(op, operand), tensor_of_gradient(operand), dtype, axes);
    return {tensor, axes};
  }

  Access evaluate(const Formula& formula, const Operator& op, size_t input, const Access& g) {
    switch (formula.kind) {
      case Formula::Kind::number: return builder_.constant(formula.number);
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
  Contribution contraction_gradient(Operator op, size_t input, Access g) {
    transpose_windows(builder_, op, input, g, names_of_gradient(op, op.inputs[input]));
    const Access& operand = op.inputs[input];
    Operator gradient = BackwardBuilder::over(OperatorKind::contraction, op.space);
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
      if (runs_alone(op, input, g)) return broadcast_gradient(op, operand, std::move(gradient));
      const CompactTensor compact = compact_tensor(builder_, op, operand);
      const TensorId made =
          builder_.emit(std::move(gradient), name, tensor_of_gradient(operand), dtype, compact.dims, compact.axes);
      if (compact.whole) return {made, {}};
      return place(builder_, op, operand, made, names_of_gradient(op, operand));
    }
    gradient.kind = OperatorKind::multiply;
    const std::vector<Position> axes = in_order(op.space.size());
    TensorId tensor = builder_.emit(std::move(gradient), name, tensor_of_gradient(operand), dtype, axes);
    for (size_t k = 2; k < op.inputs.size(); ++k) {
      Operator scale = BackwardBuilder::over(OperatorKind::multiply, op.space);
      scale.inputs = {{tensor, axes}, op.inputs[k]};
      tensor = builder_.emit(std::move(scale), name, tensor_of_gradient(operand), dtype, axes);
    }
    return reduce_to(op, operand, {tensor, axes});
  }

  // Whether an operand of a contraction runs along an index that neither the other operand nor the output has.
  bool runs_alone(const Operator& op, size_t input, const Access& g) const {
    for (size_t index = 0; index < op.space.size(); ++index) {
      if (graph_.extent(op.space[index]) > 1 && !runs_along(op.inputs[1 - input], index) && !runs_along(g, index))
        return true;
    }
    return false;
  }

  // The gradient along such indices is constant: a contraction without them, then a broadcast.
  Contribution broadcast_gradient(const Operator& op, const Access& operand, Operator gradient) {
    Operator without = BackwardBuilder::over(OperatorKind::contraction, {});
    std::vector<Position> by(op.space.size());
    Access made{{}, {}};  // by the indices of `op`
    std::vector<Position> output;
    for (size_t index = 0; index < op.space.size(); ++index) {
      const bool has = runs_along(gradient.inputs[0], index) || runs_along(gradient.inputs[1], index);
      if (!has && graph_.extent(op.space[index]) > 1) continue;
      const Position here(static_cast<int>(without.space.size()));
      by[index] = here;
      without.space.push_back(op.space[index]);
      without.reduced.push_back(gradient.reduced[index]);
      if (gradient.reduced[index]) continue;
      output.push_back(here);
      made.axes.emplace_back(static_cast<int>(index));
    }
    for (const Access& input : gradient.inputs) {
      Access access{input.tensor, {}};
      for (const Position& axis : input.axes) access.axes.push_back(substituted(axis, by));
      without.inputs.push_back(std::move(access));
    }
    made.tensor = builder_.emit(std::move(without), name_of_gradient(op, operand), tensor_of_gradient(operand),
                                graph_.tensor(operand.tensor).dtype, output);
    const CompactTensor compact = compact_tensor(builder_, op, operand);
    const TensorId spread = rearrange(op, operand, made, compact);
    if (compact.whole) return {spread, {}};
    return place(builder_, op, operand, spread, names_of_gradient(op, operand));
  }

  // Sums g into the positions that the ids selected: an operator over the gather's space and the gathered axis.
  void gather_gradient(const Operator& op, const Access& g) {
    const Access& table = op.inputs[0];
    if (!active_[table.tensor.at()]) return;
    Operator wide = op;
    const auto selected = static_cast<int>(op.space.size());
    wide.space.push_back(graph_.tensor(table.tensor).dims[as_index(op.gathered)]);
    wide.inputs[0].axes[as_index(op.gathered)] = selected;
    Operator scatter = BackwardBuilder::over(OperatorKind::scatter_add, wide.space);
    scatter.gathered = selected;
    for (size_t index = 0; index < wide.space.size(); ++index)
      scatter.reduced[index] = !runs_along(wide.inputs[0], index);
    scatter.inputs = {g, op.inputs[1]};
    const CompactTensor compact = compact_tensor(builder_, wide, wide.inputs[0]);
    const TensorId made = builder_.emit(std::move(scatter), name_of_gradient(op, table), tensor_of_gradient(table),
                                        graph_.tensor(table.tensor).dtype, compact.dims, compact.axes);
    contributions_[table.tensor.at()].push_back(
        compact.whole ? Contribution{made, {}}
                      : place(builder_, wide, wide.inputs[0], made, names_of_gradient(op, table)));
  }

  // The gradients of the weights are sums over all indices that the weights lack.
  Operator weight_gradient(OperatorKind kind, const Operator& op, std::vector<Access> inputs, size_t outputs) {
    Operator result = BackwardBuilder::over(kind, op.space);
    for (size_t index = 0; index < op.space.size(); ++index) result.reduced[index] = !op.reduced[index];
    result.inputs = std::move(inputs);
    for (size_t k = 1; k <= outputs; ++k) {
      const Access& weight = op.inputs[k];
      const CompactTensor compact = compact_tensor(builder_, op, weight);
      const DType dtype = graph_.tensor(weight.tensor).dtype;
      result.outputs.push_back({builder_.add_tensor(tensor_of_gradient(weight), dtype, compact.dims), compact.axes});
    }
    return result;
  }

  void take_weight_gradients(const Operator& op, Operator gradients) {
    const std::vector<Access> made = gradients.outputs;
    builder_.append(std::move(gradients), concat(op.name, " dW"));
    for (size_t k = 0; k < made.size(); ++k) {
      const Access& weight = op.inputs[k + 1];
      const bool whole = compact_tensor(builder_, op, weight).whole;
      contributions_[weight.tensor.at()].push_back(
          whole ? Contribution{made[k].tensor, {}}
                : place(builder_, op, weight, made[k].tensor, names_of_gradient(op, weight)));
    }
  }

  void layernorm_gradient(const Operator& op, const Access& g) {
    const Access& x = op.inputs[0];
    const Access& mean = op.outputs[1];
    const Access& rstd = op.outputs[2];
    if (active_[op.inputs[1].tensor.at()] || active_[op.inputs[2].tensor.at()]) {
      Operator weights = weight_gradient(OperatorKind::layernorm_dw, op, {x, mean, rstd, g}, 2);
      take_weight_gradients(op, std::move(weights));
    }
    if (active_[x.tensor.at()])
      contribute(op, 0, along_space(op, OperatorKind::layernorm_dx, {x, op.inputs[1], mean, rstd, g}));
  }

  void rmsnorm_gradient(const Operator& op, const Access& g) {
    const Access& x = op.inputs[0];
    const Access& rstd = op.outputs[1];
    if (active_[op.inputs[1].tensor.at()]) {
      Operator weight = weight_gradient(OperatorKind::rmsnorm_dw, op, {x, rstd, g}, 1);
      take_weight_gradients(op, std::move(weight));
    }
    if (active_[x.tensor.at()])
      contribute(op, 0, along_space(op, OperatorKind::rmsnorm_dx, {x, op.inputs[1], rstd, g}));
  }

  TrainingGraph training_;
  Graph& graph_;
  BackwardBuilder builder_;
  size_t forward_operators_ = 0;
  std::vector<std::vector<OperatorId>> forward_readers_;
  std::vector<bool> active_;
  std::vector<std::vector<Contribution>> contributions_;  // in reverse forward order
  std::set<TensorId> given_away_;                         // gradients already assigned to an argument
};

}  // namespace

TrainingGraph differentiate(const Graph& graph) { return Differentiator(graph).run(); }

}  // namespace millrace
