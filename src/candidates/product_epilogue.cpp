#include "candidates/product_epilogue.h"

#include <algorithm>

#include "candidates/product.h"

namespace millrace {
namespace {

constexpr const char* kGeluIsByTanh = "the library's GELU is the tanh approximation";
constexpr const char* kTanhIsCoarse = "the library's GELU is exact only to half precision";
constexpr const char* kOtherAxes = "the function runs along other axes than the product writes";

bool has(const std::vector<TensorId>& tensors, TensorId tensor) {
  return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
}

// The vector's axes along each index of the product. `matching[k]`: the vector's axes that correspond to axis k of the
// matrix.
std::vector<std::vector<ProductAxis>> vector_axes(const Product& product, size_t operand,
                                                  const std::vector<std::vector<ProductAxis>>& matching) {
  std::vector<std::vector<ProductAxis>> axes;
  for (const ProductIndex& index : product.indices) {
    axes.emplace_back();
    for (const ProductAxis& along : index.axes[operand]) {
      for (const ProductAxis& matched : matching[as_index(along.axis)])
        axes.back().push_back({matched.axis, matched.stride * along.stride});
    }
  }
  return axes;
}

// The axes of an access that run along each index of the operator's space.
std::vector<std::vector<ProductAxis>> axes_by_index(const Operator& op, const Access& access) {
  std::vector<std::vector<ProductAxis>> axes(op.space.size());
  for (size_t axis = 0; axis < access.axes.size(); ++axis) {
    for (const IndexTerm& term : access.axes[axis].terms)
      axes[as_index(term.index)].push_back({static_cast<int>(axis), term.stride});
  }
  return axes;
}

// Whether an access reads or writes each element of the tensor exactly once, with broadcasts.
bool touches_all(const Graph& graph, const Operator& op, const Access& access) {
  return words_touched(graph, op, access) == words_of(graph, access.tensor);
}

// What a library applies for an operator; nothing if none does.
std::optional<Activation> activation_of(OperatorKind kind) {
  switch (kind) {
    case OperatorKind::relu: return Activation::relu;
    case OperatorKind::gelu: return Activation::exact_gelu;
    case OperatorKind::gelu_tanh: return Activation::gelu;
    default: return std::nullopt;
  }
}

// Adds one of the stacked vectors, which must be like the others.
std::optional<Rejection> add_vector(const Graph& graph, TensorId tensor, std::vector<std::vector<ProductAxis>> axes,
                                    ProductVector& vector) {
  if (!vector.tensors.empty() && (!same_shape(graph, vector.tensors.front(), tensor) || vector.axes != axes))
    return Rejection{"their vectors have different shapes"};
  vector.tensors.push_back(tensor);
  vector.axes = std::move(axes);
  return std::nullopt;
}

}  // namespace

std::optional<Rejection> take_biases(const Graph& graph, const std::vector<OperatorId>& additions, Product& product) {
  ProductVector vector;
  for (size_t k = 0; k < additions.size(); ++k) {
    const Operator& add = graph.operators[additions[k].at()];
    const TensorId result = product.tensors[2][k];
    const size_t side = add.inputs[0].tensor == result ? 0 : 1;
    const Access& bias = add.inputs[1 - side];
    if (add.inputs[side].tensor != result || bias.tensor == result || !is_whole(graph, add, add.inputs[side]) ||
        !is_whole(graph, add, add.outputs[0]) || !touches_all(graph, add, bias))
      return Rejection{"the bias is added along other axes than the product writes"};
    if (has(product.tensors[0], bias.tensor) || has(product.tensors[1], bias.tensor))
      return Rejection{"the bias is one of the product's matrices"};
    const DType dtype = graph.tensor(result).dtype;
    if (graph.tensor(bias.tensor).dtype != dtype || graph.tensor(add.outputs[0].tensor).dtype != dtype)
      return Rejection{"the bias has another type"};
    // Indices of the addition are axes of the result.
    if (auto rejection = add_vector(graph, bias.tensor, vector_axes(product, 2, axes_by_index(add, bias)), vector))
      return rejection;
    product.tensors[2][k] = add.outputs[0].tensor;
  }
  product.vector = std::move(vector);
  return std::nullopt;
}

std::optional<Rejection> take_addition(const Graph& graph, TensorId added, TensorId sum, Product& product) {
  if (!same_shape(graph, added, sum) || !same_shape(graph, product.tensors[2].front(), sum))
    return Rejection{"the added tensor has another shape or type"};
  if (has(product.tensors[0], added) || has(product.tensors[1], added))
    return Rejection{"the added tensor is one of the product's matrices"};
  product.tensors[2] = {sum};
  product.added = added;
  return std::nullopt;
}

std::optional<Rejection> take_activation(const Graph& graph, OperatorId function, const std::vector<TensorId>& needed,
                                         const GemmEpilogues& able, Product& product) {
  const Operator& op = graph.operators[function.at()];
  const TensorId result = product.tensors[2].front();
  if (op.kind == OperatorKind::add) return Rejection{"a product adds a bias or a whole tensor, not both"};
  if (op.kind == OperatorKind::gelu && !able.exact_gelu) return Rejection{kGeluIsByTanh};
  const std::optional<Activation> activation = activation_of(op.kind);
  if (!activation) return Rejection{"the library applies no function but ReLU and GELU"};
  if (activation != Activation::relu && !is_half(graph.tensor(result).dtype)) return Rejection{kTanhIsCoarse};
  if (op.inputs[0].tensor != result || !is_whole(graph, op, op.inputs[0]) || !is_whole(graph, op, op.outputs[0]))
    return Rejection{kOtherAxes};
  if (graph.tensor(op.outputs[0].tensor).dtype != graph.tensor(result).dtype)
    return Rejection{"the function's result has another type"};
  // A large product is checked against the sum of magnitudes, which a negative scale would make negative.
  if (std::any_of(product.scales.begin(), product.scales.end(),
                  [&](TensorId scale) { return graph.tensor(scale).value < 0; }))
    return Rejection{"the product has a negative scale"};
  product.tensors[2] = {op.outputs[0].tensor};
  product.activation = *activation;
  if (activation == Activation::gelu && able.gradients && has(needed, result)) product.auxiliary = result;
  return std::nullopt;
}

std::optional<Rejection> take_activation_gradient(const Graph& graph, OperatorId gradient, const GemmEpilogues& able,
                                                  Product& product) {
  if (!able.gradients) return Rejection{"the library computes no gradient of a function"};
  const Operator& op = graph.operators[gradient.at()];
  const TensorId result = product.tensors[2].front();
  if (op.kind == OperatorKind::relu_dx)
    return Rejection{"the library's gradient of a ReLU takes longer than a separate kernel (decisions/0005)"};
  if (op.kind == OperatorKind::gelu_dx) return Rejection{kGeluIsByTanh};
  if (!is_half(graph.tensor(result).dtype)) return Rejection{kTanhIsCoarse};
  if (product.vector) return Rejection{"a bias is added before the gradient"};
  const Access& auxiliary = op.inputs[0];
  if (op.inputs[1].tensor != result || !is_whole(graph, op, op.inputs[1]) || !is_whole(graph, op, op.outputs[0]) ||
      !is_whole(graph, op, auxiliary))
    return Rejection{kOtherAxes};
  if (!same_shape(graph, auxiliary.tensor, result) || !same_shape(graph, op.outputs[0].tensor, result))
    return Rejection{"the function's input has another shape or type"};
  if (auxiliary.tensor == result || has(product.tensors[0], auxiliary.tensor) ||
      has(product.tensors[1], auxiliary.tensor))
    return Rejection{"the function's input is one of the product's matrices"};
  product.tensors[2] = {op.outputs[0].tensor};
  product.activation = Activation::gelu_gradient;
  product.auxiliary = auxiliary.tensor;
  return std::nullopt;
}

std::optional<Rejection> take_bias_gradients(const Graph& graph, const std::vector<OperatorId>& sums,
                                             const GemmEpilogues& able, Product& product) {
  if (!able.gradients) return Rejection{"the library computes no gradient of a bias"};
  if (!product.scales.empty()) return Rejection{"the product has a scale, and the sum has none"};
  const TensorId first = graph.operators[sums.front().at()].inputs[0].tensor;
  const size_t operand = has(product.tensors[0], first) ? 0 : 1;
  if (has(product.tensors[1 - operand], first)) return Rejection{"both matrices are the summed one"};
  if (product.tensors[operand].size() != sums.size()) return Rejection{"the summed tensors are not the stacked ones"};
  ProductVector vector;
  vector.role = operand == 0 ? ProductVector::Role::gradient_of_a : ProductVector::Role::gradient_of_b;
  for (size_t k = 0; k < sums.size(); ++k) {
    const Operator& sum = graph.operators[sums[k].at()];
    const Access& matrix = sum.inputs[0];
    if (matrix.tensor != product.tensors[operand][k]) return Rejection{"the summed tensors are not the stacked ones"};
    if (graph.tensor(sum.outputs[0].tensor).dtype != graph.tensor(matrix.tensor).dtype)
      return Rejection{"the gradient has another type"};
    for (size_t index = 0; index < sum.space.size(); ++index) {
      if (graph.extent(sum.space[index]) > 1 && !runs_along(matrix, index))
        return Rejection{"it sums over other indices than the product"};
    }
    if (!is_plain(graph, sum, matrix)) return Rejection{"it sums a part of the matrix, or an axis as several indices"};
    // For each axis of the matrix, the corresponding axes of the sum.
    const std::vector<std::vector<ProductAxis>> kept = axes_by_index(sum, sum.outputs[0]);
    std::vector<std::vector<ProductAxis>> matching(matrix.axes.size());
    for (size_t axis = 0; axis < matrix.axes.size(); ++axis) {
      const int index = matrix.axes[axis].index();
      if (index == kFixed) continue;
      if (std::count(matrix.axes.begin(), matrix.axes.end(), Position(index)) != 1)
        return Rejection{"a diagonal is summed, not the matrix"};
      matching[axis] = kept[as_index(index)];
    }
    for (const ProductIndex& index : product.indices) {
      const std::vector<ProductAxis>& along = index.axes[operand];
      if (along.size() > 1) return Rejection{"a diagonal is multiplied, not the matrix"};
      if (!along.empty() && matching[as_index(along.front().axis)].empty() != index.reduced)
        return Rejection{"it sums over other indices than the product"};
    }
    if (auto rejection = add_vector(graph, sum.outputs[0].tensor, vector_axes(product, operand, matching), vector))
      return rejection;
  }
  product.vector = std::move(vector);
  return std::nullopt;
}

}  // namespace millrace
