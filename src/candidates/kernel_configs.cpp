// Generated kernels: layouts of all tensors, loop orders, vector index, threads.
//
// Layouts are not free of each other: the tensors of a kernel follow one or two orders of its indices. With a third one
// no loop order would read or write all of them along their memory; a conversion before or behind does that better.
// Nor, on a GPU, do large ones lie across the lines that its threads read and write, which moves their bytes eight
// times; a conversion moves them twice. Nor are their masks drawn across the order in which they are numbered: eight
// neighbours come out of one draw.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "candidates/configs.h"

namespace millrace {
namespace {

using Order = std::vector<int>;  // indices of the partition's space, outermost first

constexpr size_t kPermutedIndices = 5;
constexpr double kAllAssignments = 50'000;  // beyond that, reads follow one order and writes the other

// What the byte model takes of a core: only the order of candidates depends on it.
constexpr double kBytesPerSecond = 8e9;
constexpr double kForkSeconds = 3e-6;
constexpr double kDrawSeconds = 1e-9;  // a mask's element

// And of a GPU.
constexpr double kGpuDrawSeconds = 5e-13;
constexpr double kSector = 32;       // bytes that memory gives at once
constexpr double kMostAcross = 8;    // times the bytes, of what is read across its lines: caches keep some of the rest
constexpr double kConversions = 3;   // times the bytes, of what is converted and then read along its lines
constexpr double kOfOneDraw = 8;     // neighbours in a mask
constexpr int64_t kFewestDrawn = 4;  // neighbours for which one draw is made: of fewer, each has its own

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

struct PartitionTensor {
  TensorId id;
  bool written = false;
  bool mask = false;           // it can be something else than words
  std::vector<int> axes;       // the index along each axis
  std::vector<int> innermost;  // one a layout of its domain: the index whose neighbours are neighbours in memory
  std::vector<int> by_order;   // one an order: the layout that follows it, or -1
};

class KernelConfigs {
 public:
  KernelConfigs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                bool written_only, const Partition& partition, Collector& collector)
      : graph_(graph),
        domains_(domains),
        options_(options),
        written_only_(written_only),
        partition_(partition),
        collector_(collector),
        orders_(orders_of(partition.space.size())),
        element_bytes_(narrowest_bytes(graph, partition)) {
    for (const bool written : {false, true}) {
      for (const TensorId id : written ? partition.writes : partition.reads) tensors_.push_back(describe(id, written));
    }
    for (size_t k = 0; k < partition.members.size(); ++k) {
      const Operator& op = graph.operators[partition.members[k].at()];
      draws_ = draws_ || op.kind == OperatorKind::dropout;
      for (size_t index = 0; index < op.space.size(); ++index)
        reduces_ = reduces_ || (op.reduced[index] && partition.index_of[k][index] != kNoIndex);
    }
  }

  void run() {
    std::vector<int> written(tensors_.size(), 0);
    for (size_t k = 0; k < tensors_.size(); ++k) written[k] = std::max(0, domain(k).pinned);
    if (written_only_) return add_with(written, orders_.front(), orders_.front());
    size_t free = 0;
    for (size_t k = 0; k < tensors_.size(); ++k) free += domain(k).layouts.size() > 1 && domain(k).pinned < 0 ? 1 : 0;
    const auto count = static_cast<double>(orders_.size());
    const bool all =
        count * (count + 1) / 2 * static_cast<double>(uint64_t{1} << std::min<size_t>(free, 60)) <= kAllAssignments;
    for (size_t one = 0; one < orders_.size(); ++one) {
      for (size_t two = 0; two < orders_.size(); ++two) {
        if (all ? two >= one : true) assign(one, two, all);
      }
    }
    add_with(written, orders_.front(), orders_.front());
    count_the_rest();
  }

 private:
  const TensorDomain& domain(size_t k) const { return domains_[tensors_[k].id.at()]; }

  PartitionTensor describe(TensorId id, bool written) const {
    PartitionTensor tensor;
    tensor.id = id;
    tensor.written = written;
    tensor.axes = indices_of(graph_, partition_, id);
    const std::vector<Layout>& layouts = domains_[id.at()].layouts;
    for (const Layout& layout : layouts) {
      tensor.mask = tensor.mask || layout.storage != MaskStorage::words;
      int innermost = kNoIndex;
      for (const int axis : layout.order) {
        if (tensor.axes[static_cast<size_t>(axis)] != kNoIndex) innermost = tensor.axes[static_cast<size_t>(axis)];
      }
      tensor.innermost.push_back(innermost);
    }
    for (const Order& order : orders_) {
      const auto place = [&](int axis) {
        const int index = tensor.axes[static_cast<size_t>(axis)];
        return index == kNoIndex ? -1 : std::find(order.begin(), order.end(), index) - order.begin();
      };
      Layout layout = layouts.front();
      std::stable_sort(layout.order.begin(), layout.order.end(), [&](int l, int r) { return place(l) < place(r); });
      const auto found = std::find(layouts.begin(), layouts.end(), layout);
      tensor.by_order.push_back(found == layouts.end() ? -1 : static_cast<int>(found - layouts.begin()));
    }
    return tensor;
  }

  // Every choice of one of two orders for each tensor that has a choice.
  void assign(size_t one, size_t two, bool all) {
    std::vector<int> layouts(tensors_.size(), 0);
    std::vector<size_t> open;
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const TensorDomain& of = domain(k);
      const PartitionTensor& tensor = tensors_[k];
      if (of.pinned >= 0) {
        layouts[k] = of.allows(tensor.by_order[one]) ? tensor.by_order[one] : of.pinned;
      } else if (tensor.by_order[one] < 0 || tensor.by_order[two] < 0) {
        return;
      } else if (!all) {
        layouts[k] = tensor.by_order[tensor.written ? two : one];
      } else if (tensor.by_order[one] == tensor.by_order[two]) {
        layouts[k] = tensor.by_order[one];
      } else {
        open.push_back(k);
      }
    }
    for (uint64_t choice = 0; choice < (uint64_t{1} << open.size()); ++choice) {
      for (size_t k = 0; k < open.size(); ++k) {
        const PartitionTensor& tensor = tensors_[open[k]];
        layouts[open[k]] = tensor.by_order[(choice >> k) & 1 ? two : one];
      }
      add_masks(layouts, orders_[one], orders_[two], 0);
    }
  }

  // Masks as words, as bits, or drawn.
  void add_masks(std::vector<int>& layouts, const Order& one, const Order& two, size_t from) {
    size_t k = from;
    while (k < tensors_.size() && !(tensors_[k].mask && domain(k).pinned < 0)) ++k;
    if (k == tensors_.size()) return add_with(layouts, one, two);
    add_masks(layouts, one, two, k + 1);
    const int as_words = layouts[k];
    for (size_t layout = 0; layout < domain(k).layouts.size(); ++layout) {
      if (domain(k).layouts[layout].storage == MaskStorage::words) continue;
      layouts[k] = static_cast<int>(layout);
      add_masks(layouts, one, two, k + 1);
    }
    layouts[k] = as_words;
  }

  bool has_rows() const {
    return std::any_of(partition_.space.begin(), partition_.space.end(),
                       [](const PartitionIndex& i) { return !i.outer; });
  }

  // A flat nest keeps no row: reductions that a member goes on with need one, and so do different inner spaces.
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
      if (op.kind == OperatorKind::contraction) return false;
    }
    return true;
  }

  // A way for a GPU in every shape.
  void add_shapes(const std::vector<int>& layouts, const KernelConfig& config) {
    if (config.block != kNoIndex) return add_tiles(layouts, config);
    const GpuNest nest = nest_of(config);
    if (nest.lanes && nest.across)
      return collector_.reject("rows in lanes and a sum across rows: a thread would sum over its own lanes");
    add_on_gpu(layouts, config, gpu_shapes(nest, *options_.gpu));
  }

  // A conversion through tiles in shared memory: both sides in whole lines.
  void add_tiles(const std::vector<int>& layouts, const KernelConfig& config) {
    if (!partition_.operators.empty()) return;  // a CPU's blocks
    const auto innermost = [&](size_t k) { return tensors_[k].innermost[static_cast<size_t>(layouts[k])]; };
    if (innermost(0) != config.block || innermost(1) != config.vector) return;
    const int widest = widest_access(bytes_of(graph_.tensor(tensors_[0].id).dtype));
    add_on_gpu(layouts, config, {{widest, 1, 256}, {widest, 1, 512}});
  }

  GpuNest nest_of(const KernelConfig& config) const {
    GpuNest nest;
    nest.rows = config.rows;
    nest.lanes = in_lanes(config);
    const auto inner = [&](int index) {
      return config.rows ? !partition_.space[static_cast<size_t>(index)].outer : index == config.vector;
    };
    for (size_t k = 0; k < partition_.members.size(); ++k) {
      const Operator& op = graph_.operators[partition_.members[k].at()];
      int64_t points = 1;
      bool reduces = false;
      bool exactly_inside = true;
      for (size_t index = 0; index < op.space.size(); ++index) {
        const int own = partition_.index_of[k][index];
        if (own == kNoIndex) continue;
        if (inner(own)) points *= partition_.space[static_cast<size_t>(own)].extent;
        reduces = reduces || op.reduced[index];
        exactly_inside = exactly_inside && op.reduced[index] == inner(own);
      }
      nest.row_points = std::max(nest.row_points, points);
      nest.reduces = nest.reduces || (reduces && exactly_inside);
      nest.across = nest.across || (reduces && !exactly_inside);
    }
    if (config.vector != kNoIndex) nest.vector_extent = partition_.space[static_cast<size_t>(config.vector)].extent;
    nest.element_bytes = element_bytes_;
    return nest;
  }

  // Two orders can give the same way: then all its shapes are there. Most are only counted.
  void add_on_gpu(const std::vector<int>& layouts, const KernelConfig& config, const std::vector<GpuShape>& shapes) {
    Candidate candidate{layouts, config, 0};
    if (!collector_.is_new(candidate)) return;
    const bool as_written = has_written_layouts(domains_, partition_, candidate);
    if (!as_written && !partition_.operators.empty() && should_convert(layouts, config))
      return collector_.reject("a large tensor across the lines that threads read: a conversion does that better",
                               static_cast<double>(shapes.size()));
    if (!as_written && draws_across(layouts, config))
      return collector_.reject("a large mask drawn across its neighbours, of which one draw gives eight",
                               static_cast<double>(shapes.size()));
    int width = 0;
    bool first = true;
    for (const GpuShape& shape : shapes) {
      auto& shaped = std::get<KernelConfig>(candidate.config);
      shaped.gpu = shape;
      if (shares_bytes(layouts, shaped)) {
        collector_.reject("a mask written as bits, and a thread that does not have whole bytes of it");
        continue;
      }
      if (shape.width != width) candidate.estimate = estimate_on_gpu(layouts, shaped);
      width = shape.width;
      const bool wanted = options_.every_shape || as_written || first;
      if (wanted && (as_written || collector_.keeps(layouts, candidate.estimate))) {
        collector_.add_new(candidate);
      } else {
        collector_.count();
      }
      first = false;
    }
  }

  bool shares_bytes(const std::vector<int>& layouts, const KernelConfig& config) const {
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const MaskStorage storage = domain(k).layouts[static_cast<size_t>(layouts[k])].storage;
      if (storage != MaskStorage::bits || !tensors_[k].written) continue;
      const bool along = config.vector != kNoIndex && tensors_[k].axes.back() == config.vector;
      if (!along || width_along(*config.gpu, partition_.space[static_cast<size_t>(config.vector)].extent) != 8)
        return true;
    }
    return false;
  }

  // How many times a tensor's bytes are read or written: a sector for each element, where neighbours among a GPU's
  // threads are none in memory.
  double times_moved(size_t k, const std::vector<int>& layouts, const KernelConfig& config) const {
    const PartitionTensor& tensor = tensors_[k];
    const int innermost = tensor.innermost[static_cast<size_t>(layouts[k])];
    const bool broadcast = std::find(tensor.axes.begin(), tensor.axes.end(), config.vector) == tensor.axes.end();
    if (domain(k).layouts[static_cast<size_t>(layouts[k])].storage != MaskStorage::words || broadcast ||
        innermost == config.vector || innermost == config.block || innermost == beside_vector(config))
      return 1;
    return std::min(kMostAcross, kSector / static_cast<double>(bytes_of(graph_.tensor(tensor.id).dtype)));
  }

  // Where a thread has all of a short vector's index, neighbours among threads run along the next one of a flat nest.
  int beside_vector(const KernelConfig& config) const {
    if (config.rows || config.loops.size() < 2 || config.vector != config.loops.back()) return kNoIndex;
    const bool whole = partition_.space[static_cast<size_t>(config.vector)].extent <= widest_access(element_bytes_);
    return whole ? config.loops[config.loops.size() - 2] : kNoIndex;
  }

  // Whether a tensor that could lie otherwise is better converted.
  bool should_convert(const std::vector<int>& layouts, const KernelConfig& config) const {
    for (size_t k = 0; k < tensors_.size(); ++k) {
      if (domain(k).pinned >= 0 || domain(k).layouts.size() < 2) continue;
      const auto bytes =
          static_cast<double>(stored_bytes(graph_, tensors_[k].id, domain(k).layouts[static_cast<size_t>(layouts[k])]));
      if ((times_moved(k, layouts, config) - kConversions) * bytes / kGpuBytesPerSecond > kGpuLaunchSeconds)
        return true;
    }
    return false;
  }

  // As many times as one draw for each eight elements of a mask; 0 where nothing is drawn.
  double times_drawn(size_t k, const std::vector<int>& layouts, const KernelConfig& config) const {
    const PartitionTensor& tensor = tensors_[k];
    const bool read_as_drawn = domain(k).layouts[static_cast<size_t>(layouts[k])].storage == MaskStorage::regenerated;
    const bool made = tensor.written && !partition_.operators.empty() && dropout_of(graph_, tensor.id) != nullptr;
    if (!made && (tensor.written || !read_as_drawn)) return 0;
    const int neighbours = tensor.innermost.front();  // as written, which is how elements are numbered
    const bool whole =
        neighbours != kNoIndex && partition_.space[static_cast<size_t>(neighbours)].extent % kFewestDrawn == 0;
    return whole && neighbours != config.vector ? kOfOneDraw : 1;
  }

  bool draws_across(const std::vector<int>& layouts, const KernelConfig& config) const {
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const auto elements = static_cast<double>(elements_of(graph_, tensors_[k].id));
      if ((times_drawn(k, layouts, config) - 1) * elements * kGpuDrawSeconds > kGpuLaunchSeconds) return true;
    }
    return false;
  }

  // Seconds by bytes.
  double estimate_on_gpu(const std::vector<int>& layouts, const KernelConfig& config) const {
    double bytes = 0;
    double drawn = 0;
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const Layout& layout = domain(k).layouts[static_cast<size_t>(layouts[k])];
      const double times = times_drawn(k, layouts, config);
      if (times > 0) drawn += times * static_cast<double>(elements_of(graph_, tensors_[k].id));
      bytes += times_moved(k, layouts, config) * static_cast<double>(stored_bytes(graph_, tensors_[k].id, layout));
    }
    const double narrow =
        config.vector == kNoIndex
            ? 1
            : 1 + 0.2 / static_cast<double>(
                            width_along(*config.gpu, partition_.space[static_cast<size_t>(config.vector)].extent));
    return (bytes / kGpuBytesPerSecond + drawn * kGpuDrawSeconds) * narrow + kGpuLaunchSeconds;
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
      if (options_.gpu) {
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
        if (partition_.space[static_cast<size_t>(index)].outer == outer) config.loops.push_back(index);
      }
    }
    config.vector = order.back();
    return config;
  }

  void add(const std::vector<int>& layouts, const KernelConfig& config) {
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const MaskStorage storage = domain(k).layouts[static_cast<size_t>(layouts[k])].storage;
      if (storage == MaskStorage::bits &&
          !(config.block == kNoIndex && !in_lanes(config) && is_in_lines(k, config.vector)))
        return collector_.reject("a mask as bits, and the vector not along its last axis: a byte would be shared");
      if (storage != MaskStorage::words && !tensors_[k].written && config.block != kNoIndex)
        return collector_.reject("masks are drawn and unpacked a line at a time: not in blocks");
    }
    if (reduces_ && config.block != kNoIndex)
      return collector_.reject("a nest in blocks transposes: it does not reduce");
    if (draws_ && config.block != kNoIndex)
      return collector_.reject("masks are drawn and unpacked a line at a time: not in blocks");
    collector_.add({layouts, config, estimate(layouts, config)});
  }

  // Whether every access of a tensor runs along the index with its last axis, and with no other.
  bool is_in_lines(size_t k, int vector) const {
    const TensorId tensor = tensors_[k].id;
    for (size_t member = 0; member < partition_.members.size(); ++member) {
      const Operator& op = graph_.operators[partition_.members[member].at()];
      for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
        for (const Access& access : *accesses) {
          if (access.tensor != tensor) continue;
          for (size_t axis = 0; axis < access.axes.size(); ++axis) {
            const int own = access.axes[axis];
            const int index = own == kFixed ? kNoIndex : partition_.index_of[member][static_cast<size_t>(own)];
            const bool last = axis + 1 == access.axes.size();
            if ((index == vector && index != kNoIndex) != last) return false;
          }
        }
      }
    }
    return true;
  }

  bool in_lanes(const KernelConfig& config) const {
    return config.rows && config.vector != kNoIndex && partition_.space[static_cast<size_t>(config.vector)].outer;
  }

  // Seconds by bytes: a tensor that is not contiguous along the vector costs a cache line for each element.
  double estimate(const std::vector<int>& layouts, const KernelConfig& config) const {
    double bytes = 0;
    double drawn = draws_ ? 1 : 0;
    double points = 1;
    for (const PartitionIndex& index : partition_.space) points *= static_cast<double>(index.extent);
    for (size_t k = 0; k < tensors_.size(); ++k) {
      const Layout& layout = domain(k).layouts[static_cast<size_t>(layouts[k])];
      const auto size = static_cast<double>(stored_bytes(graph_, tensors_[k].id, layout));
      const int innermost = tensors_[k].innermost[static_cast<size_t>(layouts[k])];
      const std::vector<int>& axes = tensors_[k].axes;
      const bool broadcast = std::find(axes.begin(), axes.end(), config.vector) == axes.end();
      double factor = 1;
      if (layout.storage == MaskStorage::words && !broadcast && innermost != config.vector)
        factor = innermost == config.block ? 1.5 : 4;
      if (layout.storage == MaskStorage::regenerated && !tensors_[k].written) drawn += 1;
      bytes += size * factor * (follows(tensors_[k], layout, config.loops) ? 1 : 1.05);
    }
    const double threads = config.threads;
    return (bytes / kBytesPerSecond + points * drawn * kDrawSeconds) / threads +
           (config.threads > 1 ? kForkSeconds : 0);
  }

  bool follows(const PartitionTensor& tensor, const Layout& layout, const std::vector<int>& loops) const {
    auto at = loops.begin();
    for (const int axis : layout.order) {
      const int index = tensor.axes[static_cast<size_t>(axis)];
      if (index == kNoIndex) continue;
      at = std::find(at, loops.end(), index);
      if (at == loops.end()) return false;
    }
    return true;
  }

  void count_the_rest() {
    double all = 1;
    for (size_t k = 0; k < tensors_.size(); ++k) {
      if (domain(k).pinned < 0) all *= static_cast<double>(std::max<size_t>(1, domain(k).layouts.size()));
    }
    collector_.reject("combinations of layouts in all, of which those that follow at most two orders are tried", all);
  }

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const EnumerateOptions& options_;
  bool written_only_;
  const Partition& partition_;
  Collector& collector_;
  std::vector<Order> orders_;
  std::vector<PartitionTensor> tensors_;
  int64_t element_bytes_;  // of the narrowest tensor
  bool draws_ = false;
  bool reduces_ = false;
};

}  // namespace

std::vector<int> indices_of(const Graph& graph, const Partition& partition, TensorId tensor) {
  for (size_t k = 0; k < partition.members.size(); ++k) {
    const Operator& op = graph.operators[partition.members[k].at()];
    for (const std::vector<Access>* accesses : {&op.inputs, &op.outputs}) {
      for (const Access& access : *accesses) {
        if (access.tensor != tensor) continue;
        std::vector<int> indices;
        for (const int index : access.axes)
          indices.push_back(index == kFixed ? kNoIndex : partition.index_of[k][static_cast<size_t>(index)]);
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

void kernel_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                    bool written_only, PartitionCandidates& into, Collector& collector) {
  KernelConfigs(graph, domains, options, written_only, into.partition, collector).run();
}

}  // namespace millrace
