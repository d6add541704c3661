#include <algorithm>
#include <optional>
#include <set>

#include "base/text.h"
#include "candidates/partition_kinds.h"
#include "candidates/product.h"

namespace millrace {
namespace {

// A join that puts tensors of one shape beside each other along a new axis, as np.stack does.
struct JoinedStack {
  std::vector<OperatorId> operators;  // copies that only add an axis of extent one, and then the join
  std::vector<TensorId> sources;      // in the order of the axis
  size_t axis = 0;                    // of the joined tensor: counts the sources
  std::vector<int> source_axis;       // per axis of the joined tensor; kNoIndex: the sources lack it
};

// For each index of an elementwise operator, the axis of its input that runs along it, or kNoIndex; nothing if the
// input is not whole, or an axis runs along none or several. `moved`: an index that is constant where the input is
// read.
std::optional<std::vector<int>> axes_by_index(const Graph& graph, const Operator& op, const Access& input,
                                              int moved = kNoIndex) {
  std::vector<int> found(op.space.size(), kNoIndex);
  const std::vector<DimId>& dims = graph.tensor(input.tensor).dims;
  for (size_t axis = 0; axis < input.axes.size(); ++axis) {
    const Position& position = input.axes[axis];
    const int64_t extent = graph.extent(dims[axis]);
    if (extent == 1) continue;
    if (!position.is_index() || position.index() == kFixed || position.index() == moved) return std::nullopt;
    const size_t index = as_index(position.index());
    if (graph.extent(op.space[index]) != extent || found[index] != kNoIndex) return std::nullopt;
    found[index] = static_cast<int>(axis);
  }
  return found;
}

class StackFinder {
 public:
  explicit StackFinder(const PartitionBuilder& builder) : builder_(builder), graph_(builder.graph()) {}

  std::optional<JoinedStack> find(OperatorId id) const {
    const Operator& join = builder_.op(id);
    if (join.kind != OperatorKind::join || join.outputs[0].axes != in_order(join.space.size())) return std::nullopt;
    JoinedStack stack;
    const std::optional<std::vector<size_t>> order = order_of_inputs(join, stack.axis);
    if (!order) return std::nullopt;
    for (const size_t input : *order) {
      if (!add(join, id, join.inputs[input], stack)) return std::nullopt;
    }
    stack.operators.push_back(id);
    const std::set<TensorId> distinct(stack.sources.begin(), stack.sources.end());
    return distinct.size() == stack.sources.size() ? std::optional(stack) : std::nullopt;
  }

 private:
  // The inputs in the order of the index, if each has one of its positions and all of the other indices.
  std::optional<std::vector<size_t>> order_of_inputs(const Operator& join, size_t& index) const {
    std::vector<size_t> order(join.inputs.size(), join.inputs.size());
    std::optional<size_t> stacked;
    for (size_t k = 0; k < join.space.size(); ++k) {
      const int64_t extent = graph_.extent(join.space[k]);
      const bool whole = std::all_of(join.regions.begin(), join.regions.end(),
                                     [&](const Region& region) { return region[k].length() == extent; });
      if (whole) continue;
      if (stacked || extent != static_cast<int64_t>(join.inputs.size())) return std::nullopt;
      stacked = k;
    }
    if (!stacked) return std::nullopt;
    index = *stacked;
    for (size_t input = 0; input < join.inputs.size(); ++input) {
      const Range& range = join.regions[input][index];
      if (range.length() != 1) return std::nullopt;
      order[static_cast<size_t>(range.first)] = input;
    }
    return order;  // regions do not overlap, so every position is taken
  }

  // Adds a source: the input, or what a copy makes it from that only the join reads.
  bool add(const Operator& join, OperatorId id, const Access& input, JoinedStack& stack) const {
    std::optional<std::vector<int>> axes = axes_by_index(graph_, join, input, static_cast<int>(stack.axis));
    if (!axes) return false;
    TensorId source = input.tensor;
    const OperatorId producer = builder_.producers()[source.at()];
    const bool own = producer.valid() && builder_.readers()[source.at()] == std::vector<OperatorId>{id} &&
                     !builder_.callers()[source.at()];
    if (own && builder_.op(producer).kind == OperatorKind::copy && builder_.op(producer).pass == join.pass) {
      const Operator& copy = builder_.op(producer);
      const std::optional<std::vector<int>> inner = axes_by_index(graph_, copy, copy.inputs[0]);
      if (!inner || copy.outputs[0].axes != in_order(copy.space.size())) return false;
      for (int& axis : *axes) axis = axis == kNoIndex ? kNoIndex : (*inner)[as_index(axis)];
      source = copy.inputs[0].tensor;
      stack.operators.push_back(producer);
    }
    const TensorRole role = graph_.tensor(source).role;
    if (role == TensorRole::scalar || role == TensorRole::constant) return false;
    for (size_t index = 0; index < axes->size(); ++index) {
      const bool lacks = (*axes)[index] == kNoIndex && index != stack.axis;
      if (lacks && graph_.extent(join.space[index]) > 1) return false;  // a broadcast
    }
    if (!stack.sources.empty() && (*axes != stack.source_axis || !same_shape(graph_, source, stack.sources.front())))
      return false;
    stack.source_axis = std::move(*axes);
    stack.sources.push_back(source);
    return true;
  }

  const PartitionBuilder& builder_;
  const Graph& graph_;
};

// The product of a contraction that reads the joined tensor, with the sources in its place.
std::optional<Product> product_of_stack(const Graph& graph, const Operator& contraction, TensorId joined,
                                        const JoinedStack& stack) {
  const size_t operand = contraction.inputs[0].tensor == joined ? 0 : 1;
  if (contraction.inputs[1 - operand].tensor == joined) return std::nullopt;
  Product product = product_of(graph, contraction);
  const Access& access = contraction.inputs[operand];
  const Position& along = access.axes[stack.axis];
  if (!along.is_index() || along.index() == kFixed || !product.origins[operand].empty()) return std::nullopt;
  if (graph.extent(contraction.space[as_index(along.index())]) != static_cast<int64_t>(stack.sources.size()))
    return std::nullopt;
  for (ProductIndex& index : product.indices) {
    std::vector<ProductAxis> axes;
    for (const ProductAxis& axis : index.axes[operand]) {
      if (as_index(axis.axis) == stack.axis) {
        index.stacks[operand] = true;
        continue;
      }
      const int own = stack.source_axis[as_index(axis.axis)];
      if (own != kNoIndex) axes.push_back({own, axis.stride});
    }
    if (index.stacks[operand] && !axes.empty()) return std::nullopt;  // a diagonal
    if (index.stacks[operand]) index.dim = DimId();
    index.axes[operand] = std::move(axes);
  }
  product.tensors[operand] = stack.sources;
  return product;
}

Partition partition_of(const PartitionBuilder& builder, OperatorId contraction, TensorId joined,
                       const JoinedStack& stack, Product product) {
  const Operator& op = builder.op(contraction);
  Partition partition;
  partition.kind = PartitionKind::contraction;
  partition.pass = op.pass;
  partition.name = concat(op.name, " of stacked tensors");
  partition.operators = {contraction};
  builder.find_movement(partition);
  std::set<TensorId> reads(partition.reads.begin(), partition.reads.end());
  reads.erase(joined);
  reads.insert(stack.sources.begin(), stack.sources.end());
  partition.reads.assign(reads.begin(), reads.end());
  partition.product = std::move(product);
  return partition;
}

void add_joined(const PartitionBuilder& builder, PartitionSet& set, OperatorId join, const JoinedStack& stack) {
  const TensorId joined = builder.op(join).outputs[0].tensor;
  const std::vector<OperatorId>& readers = builder.readers()[joined.at()];
  std::vector<Partition> partitions;
  for (const OperatorId reader : readers) {
    const Operator& op = builder.op(reader);
    if (op.kind != OperatorKind::contraction || op.pass != builder.op(join).pass) return;
    std::optional<Product> product = product_of_stack(builder.graph(), op, joined, stack);
    if (!product) return;
    partitions.push_back(partition_of(builder, reader, joined, stack, std::move(*product)));
  }
  if (partitions.empty() || builder.callers()[joined.at()]) return;
  if (!builder.leaves_kernels(stack.operators))
    return set.reject(concat(builder.op(join).name, " as stacked tensors: ", kRestIsNoKernel));
  // The first one stands for the join; the others repeat it.
  std::vector<OperatorId>& first = partitions.front().operators;
  first.insert(first.end(), stack.operators.begin(), stack.operators.end());
  std::sort(first.begin(), first.end());
  std::vector<std::string> names;
  for (size_t k = 0; k < partitions.size(); ++k) {
    if (k > 0) partitions[k].repeats = stack.operators;
    set.place_stacks(partitions[k].product);
    set.tie(partitions.front(), partitions[k]);
    names.push_back(set.add(partitions[k]));
  }
  if (names.size() > 1) set.bundle(std::move(names));
  add_rest_of_groups(builder, set, stack.operators);
}

}  // namespace

void add_joined_operands(const PartitionBuilder& builder, PartitionSet& set) {
  const StackFinder finder(builder);
  for (size_t k = 0; k < builder.graph().operators.size(); ++k) {
    if (const std::optional<JoinedStack> stack = finder.find(OperatorId(k)))
      add_joined(builder, set, OperatorId(k), *stack);
  }
}

}  // namespace millrace
