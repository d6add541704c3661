#include "reference/interpreter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/checked.h"
#include "base/stored_type.h"
#include "base/text.h"
#include "reference/activations.h"
#include "reference/bounded.h"
#include "reference/contraction.h"
#include "reference/dual.h"
#include "reference/normalizations.h"
#include "reference/operands.h"
#include "reference/philox.h"
#include "reference/scalar.h"

namespace millrace {
namespace {

constexpr int64_t kLargestTotal = int64_t{1} << 30;  // elements: 8 GiB of doubles

std::optional<int64_t> checked_total_elements(const Graph& graph) {
  int64_t total = 0;
  for (const Tensor& tensor : graph.tensors) {
    int64_t elements = 1;
    for (const DimId dim : tensor.dims) {
      const std::optional<int64_t> product = checked_multiply(elements, graph.extent(dim));
      if (!product) return std::nullopt;
      elements = *product;
    }
    const std::optional<int64_t> sum = checked_add(total, elements);
    if (!sum) return std::nullopt;
    total = *sum;
  }
  return total;
}

// In floating point, because the product may not fit into an integer.
double gibibytes_of_doubles(const Graph& graph) {
  double total = 0;
  for (const Tensor& tensor : graph.tensors) {
    double elements = 1;
    for (const DimId dim : tensor.dims) elements *= static_cast<double>(graph.extent(dim));
    total += elements;
  }
  return total * 0x1p-27;
}

template <class Scalar>
Result<Done> prepare(const Graph& graph, Values<Scalar>& values) {
  if (Result<Done> fits = check_memory(graph); !fits) return fits;
  values.resize(graph.tensors.size());
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    const Tensor& tensor = graph.tensors[k];
    const auto elements = static_cast<size_t>(elements_of(graph, TensorId(k)));
    switch (tensor.role) {
      case TensorRole::constant: values[k].assign(elements, Scalar(tensor.value)); break;
      case TensorRole::computed: values[k].assign(elements, Scalar(0)); break;
      case TensorRole::argument:
      case TensorRole::scalar:
      case TensorRole::result_gradient:
        if (values[k].size() != elements) {
          return Error::make(ErrorKind::bad_input, concat("tensor '", tensor.name, "' has ", values[k].size(),
                                                          " elements, but needs ", elements));
        }
    }
  }
  return Done{};
}

template <class Scalar>
class Interpreter {
 public:
  Interpreter(const Graph& graph, Values<Scalar>& values, const RandomState& random)
      : graph_(graph), values_(values), random_(random) {}

  void run(const Operator& op) const {
    using S = const Scalar&;
    using std::abs, std::exp, std::log, std::pow, std::sqrt, std::tanh;
    using std::cos, std::erf, std::expm1, std::log1p, std::sin;
    const Scalar zero(0);
    const Scalar minus_infinity(-std::numeric_limits<double>::infinity());
    const Scalar one(1);
    switch (op.kind) {
      case OperatorKind::add: return map(op, [](S a, S b) -> Scalar { return a + b; });
      case OperatorKind::subtract: return map(op, [](S a, S b) -> Scalar { return a - b; });
      case OperatorKind::multiply: return map(op, [](S a, S b) -> Scalar { return a * b; });
      case OperatorKind::divide: return map(op, [](S a, S b) -> Scalar { return a / b; });
      case OperatorKind::negate: return map(op, [](S a) -> Scalar { return -a; });
      case OperatorKind::absolute: return map(op, [](S a) -> Scalar { return abs(a); });
      case OperatorKind::exp: return map(op, [](S a) -> Scalar { return exp(a); });
      case OperatorKind::log: return map(op, [](S a) -> Scalar { return log(a); });
      case OperatorKind::sqrt: return map(op, [](S a) -> Scalar { return sqrt(a); });
      case OperatorKind::tanh: return map(op, [](S a) -> Scalar { return tanh(a); });
      case OperatorKind::sin: return map(op, [](S a) -> Scalar { return sin(a); });
      case OperatorKind::cos: return map(op, [](S a) -> Scalar { return cos(a); });
      case OperatorKind::log1p: return map(op, [](S a) -> Scalar { return log1p(a); });
      case OperatorKind::expm1: return map(op, [](S a) -> Scalar { return expm1(a); });
      case OperatorKind::erf: return map(op, [](S a) -> Scalar { return erf(a); });
      case OperatorKind::sign: return map(op, [](S a) -> Scalar { return sign(a); });
      case OperatorKind::power: return map(op, [&](S a) -> Scalar { return pow(a, op.value); });
      case OperatorKind::maximum: return maximum(op);
      case OperatorKind::minimum: return minimum(op);
      case OperatorKind::less:
        return map(op, [](S a, S b) -> Scalar { return decided(value_of(a) < value_of(b), a, b); });
      case OperatorKind::less_equal:
        return map(op, [](S a, S b) -> Scalar { return decided(value_of(a) <= value_of(b), a, b); });
      case OperatorKind::equal:
        return map(op, [](S a, S b) -> Scalar { return decided(value_of(a) == value_of(b), a, b); });
      case OperatorKind::not_equal:
        return map(op, [](S a, S b) -> Scalar { return decided(value_of(a) != value_of(b), a, b); });
      case OperatorKind::logical_and: return map(op, [](S a, S b) -> Scalar { return smaller(a, b); });
      case OperatorKind::logical_or: return map(op, [](S a, S b) -> Scalar { return larger(a, b); });
      case OperatorKind::logical_not: return map(op, [&](S a) -> Scalar { return decided(value_of(a) == 0, a, zero); });
      case OperatorKind::where: return map(op, [](S a, S b, S c) -> Scalar { return value_of(a) != 0 ? b : c; });
      case OperatorKind::relu: return map(op, [&](S a) -> Scalar { return larger(zero, a); });
      case OperatorKind::gelu: return map(op, [](S a) -> Scalar { return a * normal_cdf(a); });
      case OperatorKind::gelu_tanh: return map(op, [](S a) -> Scalar { return gelu_tanh(a); });
      case OperatorKind::silu: return map(op, [&](S a) -> Scalar { return a / (one + exp(-a)); });
      case OperatorKind::sigmoid: return map(op, [](S a) -> Scalar { return sigmoid(a); });
      case OperatorKind::softplus: return map(op, [](S a) -> Scalar { return softplus(a); });
      case OperatorKind::dropout: return dropout(op);
      case OperatorKind::causal_mask:
        return map_by_element(op, [minus_infinity, masked = Masked(graph_, op)](S a, int64_t element) {
          return masked(element) ? minus_infinity : a;
        });
      case OperatorKind::copy: return map(op, [](S a) -> Scalar { return a; });
      case OperatorKind::join: return join(op);
      case OperatorKind::index: return positions(op);
      case OperatorKind::gather: return gather(op);
      case OperatorKind::embed_diagonal:
        return map_by_element(op, [&](S a, int64_t element) { return is_on_diagonal(op, element) ? a : zero; });
      case OperatorKind::tanh_dx: return map(op, [&](S y, S g) -> Scalar { return g * (one - y * y); });
      case OperatorKind::erf_dx: return map(op, [](S a, S g) -> Scalar { return erf_dx(a, g); });
      case OperatorKind::sigmoid_dx: return map(op, [&](S y, S g) -> Scalar { return g * (y * (one - y)); });
      case OperatorKind::power_dx:
        return map(op, [&](S a, S g) -> Scalar { return g * Scalar(op.value) * pow(a, op.value - 1); });
      case OperatorKind::relu_dx: return map(op, [&](S y, S g) -> Scalar { return value_of(y) > 0 ? g : zero; });
      case OperatorKind::gelu_dx: return map(op, [](S a, S g) -> Scalar { return gelu_dx(a, g); });
      case OperatorKind::gelu_tanh_dx: return map(op, [](S a, S g) -> Scalar { return gelu_tanh_dx(a, g); });
      case OperatorKind::silu_dx: return map(op, [](S a, S g) -> Scalar { return silu_dx(a, g); });
      case OperatorKind::dropout_dx: return map(op, [](S m, S g) -> Scalar { return m * g; });
      case OperatorKind::causal_mask_dx:
        return map_by_element(
            op, [&zero, masked = Masked(graph_, op)](S g, int64_t element) { return masked(element) ? zero : g; });
      case OperatorKind::sum: return sum(operands<1, 1>(op));
      case OperatorKind::max: return max(operands<1, 1>(op));
      case OperatorKind::min: return min(operands<1, 1>(op));
      case OperatorKind::scatter_add: return scatter_add(op);
      case OperatorKind::extremum_dx: return extremum_dx(operands<3, 1>(op));
      case OperatorKind::softmax: return softmax(operands<1, 1>(op));
      case OperatorKind::softmax_dx: return softmax_dx(operands<2, 1>(op));
      case OperatorKind::log_sum_exp: return log_sum_exp(operands<1, 1>(op));
      case OperatorKind::layernorm: return layernorm(operands<3, 3>(op), op.value);
      case OperatorKind::layernorm_dx: return layernorm_dx(operands<5, 1>(op));
      case OperatorKind::layernorm_dw: return layernorm_dw(operands<4, 2>(op));
      case OperatorKind::rmsnorm: return rmsnorm(operands<2, 2>(op), op.value);
      case OperatorKind::rmsnorm_dx: return rmsnorm_dx(operands<4, 1>(op));
      case OperatorKind::rmsnorm_dw: return rmsnorm_dw(operands<3, 1>(op));
      case OperatorKind::contraction: return contraction(op);
    }
  }

 private:
  template <size_t kInputs, size_t kOutputs>
  Operands<Scalar, kInputs, kOutputs> operands(const Operator& op) const {
    return {graph_, op, values_};
  }

  // y = formula(a), formula(a, b) or formula(a, b, c) at each point.
  template <class Formula>
  void map(const Operator& op, const Formula& formula) const {
    if constexpr (std::is_invocable_v<Formula, Scalar>) {
      const auto o = operands<1, 1>(op);
      o.for_each_row([&](const auto& at) { o.out(0, at) = formula(o.in(0, at)); });
    } else if constexpr (std::is_invocable_v<Formula, Scalar, Scalar>) {
      const auto o = operands<2, 1>(op);
      o.for_each_row([&](const auto& at) { o.out(0, at) = formula(o.in(0, at), o.in(1, at)); });
    } else {
      const auto o = operands<3, 1>(op);
      o.for_each_row([&](const auto& at) { o.out(0, at) = formula(o.in(0, at), o.in(1, at), o.in(2, at)); });
    }
  }

  // If two variables are equal, each gets half of the derivative. If a variable equals a number, the derivative is that
  // of the number, zero: larger and smaller return the first of equal values.
  void maximum(const Operator& op) const {
    using S = const Scalar&;
    if (is_number(op, 0)) return map(op, [](S a, S b) -> Scalar { return larger(a, b); });
    if (is_number(op, 1)) return map(op, [](S a, S b) -> Scalar { return larger(b, a); });
    map(op, [](S a, S b) -> Scalar { return shared_larger(a, b); });
  }

  void minimum(const Operator& op) const {
    using S = const Scalar&;
    if (is_number(op, 0)) return map(op, [](S a, S b) -> Scalar { return smaller(a, b); });
    if (is_number(op, 1)) return map(op, [](S a, S b) -> Scalar { return smaller(b, a); });
    map(op, [](S a, S b) -> Scalar { return shared_smaller(a, b); });
  }

  bool is_number(const Operator& op, size_t input) const {
    const TensorRole role = graph_.tensor(op.inputs[input].tensor).role;
    return role == TensorRole::constant || role == TensorRole::scalar;
  }

  // y = formula(a, element), with the row-major number of the output's element.
  template <class Formula>
  void map_by_element(const Operator& op, const Formula& formula) const {
    const auto o = operands<1, 1>(op);
    o.for_each_row([&](const auto& at) { o.out(0, at) = formula(o.in(0, at), o.out_element(at)); });
  }

  // The position that an id selects on an axis of this extent.
  static int64_t selected(const Scalar& id, int64_t extent) {
    const double value = value_of(id);
    return value > 0 ? static_cast<int64_t>(std::min(value, static_cast<double>(extent - 1))) : 0;
  }

  void gather(const Operator& op) const {
    const auto o = operands<2, 1>(op);
    const std::vector<DimId>& dims = graph_.tensor(op.inputs[0].tensor).dims;
    const int64_t extent = graph_.extent(dims[as_index(op.gathered)]);
    int64_t stride = 1;
    for (size_t axis = dims.size(); axis-- > as_index(op.gathered) + 1;) stride *= graph_.extent(dims[axis]);
    o.for_each_row([&](const auto& at) {
      auto moved = at;
      moved[0] += stride * selected(o.in(1, at), extent);
      o.out(0, at) = o.in(0, moved);
    });
  }

  // Adds each element of g to where its id points: a loop over all indices but `gathered`.
  void scatter_add(const Operator& op) const {
    const int64_t extent = graph_.extent(op.space[as_index(op.gathered)]);
    const int64_t stride = stride_along(graph_, op.outputs[0], as_index(op.gathered));
    std::vector<Loop<3>> loops;
    for (size_t index = 0; index < op.space.size(); ++index) {
      if (index == as_index(op.gathered)) continue;
      loops.push_back({graph_.extent(op.space[index]),
                       {stride_along(graph_, op.inputs[0], index), stride_along(graph_, op.inputs[1], index),
                        stride_along(graph_, op.outputs[0], index)}});
    }
    const std::vector<Scalar>& g = values_[op.inputs[0].tensor.at()];
    const std::vector<Scalar>& ids = values_[op.inputs[1].tensor.at()];
    std::vector<Scalar>& y = values_[op.outputs[0].tensor.at()];
    std::fill(y.begin(), y.end(), Scalar(0));
    const Offsets<3> first = {first_element(graph_, op.inputs[0]), first_element(graph_, op.inputs[1]), 0};
    const auto add = [&](const Offsets<3>& at) {
      const int64_t position = selected(ids[static_cast<size_t>(at[1])], extent);
      Scalar& sum = y[static_cast<size_t>(at[2] + stride * position)];
      sum = sum + g[static_cast<size_t>(at[0])];
    };
    // Slices of an index of the output write different elements.
    share_loops<3>(
        loops, first, points_of<3>(loops), [](const Loop<3>& loop) { return loop.strides[2] != 0; },
        [&](LoopNest<3> nest, const Offsets<3>& begin) { for_each_point<3>(nest, begin, add); });
  }

  // The output of an index operator runs along one index.
  void positions(const Operator& op) const {
    const auto o = operands<0, 1>(op);
    o.for_each_row([&](const auto& at) { o.out(0, at) = Scalar(static_cast<double>(o.out_element(at))); });
  }

  // Whether a key comes after the query: the last index is the key, the one before it the query.
  class Masked {
   public:
    Masked(const Graph& graph, const Operator& op)
        : queries_(graph.extent(op.space[op.space.size() - 2])), keys_(graph.extent(op.space.back())) {}
    bool operator()(int64_t element) const { return element % keys_ > element / keys_ % queries_; }

   private:
    int64_t queries_;
    int64_t keys_;
  };

  // The indices of an output's element: the output of an elementwise operator runs along all indices in order.
  std::vector<int64_t> point_of(const Operator& op, int64_t element) const {
    std::vector<int64_t> point(op.space.size());
    for (size_t k = point.size(); k-- > 0;) {
      point[k] = element % graph_.extent(op.space[k]);
      element /= graph_.extent(op.space[k]);
    }
    return point;
  }

  bool is_on_diagonal(const Operator& op, int64_t element) const {
    const std::vector<int64_t> point = point_of(op, element);
    for (size_t k = 0; k < point.size(); ++k) {
      if (point[k] != point[as_index(op.diagonal[k])]) return false;
    }
    return true;
  }

  // `value`, and then each input in its region.
  void join(const Operator& op) const {
    std::vector<Scalar>& to = values_[op.outputs[0].tensor.at()];
    std::fill(to.begin(), to.end(), Scalar(op.value));
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      const std::vector<Scalar>& from = values_[op.inputs[k].tensor.at()];
      Offsets<2> first = {first_element(graph_, op.inputs[k]), 0};
      std::vector<Loop<2>> loops;
      for (size_t index = 0; index < op.space.size(); ++index) {
        const Range& range = op.regions[k][index];
        loops.push_back(
            {range.length(), {stride_along(graph_, op.inputs[k], index), stride_along(graph_, op.outputs[0], index)}});
        for (size_t side = 0; side < first.size(); ++side) first[side] += range.first * loops.back().strides[side];
      }
      const auto copy = [&](const Offsets<2>& at) {
        to[static_cast<size_t>(at[1])] = from[static_cast<size_t>(at[0])];
      };
      share_loops<2>(
          loops, first, points_of<2>(loops), [](const Loop<2>&) { return true; },
          [&](LoopNest<2> nest, const Offsets<2>& begin) { for_each_point<2>(nest, begin, copy); });
    }
  }

  void dropout(const Operator& op) const {
    const auto o = operands<1, 2>(op);
    const Scalar scale = Scalar(1) / (Scalar(1) - Scalar(op.value));
    o.for_each_row([&](const auto& at) {
      const auto element = static_cast<uint64_t>(o.out_element(at));
      const Scalar mask =
          dropout_keeps(random_.seed, random_.step, op.subsequence, element, op.value) ? scale : Scalar(0);
      o.out(0, at) = o.in(0, at) * mask;
      o.out(1, at) = mask;
    });
  }

  void contraction(const Operator& op) const {
    const auto o = operands<2, 1>(op);
    const bool blocked = multiply_in_blocks(op);
    o.for_each_row([&](const auto& row) {
      Scalar y =
          blocked ? o.out(0, row) : o.sum(row, [&](const auto& at) -> Scalar { return o.in(0, at) * o.in(1, at); });
      for (size_t k = 2; k < op.inputs.size(); ++k) y = y * values_[op.inputs[k].tensor.at()].front();
      o.out(0, row) = y;
    });
  }

  // Writes the sums of a large contraction. Returns false if they are left to loops.
  bool multiply_in_blocks(const Operator& op) const {
    if constexpr (requires { ProductPlanes<Scalar>::kPlanes; }) {
      if (!is_large_product(graph_, op)) return false;
      const BlockedContraction<Scalar> product(graph_, op, values_);
      if (!product.is_moderate()) return false;
      product.run();
      return true;
    }
    return false;
  }

  const Graph& graph_;
  Values<Scalar>& values_;
  const RandomState& random_;
};

}  // namespace

Result<Done> check_memory(const Graph& graph) {
  const std::optional<int64_t> total = checked_total_elements(graph);
  if (total && *total <= kLargestTotal) return Done{};
  return Error::make(ErrorKind::bad_input,
                     concat("the reference interpreter would need ", fixed(gibibytes_of_doubles(graph), 1),
                            " GiB for the tensors of '", graph.name, "' and takes at most 8"),
                     "choose smaller sizes with --size");
}

double reference_seconds(const Graph& graph) {
  constexpr double kPointsPerSecond = 2e8;
  constexpr double kBlockedPointsPerSecond = 4e9;
  double seconds = 0;
  for (const Operator& op : graph.operators) {
    const auto points = static_cast<double>(points_of(graph, op));
    const bool blocked = op.kind == OperatorKind::contraction && is_large_product(graph, op);
    const bool scatters = op.kind == OperatorKind::scatter_add;
    const double visited =
        scatters ? points / static_cast<double>(graph.extent(op.space[as_index(op.gathered)])) : points;
    seconds += visited / (blocked ? kBlockedPointsPerSecond : kPointsPerSecond);
  }
  return seconds;
}

template <class Scalar>
Result<Done> interpret(const Graph& graph, Values<Scalar>& values, const RandomState& random) {
  Result<Done> prepared = prepare(graph, values);
  if (!prepared) return prepared;
  const Interpreter<Scalar> interpreter(graph, values, random);
  for (const Operator& op : graph.operators) interpreter.run(op);
  return Done{};
}

double rounded_to(DType dtype, double value) {
  if (!is_floating(dtype) || dtype == DType::float64) return value;
  if (dtype == DType::float32) return static_cast<float>(value);
  return decode(encode(value, stored_type(dtype)), stored_type(dtype));
}

Result<Done> interpret_rounded(const Graph& graph, Values<double>& values, const RandomState& random) {
  Result<Done> prepared = prepare(graph, values);
  if (!prepared) return prepared;
  const Interpreter<double> interpreter(graph, values, random);
  for (const Operator& op : graph.operators) {
    interpreter.run(op);
    for (const Access& output : op.outputs) {
      for (double& value : values[output.tensor.at()]) value = rounded_to(graph.tensor(output.tensor).dtype, value);
    }
  }
  return Done{};
}

template Result<Done> interpret(const Graph&, Values<double>&, const RandomState&);
template Result<Done> interpret(const Graph&, Values<Bounded<53>>&, const RandomState&);
template Result<Done> interpret(const Graph&, Values<Bounded<24>>&, const RandomState&);
template Result<Done> interpret(const Graph&, Values<Dual<Bounded<53>>>&, const RandomState&);

}  // namespace millrace
