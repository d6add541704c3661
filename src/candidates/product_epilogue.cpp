#include "candidates/product_epilogue.h"

#include <algorithm>

#include "candidates/product.h"

namespace millrace {
namespace {

bool refuse(std::string& reason, const char* why) {
  reason = why;
  return false;
}

constexpr const char* kGeluIsByTanh = "the library's GELU is the one by tanh";
constexpr const char* kTanhIsCoarse = "the library's tanh is as exact as half precision is, and no more";
constexpr const char* kOtherAxes = "the function runs along other axes than the product writes";

bool is_whole(const Operator& op, const Access& access) { return access.axes == in_order(op.space.size()); }

bool has(const std::vector<TensorId>& tensors, TensorId tensor) {
  return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
}

// The vector's axes along each index of the product, when axis `k` of the matrix runs with those in `beside[k]`.
std::vector<std::vector<int>> axes_beside(const Product& product, size_t operand,
                                          const std::vector<std::vector<int>>& beside) {
  std::vector<std::vector<int>> axes;
  for (const ProductIndex& index : product.indices) {
    axes.emplace_back();
    for (const int axis : index.axes[operand])
      axes.back().insert(axes.back().end(), beside[static_cast<size_t>(axis)].begin(),
                         beside[static_cast<size_t>(axis)].end());
  }
  return axes;
}

// The axes of an access that run along each index of the operator's space.
std::vector<std::vector<int>> axes_by_index(const Operator& op, const Access& access) {
  std::vector<std::vector<int>> axes(op.space.size());
  for (size_t axis = 0; axis < access.axes.size(); ++axis) {
    if (access.axes[axis] != kFixed) axes[static_cast<size_t>(access.axes[axis])].push_back(static_cast<int>(axis));
  }
  return axes;
}

// One more of the stacked vectors: it must be like the ones before it.
bool add_vector(const Graph& graph, TensorId tensor, std::vector<std::vector<int>> axes, ProductVector& vector,
                std::string& reason) {
  if (!vector.tensors.empty() && (!same_shape(graph, vector.tensors.front(), tensor) || vector.axes != axes))
    return refuse(reason, "their vectors are not of one shape");
  vector.tensors.push_back(tensor);
  vector.axes = std::move(axes);
  return true;
}

}  // namespace

bool take_biases(const Graph& graph, const std::vector<OperatorId>& additions, Product& product, std::string& reason) {
  ProductVector vector;
  for (size_t k = 0; k < additions.size(); ++k) {
    const Operator& add = graph.operators[additions[k].at()];
    const TensorId result = product.tensors[2][k];
    const size_t side = add.inputs[0].tensor == result ? 0 : 1;
    const Access& bias = add.inputs[1 - side];
    const std::vector<int> whole = in_order(add.space.size());
    if (add.inputs[side].tensor != result || bias.tensor == result || add.inputs[side].axes != whole ||
        add.outputs[0].axes != whole)
      return refuse(reason, "the bias is added along other axes than the product writes");
    if (has(product.tensors[0], bias.tensor) || has(product.tensors[1], bias.tensor))
      return refuse(reason, "the bias is one of the product's matrices");
    const DType dtype = graph.tensor(result).dtype;
    if (graph.tensor(bias.tensor).dtype != dtype || graph.tensor(add.outputs[0].tensor).dtype != dtype)
      return refuse(reason, "the bias is of another type");
    // Indices of the addition are axes of the result.
    if (!add_vector(graph, bias.tensor, axes_beside(product, 2, axes_by_index(add, bias)), vector, reason))
      return false;
    product.tensors[2][k] = add.outputs[0].tensor;
  }
  product.vector = std::move(vector);
  return true;
}

bool take_addition(const Graph& graph, TensorId added, TensorId sum, Product& product, std::string& reason) {
  if (!same_shape(graph, added, sum) || !same_shape(graph, product.tensors[2].front(), sum))
    return refuse(reason, "what is added is of another shape or type");
  if (has(product.tensors[0], added) || has(product.tensors[1], added))
    return refuse(reason, "what is added is one of the product's matrices");
  product.tensors[2] = {sum};
  product.added = added;
  return true;
}

bool take_activation(const Graph& graph, OperatorId function, const std::vector<TensorId>& needed, Product& product,
                     std::string& reason) {
  const Operator& op = graph.operators[function.at()];
  const TensorId result = product.tensors[2].front();
  if (op.kind == OperatorKind::add) return refuse(reason, "a product adds a bias or a whole tensor, and not both");
  if (op.kind == OperatorKind::gelu) return refuse(reason, kGeluIsByTanh);
  if (op.kind != OperatorKind::relu && op.kind != OperatorKind::gelu_tanh)
    return refuse(reason, "of functions only a ReLU and a GELU are left to the library");
  const bool gelu = op.kind == OperatorKind::gelu_tanh;
  if (gelu && !is_half(graph.tensor(result).dtype)) return refuse(reason, kTanhIsCoarse);
  if (op.inputs[0].tensor != result || !is_whole(op, op.inputs[0]) || !is_whole(op, op.outputs[0]))
    return refuse(reason, kOtherAxes);
  if (graph.tensor(op.outputs[0].tensor).dtype != graph.tensor(result).dtype)
    return refuse(reason, "what it makes is of another type");
  // A large product is checked against the sum of magnitudes, which the factor must leave positive.
  if (std::any_of(product.scales.begin(), product.scales.end(),
                  [&](TensorId scale) { return graph.tensor(scale).value < 0; }))
    return refuse(reason, "the product has a negative factor");
  product.tensors[2] = {op.outputs[0].tensor};
  product.activation = gelu ? Activation::gelu : Activation::relu;
  if (gelu && has(needed, result)) product.auxiliary = result;
  return true;
}

bool take_activation_gradient(const Graph& graph, OperatorId gradient, Product& product, std::string& reason) {
  const Operator& op = graph.operators[gradient.at()];
  const TensorId result = product.tensors[2].front();
  if (op.kind == OperatorKind::relu_dx)
    return refuse(reason, "the library's gradient of a ReLU takes longer than a kernel behind it (decisions/0005)");
  if (op.kind == OperatorKind::gelu_dx) return refuse(reason, kGeluIsByTanh);
  if (!is_half(graph.tensor(result).dtype)) return refuse(reason, kTanhIsCoarse);
  if (product.vector) return refuse(reason, "a bias is added in front of a gradient");
  const Access& auxiliary = op.inputs[0];
  if (op.inputs[1].tensor != result || !is_whole(op, op.inputs[1]) || !is_whole(op, op.outputs[0]) ||
      !is_whole(op, auxiliary))
    return refuse(reason, kOtherAxes);
  if (!same_shape(graph, auxiliary.tensor, result) || !same_shape(graph, op.outputs[0].tensor, result))
    return refuse(reason, "what the function was taken of is of another shape or type");
  if (auxiliary.tensor == result || has(product.tensors[0], auxiliary.tensor) ||
      has(product.tensors[1], auxiliary.tensor))
    return refuse(reason, "what the function was taken of is one of the product's matrices");
  product.tensors[2] = {op.outputs[0].tensor};
  product.activation = Activation::gelu_gradient;
  product.auxiliary = auxiliary.tensor;
  return true;
}

bool take_bias_gradients(const Graph& graph, const std::vector<OperatorId>& sums, Product& product,
                         std::string& reason) {
  if (!product.scales.empty()) return refuse(reason, "the product has a factor, and the sum has none");
  const TensorId first = graph.operators[sums.front().at()].inputs[0].tensor;
  const size_t operand = has(product.tensors[0], first) ? 0 : 1;
  if (has(product.tensors[1 - operand], first)) return refuse(reason, "both matrices are the one that is summed");
  if (product.tensors[operand].size() != sums.size()) return refuse(reason, "what is summed is not what is stacked");
  ProductVector vector;
  vector.role = operand == 0 ? ProductVector::Role::gradient_of_a : ProductVector::Role::gradient_of_b;
  for (size_t k = 0; k < sums.size(); ++k) {
    const Operator& sum = graph.operators[sums[k].at()];
    const Access& matrix = sum.inputs[0];
    if (matrix.tensor != product.tensors[operand][k]) return refuse(reason, "what is summed is not what is stacked");
    if (graph.tensor(sum.outputs[0].tensor).dtype != graph.tensor(matrix.tensor).dtype)
      return refuse(reason, "the gradient is of another type");
    for (size_t index = 0; index < sum.space.size(); ++index) {
      if (graph.extent(sum.space[index]) > 1 && !runs_along(matrix, index))
        return refuse(reason, "it sums over other indices than the product");
    }
    // Each axis of the matrix, and the axes of the sum beside it.
    const std::vector<std::vector<int>> kept = axes_by_index(sum, sum.outputs[0]);
    std::vector<std::vector<int>> beside(matrix.axes.size());
    for (size_t axis = 0; axis < matrix.axes.size(); ++axis) {
      const int index = matrix.axes[axis];
      if (index == kFixed) continue;
      if (std::count(matrix.axes.begin(), matrix.axes.end(), index) != 1)
        return refuse(reason, "a diagonal is summed, and not the matrix");
      beside[axis] = kept[static_cast<size_t>(index)];
    }
    for (const ProductIndex& index : product.indices) {
      const std::vector<int>& along = index.axes[operand];
      if (along.size() > 1) return refuse(reason, "a diagonal is multiplied, and not the matrix");
      if (!along.empty() && beside[static_cast<size_t>(along.front())].empty() != index.reduced)
        return refuse(reason, "it sums over other indices than the product");
    }
    if (!add_vector(graph, sum.outputs[0].tensor, axes_beside(product, operand, beside), vector, reason)) return false;
  }
  product.vector = std::move(vector);
  return true;
}

}  // namespace millrace
