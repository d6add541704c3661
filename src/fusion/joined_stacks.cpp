// Joins whose inputs contractions can read as stacked tensors, so that nothing is copied together.
#include <algorithm>
#include <optional>
#include <set>

#include "fusion/alternatives.h"

namespace millrace {
namespace {

// For each index of an elementwise operator, the axis of its input that runs along it, or kFixed; nothing if the input
// is not whole, or an axis runs along none or several. `moved`: an index that is constant where the input is read.
std::optional<std::vector<int>> axes_by_index(const Graph& graph, const Operator& op, const Access& input,
                                              int moved = kFixed) {
  std::vector<int> found(op.space.size(), kFixed);
  const std::vector<DimId>& dims = graph.tensor(input.tensor).dims;
  for (size_t axis = 0; axis < input.axes.size(); ++axis) {
    const Position& position = input.axes[axis];
    const int64_t extent = graph.extent(dims[axis]);
    if (extent == 1) continue;
    if (!position.is_index() || position.index() == kFixed || position.index() == moved) return std::nullopt;
    const size_t index = as_index(position.index());
    if (graph.extent(op.space[index]) != extent || found[index] != kFixed) return std::nullopt;
    found[index] = static_cast<int>(axis);
  }
  return found;
}

class StackFinder {
 public:
  explicit StackFinder(const Neighbourhood& near) : near_(near), graph_(near.graph) {}

  std::optional<JoinedStack> find(OperatorId id) const {
    const Operator& join = near_.op(id);
    if (join.kind != OperatorKind::join || join.outputs[0].axes != in_order(join.space.size())) return std::nullopt;
    JoinedStack stack;
    const std::optional<std::vector<size_t>> order = order_of_inputs(join, stack.axis);
    if (!order) return std::nullopt;
    for (const size_t input : *order) {
      if (!add(join, id, join.inputs[input], stack)) return std::nullopt;
    }
    stack.operators.push_back(id);
    const std::set<TensorId> distinct(stack.sources.begin(), stack.sources.end());
    if (distinct.size() != stack.sources.size() || !has_readers(join, stack)) return std::nullopt;
    return stack;
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
      order[as_index(range.first)] = input;
    }
    return order;  // regions do not overlap, so every position is taken
  }

  // Adds a source: the input itself or, if a copy makes the input only for the join, what the copy reads.
  bool add(const Operator& join, OperatorId id, const Access& input, JoinedStack& stack) const {
    std::optional<std::vector<int>> axes = axes_by_index(graph_, join, input, static_cast<int>(stack.axis));
    if (!axes) return false;
    TensorId source = input.tensor;
    const OperatorId producer = near_.producers[source.at()];
    const bool own =
        producer.valid() && near_.readers[source.at()] == std::vector<OperatorId>{id} && !near_.leaves[source.at()];
    if (own && near_.op(producer).kind == OperatorKind::copy && near_.op(producer).pass == join.pass) {
      const Operator& copy = near_.op(producer);
      const std::optional<std::vector<int>> inner = axes_by_index(graph_, copy, copy.inputs[0]);
      if (!inner || copy.outputs[0].axes != in_order(copy.space.size())) return false;
      for (int& axis : *axes) axis = axis == kFixed ? kFixed : (*inner)[as_index(axis)];
      source = copy.inputs[0].tensor;
      stack.operators.push_back(producer);
    }
    const TensorRole role = graph_.tensor(source).role;
    if (role == TensorRole::scalar || role == TensorRole::constant) return false;
    for (size_t index = 0; index < axes->size(); ++index) {
      const bool lacks = (*axes)[index] == kFixed && index != stack.axis;
      if (lacks && graph_.extent(join.space[index]) > 1) return false;  // a broadcast
    }
    if (!stack.sources.empty() && (*axes != stack.source_axis || !has_shape_of(source, stack.sources.front())))
      return false;
    stack.source_axis = std::move(*axes);
    stack.sources.push_back(source);
    return true;
  }

  bool has_shape_of(TensorId one, TensorId other) const {
    const Tensor& a = graph_.tensor(one);
    const Tensor& b = graph_.tensor(other);
    return a.dtype == b.dtype && std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), b.dims.end(),
                                            [&](DimId l, DimId r) { return graph_.extent(l) == graph_.extent(r); });
  }

  // Whether only contractions read the joined tensor, each along all of the stack.
  bool has_readers(const Operator& join, JoinedStack& stack) const {
    const TensorId joined = join.outputs[0].tensor;
    stack.readers = near_.readers[joined.at()];
    return !stack.readers.empty() && !near_.leaves[joined.at()] &&
           std::all_of(stack.readers.begin(), stack.readers.end(), [&](OperatorId reader) {
             return near_.is_contraction(reader) && near_.op(reader).pass == join.pass &&
                    reads_stack(near_.op(reader), joined, stack);
           });
  }

  bool reads_stack(const Operator& contraction, TensorId joined, const JoinedStack& stack) const {
    const size_t operand = contraction.inputs[0].tensor == joined ? 0 : 1;
    if (contraction.inputs[1 - operand].tensor == joined) return false;
    const std::vector<Position>& axes = contraction.inputs[operand].axes;
    const Position& along = axes[stack.axis];
    if (!along.is_index() || along.index() == kFixed) return false;
    const auto index = as_index(along.index());
    const auto runs_along_it = [&](const Position& axis) { return axis.stride_along(along.index()) != 0; };
    return graph_.extent(contraction.space[index]) == static_cast<int64_t>(stack.sources.size()) &&
           std::count_if(axes.begin(), axes.end(), runs_along_it) == 1 &&
           std::all_of(axes.begin(), axes.end(), [](const Position& axis) { return axis.offset == 0; });
  }

  const Neighbourhood& near_;
  const Graph& graph_;
};

// The words that some members of a kernel read from memory and write to it; each tensor counts once.
int64_t words_moved(const Neighbourhood& near, const std::set<OperatorId>& members) {
  const auto is_outside = [&](OperatorId op) { return !members.contains(op); };
  std::set<TensorId> moved;
  for (const OperatorId member : members) {
    for (const Access& input : near.op(member).inputs) {
      if (is_outside(near.producers[input.tensor.at()])) moved.insert(input.tensor);
    }
    for (const Access& output : near.op(member).outputs) {
      const std::vector<OperatorId>& readers = near.readers[output.tensor.at()];
      if (near.leaves[output.tensor.at()] || std::any_of(readers.begin(), readers.end(), is_outside))
        moved.insert(output.tensor);
    }
  }
  int64_t words = 0;
  for (const TensorId tensor : moved) words += near.words[tensor.at()];
  return words;
}

// The contractions read as many words of the sources as of the joined tensor.
int64_t words_saved(const Neighbourhood& near, const std::vector<FusedOperator>& groups, const JoinedStack& stack) {
  int64_t saved = 0;
  for (const FusedOperator& group : groups) {
    const std::set<OperatorId> members(group.members.begin(), group.members.end());
    std::set<OperatorId> rest = members;
    for (const OperatorId absorbed : stack.operators) rest.erase(absorbed);
    if (rest.size() < members.size()) saved += words_moved(near, members) - words_moved(near, rest);
  }
  return saved;
}

}  // namespace

std::vector<JoinedStack> find_joined_stacks(const Neighbourhood& near, const std::vector<FusedOperator>& groups) {
  std::vector<JoinedStack> found;
  const StackFinder finder(near);
  for (size_t k = 0; k < near.graph.operators.size(); ++k) {
    std::optional<JoinedStack> stack = finder.find(OperatorId(k));
    if (!stack) continue;
    stack->words_saved = words_saved(near, groups, *stack);
    found.push_back(std::move(*stack));
  }
  return found;
}

}  // namespace millrace
