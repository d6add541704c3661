#include <algorithm>
#include <set>

#include "base/text.h"
#include "candidates/partition_kinds.h"
#include "candidates/product.h"

namespace millrace {
namespace {

// The product of a contraction that reads the joined tensor, with the sources in its place.
Product product_of_stack(const Graph& graph, const Operator& contraction, TensorId joined, const JoinedStack& stack) {
  const size_t operand = contraction.inputs[0].tensor == joined ? 0 : 1;
  Product product = product_of(graph, contraction);
  for (ProductIndex& index : product.indices) {
    std::vector<ProductAxis> axes;
    for (const ProductAxis& axis : index.axes[operand]) {
      if (as_index(axis.axis) == stack.axis) {
        index.stacks[operand] = true;
        continue;
      }
      const int own = stack.source_axis[as_index(axis.axis)];
      if (own != kFixed) axes.push_back({own, axis.stride});
    }
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

void add_joined(const PartitionBuilder& builder, PartitionSet& set, const JoinedStack& stack) {
  const Operator& join = builder.op(stack.operators.back());
  const TensorId joined = join.outputs[0].tensor;
  std::vector<Partition> partitions;
  for (const OperatorId reader : stack.readers) {
    Product product = product_of_stack(builder.graph(), builder.op(reader), joined, stack);
    partitions.push_back(partition_of(builder, reader, joined, stack, std::move(product)));
  }
  if (!builder.leaves_kernels(stack.operators))
    return set.reject(concat(join.name, " as stacked tensors: ", kRestIsNoKernel));
  // The first one carries out the join; the others repeat it.
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
  for (const JoinedStack& stack : builder.fused().joined_stacks) add_joined(builder, set, stack);
}

}  // namespace millrace
