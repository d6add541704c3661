// The ways of an attention: how its operands lie, and how a block's warps share it.
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/text.h"
#include "candidates/configs.h"

namespace millrace {
namespace {

constexpr double kTensorFlopPerSecond = 3e14;  // that such a kernel gets; only the order of candidates depends on it
constexpr int64_t kTile = 16;                  // of a matrix that the tensor cores take
constexpr int64_t kMostColumns = 128;          // that fit a warp's registers
constexpr int64_t kMostColumnsOfTwo = 64;      // and those of two tiles
constexpr int kGroupPanel = 64;                // of what groups of warps multiply
constexpr int64_t kWord = 32;                  // bits
constexpr int64_t kPiece = 8;                  // elements that are copied at once

using Operand = Attention::Operand;

// The order of an operand's indices, outermost first: those of the batch by number, then its rows' and its columns'.
// Operands with the same order lie alike.
using Order = std::vector<int>;

// How some operands lie.
struct Lying {
  Order order;                                  // of the last one
  std::vector<std::pair<size_t, int>> layouts;  // by their places among the partition's tensors
};

class AttentionConfigs {
 public:
  AttentionConfigs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                   const Partition& partition, Collector& collector)
      : graph_(graph),
        domains_(domains),
        options_(options),
        partition_(partition),
        attention_(partition.attention),
        collector_(collector),
        tensors_(tensors_of(partition)) {}

  void run() {
    if (const std::string reason = why_none(); !reason.empty()) return collector_.reject(reason);
    set_fixed();
    const std::vector<Lying> given = lyings_of({Operand::q, Operand::k, Operand::v});
    const std::vector<Lying> results = lyings_of({Operand::o, Operand::d_o});
    const std::vector<Lying> gradients = lyings_of({Operand::d_q, Operand::d_k, Operand::d_v});
    for (const Lying& one : given) {
      for (const Lying& other : results) {
        for (const Lying* gradient : worth_trying(gradients, one, other)) {
          for (const Lying* lying : {&one, &other, gradient}) put(*lying);
          add_under_layouts();
        }
      }
    }
  }

 private:
  std::string why_none() const {
    if (!options_.gpu) return "attentions are fused on a GPU only";
    const DType dtype = graph_.tensor(attention_.tensors[Operand::q]).dtype;
    if (!is_half(dtype)) return concat("an attention in ", name_of(dtype), ": tensor cores take float16 and bfloat16");
    for (const TensorId tensor : attention_.tensors) {
      if (tensor.valid() && tensor != attention_.tensors[Operand::log_sums] && graph_.tensor(tensor).dtype != dtype)
        return "an attention of several types";
    }
    for (const int64_t columns : {attention_.inner, attention_.values}) {
      if (columns % kTile != 0 || columns > kMostColumns)
        return concat("an attention over ", columns, " columns: multiples of ", kTile, " up to ", kMostColumns,
                      " fit the tensor cores");
    }
    return {};
  }

  size_t place_of(TensorId tensor, bool written) const {
    const auto begin = tensors_.begin() + (written ? static_cast<std::ptrdiff_t>(partition_.reads.size()) : 0);
    return static_cast<size_t>(std::find(begin, tensors_.end(), tensor) - tensors_.begin());
  }

  // What lies in one way only: sums of rows, as they are written.
  void set_fixed() {
    layouts_.assign(tensors_.size(), 0);
    const TensorId sums = attention_.tensors[Operand::log_sums];
    layouts_[place_of(sums, attention_.writes(Operand::log_sums))] =
        number_of(sums, [&](const Layout& layout) { return layout == written_layout(graph_, sums); });
    set_mask(MaskStorage::regenerated);
  }

  void set_mask(MaskStorage storage) {
    const auto mask = std::find(tensors_.begin(), tensors_.end(), attention_.mask);
    if (!attention_.mask.valid() || mask == tensors_.end()) return;
    layouts_[static_cast<size_t>(mask - tensors_.begin())] =
        number_of(attention_.mask, [&](const Layout& layout) { return layout.storage == storage; });
  }

  // Masks are drawn in both passes; or forward leaves bits, where a warp's 32 keys are a word of them and it looks at
  // all.
  std::vector<MaskStorage> mask_storages() const {
    if (!attention_.mask.valid() || attention_.causal) return {MaskStorage::regenerated};
    const std::vector<DimId>& dims = graph_.tensor(attention_.mask).dims;
    const bool words = attention_.mask_axes.key + 1 == std::ssize(dims) && attention_.keys % kWord == 0;
    return words ? std::vector{MaskStorage::regenerated, MaskStorage::bits} : std::vector{MaskStorage::regenerated};
  }

  template <class Wanted>
  int number_of(TensorId tensor, Wanted wanted) const {
    const std::vector<Layout>& all = domains_[tensor.at()].layouts;
    return static_cast<int>(std::find_if(all.begin(), all.end(), wanted) - all.begin());
  }

  // The order in which an operand lies in a layout; empty where kernels cannot take it so.
  Order order_in(Operand operand, const Layout& layout) const {
    const Attention::Axes& axes = attention_.axes[operand];
    const int row = axes.row();
    const int batches = static_cast<int>(axes.batch.size());
    Order order;
    for (const int axis : layout.order) {
      const auto batch = std::find(axes.batch.begin(), axes.batch.end(), axis);
      const int index = axis == row           ? batches
                        : axis == axes.column ? batches + 1
                                              : static_cast<int>(batch - axes.batch.begin());
      if (graph_.extent(graph_.tensor(attention_.tensors[operand]).dims[static_cast<size_t>(axis)]) > 1 ||
          index >= batches)
        order.push_back(index);
    }
    const bool by_rows = order.back() == batches + 1;
    const int64_t rows = axes.query >= 0 ? attention_.queries : attention_.keys;
    return by_rows || (order.back() == batches && rows % kPiece == 0) ? order : Order();
  }

  // How the operands of a group, where they are there, can lie: all in one order, or each in any where no order is
  // common to them, as when the caller has them in several.
  std::vector<Lying> lyings_of(const std::vector<Operand>& operands) const {
    std::vector<Lying> apart = {{}};
    std::vector<Lying> timing_class = {{}};
    for (const Operand operand : operands) {
      if (!attention_.tensors[operand].valid()) continue;
      const std::vector<Lying> own = lyings_of(operand);
      apart = joined(apart, own, false);
      timing_class = joined(timing_class, own, true);
    }
    if (timing_class.empty() && apart.empty())
      collector_.reject("an attention whose operands have neither rows nor columns of neighbours");
    return timing_class.empty() ? apart : timing_class;
  }

  std::vector<Lying> lyings_of(Operand operand) const {
    const TensorId tensor = attention_.tensors[operand];
    const TensorDomain& domain = domains_[tensor.at()];
    const size_t place = place_of(tensor, attention_.writes(operand));
    std::vector<Lying> found;
    for (size_t k = 0; k < domain.layouts.size(); ++k) {
      Order order = domain.allows(static_cast<int>(k)) ? order_in(operand, domain.layouts[k]) : Order();
      if (!order.empty()) found.push_back({std::move(order), {{place, static_cast<int>(k)}}});
    }
    return found;
  }

  static std::vector<Lying> joined(const std::vector<Lying>& some, const std::vector<Lying>& own, bool timing_class) {
    std::vector<Lying> made;
    for (const Lying& one : some) {
      for (const Lying& other : own) {
        if (timing_class && !one.layouts.empty() && one.order != other.order) continue;
        Lying both = one;
        both.order = other.order;
        both.layouts.insert(both.layouts.end(), other.layouts.begin(), other.layouts.end());
        made.push_back(std::move(both));
      }
    }
    return made;
  }

  // The products around an attention want few orders: gradients that lie as what they are of, or as the result does,
  // unless they cannot.
  std::vector<const Lying*> worth_trying(const std::vector<Lying>& gradients, const Lying& given, const Lying& result) {
    std::vector<const Lying*> all;
    std::vector<const Lying*> timing_class;
    for (const Lying& one : gradients) {
      all.push_back(&one);
      if (one.layouts.empty() || one.order == given.order || one.order == result.order) timing_class.push_back(&one);
    }
    if (timing_class.empty()) return all;
    if (timing_class.size() < all.size())
      collector_.reject("an attention's gradients in an order of their own",
                        static_cast<double>(all.size() - timing_class.size()));
    return timing_class;
  }

  void put(const Lying& lying) {
    for (const auto& [place, layout] : lying.layouts) layouts_[place] = layout;
  }

  // --- How warps share it ---

  void add_under_layouts() {
    for (const MaskStorage storage : mask_storages()) {
      set_mask(storage);
      add_with_mask();
    }
  }

  void add_with_mask() {
    Candidate candidate;
    candidate.layouts = layouts_;
    std::set<std::array<bool, 3>> begun;  // kinds
    for (const AttentionConfig& config : configs()) {
      if (attention_shared_bytes(attention_, config) > options_.gpu->shared_bytes) {
        collector_.reject("panels that do not fit a multiprocessor's shared memory");
        continue;
      }
      candidate.config = config;
      candidate.estimate = estimate(config);
      const bool first_of_kind = begun.insert({config.wgmma, config.rows_in_smem, config.single_kernel}).second;
      if (first_of_kind || options_.every_shape || has_written_layouts(domains_, partition_, candidate)) {
        collector_.add(candidate);
      } else {
        collector_.count();
      }
    }
  }

  // Lines of shared memory that groups read are of 64 numbers.
  bool fits_groups() const {
    return options_.gpu->wgmma && attention_.inner % kGroupPanel == 0 && attention_.values % kGroupPanel == 0;
  }
  // Where some scores are hidden kernels branch, and ptxas 13.0 forgets a row's registers that a product needs again
  // behind a branch; and in loops over fewer panels than there are stages.
  bool hides() const {
    return attention_.causal || attention_.queries % kGroupPanel != 0 || attention_.keys % kGroupPanel != 0;
  }

  // The first is the one to begin with, and the one that is taken where nothing is measured: no product of groups,
  // which have to be checked. The neighbours of a good one are as good, so they are few. With two tiles a warp reads a
  // panel half as often, where its registers have room for them.
  std::vector<AttentionConfig> configs() const {
    const bool narrow = std::max(attention_.inner, attention_.values) <= kMostColumnsOfTwo;
    const std::vector<int> panels = attention_.backward ? std::vector{64, 32} : std::vector{64, 32, 128};
    const std::vector<int> stages = attention_.backward ? std::vector{2, 1} : std::vector{2, 3};
    std::vector<AttentionConfig> made;
    for (const int warps : {4, 8}) {
      for (const int tiles : {1, 2}) {
        for (const int panel : panels) {
          if (tiles == 2 && (!narrow || panel == 128)) continue;
          for (const int count : stages) made.push_back({warps, tiles, panel, count});
        }
      }
    }
    if (fits_groups()) add_groups(made);
    return with_whole(std::move(made));
  }

  void add_groups(std::vector<AttentionConfig>& made) const {
    for (const int warps : {4, 8}) {
      for (const int count : {2, 3}) {
        const bool short_loop = int64_t{count} * kGroupPanel > std::min(attention_.queries, attention_.keys);
        if (!hides() && (count == 2 || !short_loop)) made.push_back({warps, 1, kGroupPanel, count, true});
        made.push_back({warps, 1, kGroupPanel, count, true, true});
      }
    }
  }

  // And in one kernel, where few of a block's rows have no key; with a tile a warp, since more do not fit its
  // registers.
  std::vector<AttentionConfig> with_whole(std::vector<AttentionConfig> made) const {
    const size_t apart = made.size();
    for (size_t k = 0; k < apart; ++k) {
      AttentionConfig config = made[k];
      config.single_kernel = true;
      if (config.row_tiles == 1 && can_be_single_kernel(attention_, config) &&
          rows_of_block(config) < 2 * attention_.keys)
        made.push_back(config);
    }
    return made;
  }

  // Products at the tensor cores' speed, whatever part of a block's rows and of the last panel is beyond the end.
  double estimate(const AttentionConfig& config) const {
    const auto whole = [](int64_t extent, int64_t step) { return (extent + step - 1) / step * step; };
    const int64_t rows = rows_of_block(config);
    auto scores = static_cast<double>(whole(attention_.queries, rows)) *
                  static_cast<double>(whole(attention_.keys, config.tile_columns));
    for (const int64_t extent : attention_.batch) scores *= static_cast<double>(extent);
    const auto inner = static_cast<double>(attention_.inner);
    const auto values = static_cast<double>(attention_.values);
    const double products = !attention_.backward   ? inner + values
                            : config.single_kernel ? 3 * inner + 2 * values
                                                   : 4 * inner + 3 * values;
    double bytes = 0;
    for (const TensorId tensor : attention_.tensors)
      bytes +=
          tensor.valid() ? static_cast<double>(elements_of(graph_, tensor) * bytes_of(graph_.tensor(tensor).dtype)) : 0;
    return std::max(2 * scores * products / kTensorFlopPerSecond, bytes / kGpuBytesPerSecond) + kGpuLaunchSeconds;
  }

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const EnumerateOptions& options_;
  const Partition& partition_;
  const Attention& attention_;
  Collector& collector_;
  std::vector<TensorId> tensors_;
  std::vector<int> layouts_;  // of the candidates that are being made
};

}  // namespace

void attention_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                       PartitionCandidates& into, Collector& collector) {
  AttentionConfigs(graph, domains, options, into.partition, collector).run();
}

}  // namespace millrace
