// Generated kernels: layouts of all tensors, loop orders, vector index, threads.
//
// Layouts are not independent: the tensors of a kernel follow one or two orders of its indices. With a third, no loop
// order would access all of them contiguously; a conversion before or after the kernel is faster. On a GPU, large
// tensors have unit stride along the index of neighbouring threads: without it their bytes move eight times, and a
// conversion moves them twice. Masks are generated in the order of their elements' numbers, because one draw gives
// eight neighbours.
//
// Over 500 lines, because one class holds the state of the enumeration, for the CPU and for GPUs.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <set>

#include "base/text.h"
#include "candidates/configs.h"
#include "candidates/kernel_cost.h"

namespace millrace {
namespace {

using Order = std::vector<int>;  // indices of the partition's space, outermost first

constexpr size_t kPermutedIndices = 5;
constexpr size_t kMasksOfTheirOwn = 6;      // if there are more masks, all are stored in the same form
constexpr size_t kOtherStorages = 2;        // besides words
constexpr double kBesideBytes = 1.5;        // times the bytes, if neighbours are along the next loop (an estimate)
constexpr double kAcrossBytes = 4;          // the same along another loop
constexpr double kAllAssignments = 50'000;  // if there are more, reads follow one order and writes the other

std::vector<Order> orders_of(size_t count) {
  Order order;
  for (size_t k = 0; k < count; ++k) order.push_back(static_cast<int>(k));
  std::vector<Order> orders;
  if (count <= kPermutedIndices) {
    do orders.push_back(order);
    while (std::next_permutation(order.begin(), order.end()));
    return orders;
  }
  orders.push_back(order);
  for (size_t k = 0; k + 1 < count; ++k) {
    Order moved = order;
    std::rotate(moved.begin() + static_cast<std::ptrdiff_t>(k), moved.begin() + static_cast<std::ptrdiff_t>(k) + 1,
                moved.end());
    orders.push_back(std::move(moved));
  }
  return orders;
}

// A group has the layouts that follow two orders. The last group has the written layouts.
class KernelConfigs : public ConfigGroups {
 public:
  KernelConfigs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                KernelLayouts allowed, const Partition& partition)
      : graph_(graph),
        domains_(domains),
        options_(options),
        allowed_(allowed),
        partition_(partition),
        orders_(orders_of(partition.space.size())),
        tensors_(describe_all()),
        cost_(graph, domains, partition, tensors_),
        element_bytes_(narrowest_bytes(graph, partition)),
        same_masks_(has_many_masks()) {
    for (size_t k = 0; k < partition.members.size(); ++k) {
      const Operator& op = graph.operators[partition.members[k].at()];
      for (size_t index = 0; index < op.space.size(); ++index)
        reduces_ = reduces_ || (op.reduced[index] && partition.index_of[k][index] != kNoIndex);
    }
    if (allowed_ == KernelLayouts::all) find_groups();
  }

  size_t count() const override { return groups_.size() + 1; }

  double combinations(size_t group) const override {
    if (group == groups_.size()) return 1;
    double made = 1;
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const std::vector<int> choices = choices_of(k, groups_[group]);
      if (assignment_ == Assignment::any) made *= static_cast<double>(std::max<size_t>(1, choices.size()));
      if (!same_masks_ && has_free_storage(k)) made *= 1 + static_cast<double>(other_storages(k).size());
    }
    return same_masks_ ? made * (1 + kOtherStorages) : made;
  }

  double bound(size_t group) override {
    if (group == groups_.size()) return 0;
    const auto [one, two] = groups_[group];
    double least = std::numeric_limits<double>::infinity();
    for (const size_t order : {one, two}) {
      double bytes = 0;
      for (size_t k = 0; k < tensors_.size(); ++k) bytes += least_bytes(k, groups_[group], order);
      least = std::min(least, bytes);
    }
    return least / (options_.target.gpu ? kGpuBytesPerSecond : kCpuBytesPerSecond * options_.threads);
  }

  std::vector<std::vector<int>> layouts(size_t group) const override {
    std::vector<std::vector<int>> made(tensors_.size());
    for (size_t k = 0; k < tensors_.size() && group < groups_.size(); ++k) made[k] = choices_of(k, groups_[group]);
    return made;
  }

  bool may_be_written(size_t group) const override {
    for (size_t k = 0; k < tensors_.size() && group < groups_.size(); ++k) {
      const std::vector<int> choices = choices_of(k, groups_[group]);
      if (std::find(choices.begin(), choices.end(), domain(k).written()) == choices.end()) return false;
    }
    return true;
  }

  void add(size_t group, Collector& into) override {
    collector_ = &into;
    if (group < groups_.size()) return assign(groups_[group]);
    std::vector<int> written(tensors_.size(), 0);
    for (size_t k = 0; k < tensors_.size(); ++k) written[k] = domain(k).written();
    add_with(written, orders_.front(), orders_.front());
  }

  void reject_others(Collector& into) const override {
    if (allowed_ == KernelLayouts::written) return;
    double all = 1;
    for (size_t k = 0; k < tensors_.size(); ++k) {
      if (domain(k).pinned < 0) all *= static_cast<double>(std::max<size_t>(1, domain(k).layouts.size()));
    }
    into.reject("combinations of layouts in all; only those that follow at most two orders are tried", all);
  }

 private:
  enum class Assignment { any, reads_and_writes };

  // Two orders, by number.
  struct OrderPair {
    size_t one;
    size_t two;
  };

  void find_groups() {
    size_t free = 0;
    for (size_t k = 0; k < tensors_.size(); ++k) free += domain(k).layouts.size() > 1 && domain(k).pinned < 0 ? 1 : 0;
    const auto count = static_cast<double>(orders_.size());
    const bool all =
        count * (count + 1) / 2 * static_cast<double>(uint64_t{1} << std::min<size_t>(free, 60)) <= kAllAssignments;
    assignment_ = all ? Assignment::any : Assignment::reads_and_writes;
    for (size_t one = 0; one < orders_.size(); ++one) {
      for (size_t two = all ? one : 0; two < orders_.size(); ++two) {
        if (is_possible({one, two})) groups_.push_back({one, two});
      }
    }
  }

  // Whether each tensor that the caller does not pin has a layout for both orders.
  bool is_possible(const OrderPair& group) const {
    return std::all_of(tensors_.begin(), tensors_.end(), [&](const PartitionTensor& tensor) {
      return domains_[tensor.id.at()].pinned >= 0 ||
             (tensor.by_order[group.one] >= 0 && tensor.by_order[group.two] >= 0);
    });
  }

  // The layouts of a tensor in a group; masks also have those of other storages.
  std::vector<int> choices_of(size_t k, const OrderPair& group) const {
    const std::vector<int>& by_order = tensors_[k].by_order;
    if (domain(k).pinned >= 0) return {domain(k).allows(by_order[group.one]) ? by_order[group.one] : domain(k).pinned};
    if (assignment_ == Assignment::reads_and_writes) return {by_order[tensors_[k].written ? group.two : group.one]};
    if (by_order[group.one] == by_order[group.two]) return {by_order[group.one]};
    return {by_order[group.one], by_order[group.two]};
  }

  std::vector<int> other_storages(size_t k) const {
    std::vector<int> others;
    for (size_t layout = 0; layout < domain(k).layouts.size(); ++layout) {
      if (domain(k).layouts[layout].storage != MaskStorage::words) others.push_back(static_cast<int>(layout));
    }
    return others;
  }

  // About how many bytes a tensor moves if the loops follow one order of a group, and the tensor has the better of the
  // layouts that follow its two orders.
  double least_bytes(size_t k, const OrderPair& group, size_t loops) const {
    const PartitionTensor& tensor = tensors_[k];
    if (domain(k).layouts.size() == 1) return tensor.bytes.front();
    if (tensor.mask && domain(k).pinned < 0) return *std::min_element(tensor.bytes.begin(), tensor.bytes.end());
    const size_t other = loops == group.one ? group.two : group.one;
    if (domain(k).pinned >= 0) {
      const int by_one = tensor.by_order[group.one];
      return moved_bytes(k, domain(k).allows(by_one) ? by_one : domain(k).pinned, loops, other);
    }
    if (assignment_ == Assignment::reads_and_writes)
      return moved_bytes(k, tensor.by_order[tensor.written ? group.two : group.one], loops, other);
    return std::min(moved_bytes(k, tensor.by_order[group.one], loops, other),
                    moved_bytes(k, tensor.by_order[group.two], loops, other));
  }

  double moved_bytes(size_t k, int layout, size_t loops, size_t other) const {
    const PartitionTensor& tensor = tensors_[k];
    const Order& order = orders_[loops];
    const double bytes = tensor.bytes[as_index(layout)] * (tensor.by_order[loops] == layout ? 1 : 1.05);
    const int innermost = tensor.innermost[as_index(layout)];
    if (order.empty() || innermost == order.back() ||
        std::find(tensor.axes.begin(), tensor.axes.end(), order.back()) == tensor.axes.end())
      return bytes;
    const bool beside =
        innermost == orders_[other].back() || (order.size() > 1 && innermost == order[order.size() - 2]);
    return bytes * (beside ? kBesideBytes : kAcrossBytes);
  }

  const TensorDomain& domain(size_t k) const { return domains_[tensors_[k].id.at()]; }

  std::vector<PartitionTensor> describe_all() const {
    std::vector<PartitionTensor> all;
    for (const TensorId id : partition_.reads) all.push_back(describe(id));
    for (const TensorId id : partition_.writes) {
      all.push_back(describe(id));
      all.back().written = true;
    }
    return all;
  }

  PartitionTensor describe(TensorId id) const {
    PartitionTensor tensor;
    tensor.id = id;
    tensor.axes = indices_of(graph_, partition_, id);
    const std::vector<Layout>& layouts = domains_[id.at()].layouts;
    for (const Layout& layout : layouts) {
      tensor.mask = tensor.mask || layout.storage != MaskStorage::words;
      tensor.bytes.push_back(static_cast<double>(stored_bytes(graph_, id, layout)));
      int innermost = kNoIndex;
      for (const int axis : layout.order) {
        if (tensor.axes[as_index(axis)] != kNoIndex) innermost = tensor.axes[as_index(axis)];
      }
      tensor.innermost.push_back(innermost);
    }
    for (const Order& order : orders_) {
      const auto position = [&](int axis) {
        const int index = tensor.axes[as_index(axis)];
        return index == kNoIndex ? -1 : std::find(order.begin(), order.end(), index) - order.begin();
      };
      Layout layout = layouts.front();
      std::stable_sort(layout.order.begin(), layout.order.end(),
                       [&](int l, int r) { return position(l) < position(r); });
      const auto found = std::find(layouts.begin(), layouts.end(), layout);
      tensor.by_order.push_back(found == layouts.end() ? -1 : static_cast<int>(found - layouts.begin()));
    }
    return tensor;
  }

  // The choices of one of two orders for each tensor that has a choice: any, or one order for reads and the other for
  // writes.
  void assign(const OrderPair& group) {
    std::vector<int> layouts(tensors_.size(), 0);
    std::vector<size_t> open;
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const std::vector<int> choices = choices_of(k, group);
      layouts[k] = choices.front();
      if (choices.size() > 1) open.push_back(k);
    }
    for (uint64_t choice = 0; choice < (uint64_t{1} << open.size()); ++choice) {
      for (size_t k = 0; k < open.size(); ++k)
        layouts[open[k]] = tensors_[open[k]].by_order[(choice >> k) & 1 ? group.two : group.one];
      add_masks(layouts, orders_[group.one], orders_[group.two]);
    }
  }

  bool has_free_storage(size_t tensor) const { return tensors_[tensor].mask && domain(tensor).pinned < 0; }
  bool has_many_masks() const {
    size_t count = 0;
    for (size_t k = 0; k < tensors_.size(); ++k) count += has_free_storage(k) ? 1 : 0;
    return count > kMasksOfTheirOwn;
  }

  // Masks as words, as bits, or regenerated: each by itself, or all the same if there are many.
  void add_masks(std::vector<int>& layouts, const Order& one, const Order& two) {
    if (!same_masks_) return add_masks(layouts, one, two, 0);
    add_with(layouts, one, two);
    for (size_t storage = 0; storage < kOtherStorages; ++storage) add_masks_alike(layouts, one, two, storage);
  }

  void add_masks_alike(std::vector<int> layouts, const Order& one, const Order& two, size_t storage) {
    bool any = false;
    for (size_t k = 0; k < tensors_.size(); ++k) {
      if (!has_free_storage(k)) continue;
      const std::vector<int> others = other_storages(k);
      if (storage < others.size()) layouts[k] = others[storage];
      any = any || storage < others.size();
    }
    if (any) add_with(layouts, one, two);
  }

  void add_masks(std::vector<int>& layouts, const Order& one, const Order& two, size_t from) {
    size_t k = from;
    while (k < tensors_.size() && !has_free_storage(k)) ++k;
    if (k == tensors_.size()) return add_with(layouts, one, two);
    add_masks(layouts, one, two, k + 1);
    const int as_words = layouts[k];
    for (const int layout : other_storages(k)) {
      layouts[k] = layout;
      add_masks(layouts, one, two, k + 1);
    }
    layouts[k] = as_words;
  }

  bool in_lanes(const KernelConfig& config) const {
    return config.rows && config.vector != kNoIndex && partition_.space[as_index(config.vector)].outer;
  }

  bool has_rows() const {
    return std::any_of(partition_.space.begin(), partition_.space.end(),
                       [](const PartitionIndex& i) { return !i.outer; });
  }

  // A flat nest keeps no row. A reduction whose result another member uses needs one, and so do different inner spaces
  // and a log_sum_exp, which reduces twice.
  bool can_be_flat() const {
    for (size_t k = 0; k < partition_.members.size(); ++k) {
      const Operator& op = graph_.operators[partition_.members[k].at()];
      size_t indices = 0;
      bool reduces = false;
      for (size_t index = 0; index < op.space.size(); ++index) {
        if (partition_.index_of[k][index] == kNoIndex) continue;
        ++indices;
        reduces = reduces || op.reduced[index];
      }
      if (indices != partition_.space.size()) return false;
      if (!reduces) continue;
      for (const Access& output : op.outputs) {
        for (size_t index = 0; index < op.space.size(); ++index) {
          if (op.reduced[index] && partition_.index_of[k][index] != kNoIndex && runs_along(output, index)) return false;
        }
        for (const OperatorId reader : partition_.members) {
          for (const Access& input : graph_.operators[reader.at()].inputs) {
            if (input.tensor == output.tensor) return false;
          }
        }
      }
      if (op.kind == OperatorKind::contraction || op.kind == OperatorKind::log_sum_exp) return false;
    }
    return true;
  }

  // A config for a GPU in every shape.
  void add_shapes(const std::vector<int>& layouts, const KernelConfig& config) {
    if (config.block != kNoIndex) return add_tiles(layouts, config);
    const GpuNest nest = nest_of(config);
    if (nest.lanes && nest.reduces_across)
      return collector_->reject("rows in lanes and a reduction across rows: a thread would reduce over its own lanes");
    add_on_gpu(layouts, config, gpu_shapes(nest, *options_.target.gpu));
  }

  // A conversion through tiles in shared memory: both sides have unit stride.
  void add_tiles(const std::vector<int>& layouts, const KernelConfig& config) {
    if (!partition_.operators.empty()) return;  // blocks of other nests are for the CPU
    const auto innermost = [&](size_t k) { return tensors_[k].innermost[as_index(layouts[k])]; };
    if (innermost(0) != config.block || innermost(1) != config.vector) return;
    const int widest = widest_access(bytes_of(graph_.tensor(tensors_[0].id).dtype));
    add_on_gpu(layouts, config, {{widest, 1, 256}, {widest, 1, 512}});
  }

  GpuNest nest_of(const KernelConfig& config) const {
    GpuNest nest;
    nest.rows = config.rows;
    nest.lanes = in_lanes(config);
    const auto inner = [&](int index) {
      return config.rows ? !partition_.space[as_index(index)].outer : index == config.vector;
    };
    for (size_t k = 0; k < partition_.members.size(); ++k) {
      const Operator& op = graph_.operators[partition_.members[k].at()];
      int64_t points = 1;
      bool reduces = false;
      bool exactly_inside = true;
      for (size_t index = 0; index < op.space.size(); ++index) {
        const int own = partition_.index_of[k][index];
        if (own == kNoIndex) continue;
        if (inner(own)) points *= partition_.space[as_index(own)].extent;
        reduces = reduces || op.reduced[index];
        exactly_inside = exactly_inside && op.reduced[index] == inner(own);
      }
      nest.row_points = std::max(nest.row_points, points);
      nest.reduces = nest.reduces || (reduces && exactly_inside);
      nest.reduces_across = nest.reduces_across || (reduces && !exactly_inside);
    }
    if (config.vector != kNoIndex) nest.vector_extent = partition_.space[as_index(config.vector)].extent;
    nest.element_bytes = element_bytes_;
    return nest;
  }

  // Two orders can give the same config; its shapes are added once. Most are only counted.
  void add_on_gpu(const std::vector<int>& layouts, const KernelConfig& config, const std::vector<GpuShape>& shapes) {
    Candidate candidate{layouts, config, 0};
    if (!collector_->is_new(candidate)) return;
    const bool as_written = has_written_layouts(domains_, partition_, candidate);
    if (!as_written && !partition_.operators.empty() && cost_.should_convert(layouts, config))
      return collector_->reject("a large tensor without unit stride across threads: a conversion is faster",
                                static_cast<double>(shapes.size()));
    if (!as_written && cost_.draws_across(layouts, config))
      return collector_->reject("a large mask generated across neighbours, although one draw gives eight of them",
                                static_cast<double>(shapes.size()));
    int width = 0;
    bool first = true;
    for (const GpuShape& shape : shapes) {
      auto& shaped = std::get<KernelConfig>(candidate.config);
      shaped.gpu = shape;
      if (shares_bytes(layouts, shaped)) {
        collector_->reject("a mask written as bits, and threads that would share its bytes");
        continue;
      }
      if (shape.width != width) candidate.estimate = cost_.seconds_on_gpu(layouts, shaped);
      width = shape.width;
      const bool wanted = options_.every_shape || as_written || first;
      if (wanted && (as_written || collector_->keeps(layouts, candidate.estimate))) {
        collector_->add_new(candidate);
      } else {
        collector_->count();
      }
      first = false;
    }
  }

  bool shares_bytes(const std::vector<int>& layouts, const KernelConfig& config) const {
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const MaskStorage storage = domain(k).layouts[as_index(layouts[k])].storage;
      if (storage != MaskStorage::bits || !tensors_[k].written) continue;
      const bool along = config.vector != kNoIndex && tensors_[k].axes.back() == config.vector;
      if (!along || is_written_in_part(tensors_[k].id) ||
          width_along(*config.gpu, partition_.space[as_index(config.vector)].extent) != 8)
        return true;
    }
    return false;
  }

  // Whether the member that writes a tensor runs along a part of an index.
  bool is_written_in_part(TensorId tensor) const {
    for (size_t k = 0; k < partition_.members.size(); ++k) {
      const Operator& op = graph_.operators[partition_.members[k].at()];
      const bool writes = std::any_of(op.outputs.begin(), op.outputs.end(),
                                      [&](const Access& output) { return output.tensor == tensor; });
      for (size_t index = 0; writes && index < op.space.size(); ++index) {
        const int own = partition_.index_of[k][index];
        if (own != kNoIndex && partition_.space[as_index(own)].extent != graph_.extent(op.space[index])) return true;
      }
    }
    return false;
  }

  void add_with(const std::vector<int>& layouts, const Order& one, const Order& two) {
    std::vector<KernelConfig> configs;
    for (const Order* order : {&one, &two}) {
      if (has_rows()) configs.push_back(row_config(*order));
      if (!has_rows() || can_be_flat()) {
        KernelConfig flat;
        flat.loops = *order;
        flat.vector = order->empty() ? kNoIndex : order->back();
        configs.push_back(flat);
        const Order& other = order == &one ? two : one;
        if (!order->empty() && other.back() != order->back()) {
          flat.block = other.back();
          configs.push_back(flat);
        }
      }
    }
    for (size_t k = 0; k < configs.size(); ++k) {
      if (std::find(configs.begin(), configs.begin() + static_cast<std::ptrdiff_t>(k), configs[k]) !=
          configs.begin() + static_cast<std::ptrdiff_t>(k))
        continue;
      if (options_.target.gpu) {
        add_shapes(layouts, configs[k]);
        continue;
      }
      for (const int threads : std::set<int>{1, options_.threads}) {
        configs[k].threads = threads;
        add(layouts, configs[k]);
      }
    }
  }

  KernelConfig row_config(const Order& order) const {
    KernelConfig config;
    config.rows = true;
    for (const bool outer : {true, false}) {
      for (const int index : order) {
        if (partition_.space[as_index(index)].outer == outer) config.loops.push_back(index);
      }
    }
    config.vector = order.back();
    return config;
  }

  void add(const std::vector<int>& layouts, const KernelConfig& config) {
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const MaskStorage storage = domain(k).layouts[as_index(layouts[k])].storage;
      if (storage == MaskStorage::bits &&
          !(config.block == kNoIndex && !in_lanes(config) && is_in_lines(k, config.vector)))
        return collector_->reject(
            "a mask as bits, and the vector not along its whole last axis: threads would share its bytes");
      if (storage != MaskStorage::words && !tensors_[k].written && config.block != kNoIndex)
        return collector_->reject("masks are generated and unpacked a line at a time, not in blocks");
    }
    if (reduces_ && config.block != kNoIndex)
      return collector_->reject("a nest in blocks transposes and cannot reduce");
    if (cost_.has_dropout() && config.block != kNoIndex)
      return collector_->reject("masks are generated and unpacked a line at a time, not in blocks");
    collector_->add({layouts, config, cost_.seconds(layouts, config)});
  }

  // Whether a member runs along the nest's whole indices, not along parts of them.
  bool runs_whole(size_t member) const {
    const Operator& op = graph_.operators[partition_.members[member].at()];
    for (size_t own = 0; own < op.space.size(); ++own) {
      const int index = partition_.index_of[member][own];
      if (index == kNoIndex) continue;
      if (graph_.extent(op.space[own]) != partition_.space[as_index(index)].extent) return false;
    }
    return true;
  }

  // Whether the vector index runs along the last axis, and no other, in every access of a tensor.
  bool is_in_lines(size_t k, int vector) const {
    const TensorId tensor = tensors_[k].id;
    for (size_t member = 0; member < partition_.members.size(); ++member) {
      const Operator& op = graph_.operators[partition_.members[member].at()];
      for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
        for (const Access& access : *accesses) {
          if (access.tensor != tensor) continue;
          if (!is_plain(graph_, op, access) || !runs_whole(member)) return false;
          for (size_t axis = 0; axis < access.axes.size(); ++axis) {
            const int own = access.axes[axis].index();
            const int index = own == kFixed ? kNoIndex : partition_.index_of[member][as_index(own)];
            const bool last = axis + 1 == access.axes.size();
            if ((index == vector && index != kNoIndex) != last) return false;
          }
        }
      }
    }
    return true;
  }

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const EnumerateOptions& options_;
  KernelLayouts allowed_;
  const Partition& partition_;
  Collector* collector_ = nullptr;  // of the group that is being added
  std::vector<Order> orders_;
  std::vector<PartitionTensor> tensors_;
  KernelCost cost_;
  int64_t element_bytes_;  // of the narrowest tensor
  bool same_masks_;        // they are too many to choose for each
  bool reduces_ = false;
  Assignment assignment_ = Assignment::any;
  std::vector<OrderPair> groups_;
};

}  // namespace

std::vector<int> indices_of(const Graph& graph, const Partition& partition, TensorId tensor) {
  for (size_t k = 0; k < partition.members.size(); ++k) {
    const Operator& op = graph.operators[partition.members[k].at()];
    for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (const Access& access : *accesses) {
        if (access.tensor != tensor) continue;
        std::vector<int> indices;
        for (const Position& axis : access.axes) {
          // If several indices share an axis, the one with the smallest stride.
          int innermost = kNoIndex;
          int64_t stride = 0;
          for (const IndexTerm& term : axis.terms) {
            const int index = partition.index_of[k][as_index(term.index)];
            if (index == kNoIndex || (innermost != kNoIndex && std::abs(term.stride) >= stride)) continue;
            innermost = index;
            stride = std::abs(term.stride);
          }
          indices.push_back(innermost);
        }
        return indices;
      }
    }
  }
  // A conversion: the space is the tensor's own.
  std::vector<int> indices;
  int next = 0;
  for (const DimId dim : graph.tensor(tensor).dims) indices.push_back(graph.extent(dim) == 1 ? kNoIndex : next++);
  return indices;
}

std::unique_ptr<ConfigGroups> kernel_configs(const Graph& graph, const std::vector<TensorDomain>& domains,
                                             const EnumerateOptions& options, KernelLayouts allowed,
                                             const Partition& partition) {
  return std::make_unique<KernelConfigs>(graph, domains, options, allowed, partition);
}

}  // namespace millrace
