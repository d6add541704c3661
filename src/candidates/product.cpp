#include "candidates/product.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {
namespace {

std::vector<ProductAxis> axes_along(const Access& access, size_t index) {
  std::vector<ProductAxis> axes;
  for (size_t axis = 0; axis < access.axes.size(); ++axis) {
    const int64_t stride = access.axes[axis].stride_along(static_cast<int>(index));
    if (stride != 0) axes.push_back({static_cast<int>(axis), stride});
  }
  return axes;
}

// The position of an access where all indices are zero; empty if that is the tensor's first element.
std::vector<int64_t> origin_of(const Access& access) {
  std::vector<int64_t> origin;
  for (const Position& axis : access.axes) origin.push_back(axis.offset);
  const bool first = std::all_of(origin.begin(), origin.end(), [](int64_t offset) { return offset == 0; });
  return first ? std::vector<int64_t>() : origin;
}

bool same_indices(const Product& one, const Product& other) {
  if (one.indices.size() != other.indices.size() || one.origins != other.origins) return false;
  return std::all_of(one.indices.begin(), one.indices.end(), [&](const ProductIndex& index) {
    return std::any_of(other.indices.begin(), other.indices.end(), [&](const ProductIndex& twin) {
      return twin.extent == index.extent && twin.reduced == index.reduced && twin.axes == index.axes;
    });
  });
}

void swap_operands(Product& product) {
  std::swap(product.tensors[0], product.tensors[1]);
  std::swap(product.origins[0], product.origins[1]);
  for (ProductIndex& index : product.indices) std::swap(index.axes[0], index.axes[1]);
}

}  // namespace

bool same_shape(const Graph& graph, TensorId one, TensorId other) {
  const Tensor& a = graph.tensor(one);
  const Tensor& b = graph.tensor(other);
  if (a.dims.size() != b.dims.size() || a.dtype != b.dtype) return false;
  for (size_t axis = 0; axis < a.dims.size(); ++axis) {
    if (graph.extent(a.dims[axis]) != graph.extent(b.dims[axis])) return false;
  }
  return true;
}

Product product_of(const Graph& graph, const Operator& contraction) {
  Product product;
  const std::array<const Access*, 3> accesses = {contraction.inputs.data(), &contraction.inputs[1],
                                                 contraction.outputs.data()};
  for (size_t operand = 0; operand < 3; ++operand) {
    product.tensors[operand] = {accesses[operand]->tensor};
    product.origins[operand] = origin_of(*accesses[operand]);
  }
  for (size_t k = 2; k < contraction.inputs.size(); ++k) product.scales.push_back(contraction.inputs[k].tensor);
  for (size_t index = 0; index < contraction.space.size(); ++index) {
    const int64_t extent = graph.extent(contraction.space[index]);
    if (extent == 1) continue;
    ProductIndex described;
    described.dim = contraction.space[index];
    described.extent = extent;
    described.reduced = contraction.reduced[index];
    for (size_t operand = 0; operand < 3; ++operand) described.axes[operand] = axes_along(*accesses[operand], index);
    product.indices.push_back(std::move(described));
  }
  return product;
}

OrRejected<Product> stacked_product(const Graph& graph, const std::vector<OperatorId>& contractions,
                                    Stacking::Kind kind) {
  const bool summed = kind == Stacking::Kind::summed_results;
  Product stacked = product_of(graph, graph.operators[contractions.front().at()]);
  Product second = product_of(graph, graph.operators[contractions[1].at()]);
  size_t shared = 2;
  if (!summed) {
    const TensorId a = stacked.tensors[0].front();
    shared = a == second.tensors[0].front() || a == second.tensors[1].front() ? 0 : 1;
  }
  for (size_t k = 1; k < contractions.size(); ++k) {
    Product next = product_of(graph, graph.operators[contractions[k].at()]);
    const bool crossed =
        summed ? !same_indices(stacked, next) : next.tensors[shared].front() != stacked.tensors[shared].front();
    if (crossed) swap_operands(next);
    if (!same_indices(stacked, next)) return Rejection{"they run along different axes, or their extents differ"};
    for (size_t operand = 0; operand < 3; ++operand) {
      if (operand == shared) continue;
      if (!same_shape(graph, stacked.tensors[operand].front(), next.tensors[operand].front()))
        return Rejection{"the stacked tensors would have different shapes or types"};
      stacked.tensors[operand].push_back(next.tensors[operand].front());
    }
  }
  ProductIndex stack;
  stack.extent = static_cast<int64_t>(contractions.size());
  stack.reduced = summed;
  for (size_t operand = 0; operand < 3; ++operand) stack.stacks[operand] = operand != shared;
  stacked.indices.push_back(stack);
  return stacked;
}

const std::vector<TensorId>& Product::operand(size_t number) const {
  static const std::vector<TensorId> kNone;
  if (number != kVectorOperand) return tensors[number];
  return vector ? vector->tensors : kNone;
}

bool Product::is_written(size_t number) const {
  return number == kVectorOperand ? vector && vector->written() : number == 2;
}

bool Product::is_stacked_along(size_t number, const ProductIndex& index) const {
  return number == kVectorOperand ? !index.dim.valid() : index.stacks[number];
}

int64_t stride_along(const Graph& graph, const Product& product, size_t operand, size_t index, const Layout& layout) {
  const TensorId tensor = product.operand(operand).front();
  const ProductIndex& along = product.indices[index];
  if (product.is_stacked_along(operand, along)) return elements_of(graph, tensor);
  const std::vector<int64_t> strides = strides_of(graph, tensor, layout);
  int64_t step = 0;
  for (const ProductAxis& axis : operand == kVectorOperand ? product.vector->axes[index] : along.axes[operand])
    step += axis.stride * strides[as_index(axis.axis)];
  return step;
}

int64_t origin_of(const Graph& graph, const Product& product, size_t operand, const Layout& layout) {
  if (operand == kVectorOperand || product.origins[operand].empty()) return 0;
  const std::vector<int64_t> strides = strides_of(graph, product.operand(operand).front(), layout);
  int64_t origin = 0;
  for (size_t axis = 0; axis < strides.size(); ++axis) origin += product.origins[operand][axis] * strides[axis];
  return origin;
}

}  // namespace millrace
