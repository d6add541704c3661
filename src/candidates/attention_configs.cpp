// The configs of an attention: the layouts of its operands, and how a block's warps share the work.
// cpu_attention_configs.h has those of a CPU.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
#include "candidates/configs.h"
#include "candidates/cpu_attention_configs.h"
#include "ir/row_vectors.h"

namespace millrace {
namespace {

constexpr double kTensorFlopPerSecond = 3e14;  // of such a kernel; only the order of candidates depends on it
constexpr int64_t kMostColumns = 256;          // beyond 128 a warp's registers spill
constexpr int64_t kMostColumnsOfTwo = 64;      // that fit with two row tiles
constexpr int64_t kMostColumnsOfWgmma = 128;   // that fit with wgmma
constexpr int kWgmmaTile = 64;                 // extent of a wgmma tile
constexpr int64_t kWord = 32;                  // bits
constexpr int64_t kCopied = 8;                 // elements copied at once

using Operand = Attention::Operand;

// The order of an operand's indices in memory, outermost first, without those that keys lack. Numbers: those of the
// batch, then the row, then the column.
using Order = std::vector<int>;

// Layouts of some operands.
struct OperandLayouts {
  Order order;                                  // of the last operand
  std::vector<std::pair<size_t, int>> layouts;  // by position among the partition's tensors
};

// A group has one layout of q, k and v.
class AttentionConfigs : public ConfigGroups {
 public:
  AttentionConfigs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                   const Partition& partition)
      : graph_(graph),
        domains_(domains),
        options_(options),
        partition_(partition),
        attention_(partition.attention),
        tensors_(tensors_of(partition)) {
    if (why_rejected()) return;
    seen_share_ = seen_share();
    set_fixed();
    if (options_.target.gpu) not_by_cudnn_ = why_not_by_cudnn(graph_, partition_);
    given_ = layouts_of_operands({Operand::q, Operand::k, Operand::v});
    results_ = layouts_of_operands({Operand::o, Operand::d_o});
    gradients_ = layouts_of_operands({Operand::d_q, Operand::d_k, Operand::d_v});
    terms_ = layouts_of_terms();
  }

  size_t count() const override { return given_.size(); }
  double combinations(size_t /*group*/) const override {
    return static_cast<double>(results_.size() * std::min<size_t>(gradients_.size(), 2));
  }
  // Layouts do not change the estimate.
  double bound(size_t /*group*/) override { return 0; }

  std::vector<std::vector<int>> layouts(size_t group) const override {
    std::vector<std::vector<int>> made(tensors_.size());
    for (const auto& [position, layout] : given_[group].layouts) made[position] = {layout};
    return made;
  }

  bool may_be_written(size_t group) const override {
    return std::all_of(given_[group].layouts.begin(), given_[group].layouts.end(),
                       [&](const auto& each) { return each.second == domains_[tensors_[each.first].at()].written(); });
  }

  void add(size_t group, Collector& into) override {
    collector_ = &into;
    for (const OperandLayouts& result : results_) {
      for (const OperandLayouts* gradient : worth_trying(gradients_, given_[group], result)) {
        for (const OperandLayouts* chosen : {&std::as_const(given_[group]), &result, gradient}) set(*chosen);
        for (const OperandLayouts& terms : terms_) {
          set(terms);
          add_under_layouts();
        }
      }
    }
  }

  void reject_others(Collector& into) const override {
    if (const std::optional<std::string> reason = why_rejected()) return into.reject(*reason);
    for (const std::vector<OperandLayouts>* each : {&given_, &results_, &gradients_}) {
      if (each->empty()) into.reject("an attention whose operands have neither contiguous rows nor contiguous columns");
    }
  }

 private:
  std::optional<std::string> why_rejected() const {
    if (!options_.target.fused_attention) return "the device has no fused attention";
    if (!options_.target.gpu) return why_not_on_cpu(graph_, attention_);
    const DType dtype = graph_.tensor(attention_.tensors[Operand::q]).dtype;
    if (!is_half(dtype)) return concat("an attention in ", name_of(dtype), ": tensor cores take float16 and bfloat16");
    for (const TensorId tensor : attention_.tensors) {
      if (tensor.valid() && tensor != attention_.tensors[Operand::log_sums] && graph_.tensor(tensor).dtype != dtype)
        return "an attention of several types";
    }
    if (has_wide(attention_.score.terms)) return "an attention with a term in float64";
    for (const RowExpression& rows : attention_.rows) {
      if (has_wide(rows.terms)) return "an attention with a term in float64";
      if (!row_vectors(rows)) return "computed rows: pieces that begin or end at an odd column";
    }
    for (const int64_t columns : {attention_.inner, attention_.values}) {
      if (columns % kCopied != 0 || columns > kMostColumns)
        return concat("an attention over ", columns, " columns: multiples of ", kCopied, " up to ", kMostColumns,
                      " fit the tensor cores");
    }
    return std::nullopt;
  }

  bool has_wide(const std::vector<AttentionTensor>& terms) const {
    return std::any_of(terms.begin(), terms.end(),
                       [&](const AttentionTensor& term) { return graph_.tensor(term.tensor).dtype == DType::float64; });
  }

  // Tensors that rows are computed from, and the statistics of rows, have their written layout; the mask is set later.
  void set_fixed() {
    for (const TensorId tensor : tensors_) layouts_.push_back(domains_[tensor.at()].written());
    const TensorId sums = attention_.tensors[Operand::log_sums];
    layouts_[position_of(partition_, Operand::log_sums)] =
        number_of(sums, [&](const Layout& layout) { return layout == written_layout(graph_, sums); });
    set_mask(MaskStorage::regenerated);
  }

  // The layouts of the scores' terms and of a term's gradient: that of the program or the caller, and one where
  // neighbouring keys are contiguous, which kernels read fastest.
  std::vector<OperandLayouts> layouts_of_terms() const {
    OperandLayouts written;
    OperandLayouts keys_last;
    const auto add = [&](const AttentionTensor& term, size_t from) {
      const auto found = std::find(tensors_.begin() + static_cast<std::ptrdiff_t>(from), tensors_.end(), term.tensor);
      const auto position = static_cast<size_t>(found - tensors_.begin());
      written.layouts.emplace_back(position, domains_[term.tensor.at()].written());
      keys_last.layouts.emplace_back(position, keys_innermost(term));
    };
    for (const AttentionTensor& term : attention_.score.terms) add(term, 0);
    if (attention_.d_term.valid()) add({attention_.d_term, attention_.d_term_axes}, partition_.reads.size());
    return written.layouts == keys_last.layouts ? std::vector{written} : std::vector{written, keys_last};
  }
  int keys_innermost(const AttentionTensor& term) const {
    const TensorDomain& domain = domains_[term.tensor.at()];
    const auto rank = [&](const Layout& layout) {
      const bool keys = !layout.order.empty() && layout.order.back() == term.axes.key;
      const bool queries = layout.order.size() > 1 && layout.order[layout.order.size() - 2] == term.axes.query;
      return layout.storage != domain.layouts[as_index(domain.written())].storage ? -1 : keys ? (queries ? 2 : 1) : 0;
    };
    int best = domain.written();
    for (size_t k = 0; k < domain.layouts.size(); ++k) {
      const bool allowed = domain.allows(static_cast<int>(k));
      if (allowed && rank(domain.layouts[k]) > rank(domain.layouts[as_index(best)])) best = static_cast<int>(k);
    }
    return best;
  }

  void set_mask(MaskStorage storage) {
    const auto mask = std::find(tensors_.begin(), tensors_.end(), attention_.mask);
    if (!attention_.mask.valid() || mask == tensors_.end()) return;
    layouts_[as_index(mask - tensors_.begin())] =
        number_of(attention_.mask, [&](const Layout& layout) { return layout.storage == storage; });
  }

  // Both passes generate the mask, or forward stores it as bits. On a GPU it stores bits only if the bits of a warp's
  // 32 keys are one word. With a window it does not: it would generate many more bits than backward reads.
  std::vector<MaskStorage> mask_storages() const {
    if (!attention_.mask.valid() || attention_.window) return {MaskStorage::regenerated};
    const std::vector<DimId>& dims = graph_.tensor(attention_.mask).dims;
    const bool words =
        attention_.mask_axes.key + 1 == std::ssize(dims) && (!options_.target.gpu || attention_.keys % kWord == 0);
    return words ? std::vector{MaskStorage::regenerated, MaskStorage::bits} : std::vector{MaskStorage::regenerated};
  }

  template <class Wanted>
  int number_of(TensorId tensor, Wanted wanted) const {
    const std::vector<Layout>& all = domains_[tensor.at()].layouts;
    return static_cast<int>(std::find_if(all.begin(), all.end(), wanted) - all.begin());
  }

  // Whether the columns have one stride, if they have two indices.
  static bool has_adjacent_columns(const Attention::Axes& axes, const Layout& layout) {
    if (axes.outer_column < 0) return true;
    const auto outer = std::find(layout.order.begin(), layout.order.end(), axes.outer_column);
    return outer != layout.order.end() && outer + 1 != layout.order.end() && *(outer + 1) == axes.column;
  }

  // The order of an operand in a layout; empty if kernels do not support it.
  Order order_in(Operand operand, const Layout& layout) const {
    const Attention::Axes& axes = attention_.axes[operand];
    const int row = axes.row();
    const int batches = static_cast<int>(axes.batch.size());
    Order order;
    if (!has_adjacent_columns(axes, layout)) return {};
    for (const int axis : layout.order) {
      if (axis == axes.outer_column) continue;
      const auto batch = std::find(axes.batch.begin(), axes.batch.end(), axis);
      const int index = axis == row           ? batches
                        : axis == axes.column ? batches + 1
                                              : static_cast<int>(batch - axes.batch.begin());
      if (graph_.extent(graph_.tensor(attention_.tensors[operand]).dims[as_index(axis)]) > 1 || index >= batches)
        order.push_back(index);
    }
    const bool by_rows = order.back() == batches + 1;
    const bool by_columns = order.back() == batches;
    const int64_t rows = axes.query >= 0 ? attention_.queries : attention_.keys;
    if (!by_rows && (!by_columns || (options_.target.gpu && rows % kCopied != 0))) return {};
    std::erase_if(order, [&](int index) { return index < batches && attention_.is_group(as_index(index)); });
    return order;
  }

  // The layouts of the operands that this pass has: all in one order; or, if they have no order in common, as when the
  // caller pins them differently, each in any order.
  std::vector<OperandLayouts> layouts_of_operands(const std::vector<Operand>& operands) const {
    std::vector<OperandLayouts> any_order = {{}};
    std::vector<OperandLayouts> same_order = {{}};
    for (const Operand operand : operands) {
      if (!attention_.tensors[operand].valid()) continue;
      const std::vector<OperandLayouts> own = layouts_of_operand(operand);
      any_order = joined(any_order, own, Orders::any);
      same_order = joined(same_order, own, Orders::same);
    }
    return same_order.empty() ? any_order : same_order;
  }

  std::vector<OperandLayouts> layouts_of_operand(Operand operand) const {
    const TensorId tensor = attention_.tensors[operand];
    const TensorDomain& domain = domains_[tensor.at()];
    const size_t position = position_of(partition_, operand);
    std::vector<OperandLayouts> found;
    for (size_t k = 0; k < domain.layouts.size(); ++k) {
      Order order = domain.allows(static_cast<int>(k)) ? order_in(operand, domain.layouts[k]) : Order();
      if (!order.empty()) found.push_back({std::move(order), {{position, static_cast<int>(k)}}});
    }
    return found;
  }

  enum class Orders { any, same };

  static std::vector<OperandLayouts> joined(const std::vector<OperandLayouts>& some,
                                            const std::vector<OperandLayouts>& own, Orders orders) {
    std::vector<OperandLayouts> made;
    for (const OperandLayouts& one : some) {
      for (const OperandLayouts& other : own) {
        if (orders == Orders::same && !one.layouts.empty() && one.order != other.order) continue;
        OperandLayouts both = one;
        both.order = other.order;
        both.layouts.insert(both.layouts.end(), other.layouts.begin(), other.layouts.end());
        made.push_back(std::move(both));
      }
    }
    return made;
  }

  // Neighbouring products want few orders: that of the operands, or that of the result. Other orders of the gradients
  // are tried only if neither is possible.
  std::vector<const OperandLayouts*> worth_trying(const std::vector<OperandLayouts>& gradients,
                                                  const OperandLayouts& given, const OperandLayouts& result) {
    std::vector<const OperandLayouts*> all;
    std::vector<const OperandLayouts*> matching;
    for (const OperandLayouts& one : gradients) {
      all.push_back(&one);
      if (one.layouts.empty() || one.order == given.order || one.order == result.order) matching.push_back(&one);
    }
    if (matching.empty()) return all;
    if (matching.size() < all.size())
      collector_->reject("an attention's gradients in an order that no other operand has",
                         static_cast<double>(all.size() - matching.size()));
    return matching;
  }

  void set(const OperandLayouts& chosen) {
    for (const auto& [position, layout] : chosen.layouts) layouts_[position] = layout;
  }

  void add_under_layouts() {
    for (const MaskStorage storage : mask_storages()) {
      set_mask(storage);
      if (options_.target.gpu)
        add_with_mask();
      else
        add_on_cpu();
    }
    if (options_.target.gpu && options_.target.gpu->cudnn) add_cudnn();
  }

  void add_on_cpu() {
    for (const CpuAttentionConfig& config : cpu_attention_configs(attention_, options_.threads))
      collector_->add({layouts_, config, millrace::estimate(graph_, attention_, config, seen_share_)});
  }

  // --- How warps share the work ---

  // Adds cuDNN after our own kernels with these layouts, and with the estimate of the first of them. Unless something
  // is measured, ours are selected, because only the library itself says whether it computes this attention.
  void add_cudnn() {
    if (not_by_cudnn_) return collector_->reject(*not_by_cudnn_);
    Candidate candidate{layouts_, CudnnConfig(), estimate(configs().front())};
    if (!cudnn_axes(graph_, partition_, layouts_of(domains_, partition_, candidate)))
      return collector_->reject("cuDNN: an attention without contiguous columns, or with heads in several strides");
    collector_->add(std::move(candidate));
  }

  void add_with_mask() {
    Candidate candidate;
    candidate.layouts = layouts_;
    std::set<std::array<bool, 5>> seen;  // kinds of config
    for (const AttentionConfig& config : configs()) {
      if (const std::optional<std::string> reason = why_not_with_rows(attention_, config)) {
        collector_->reject(*reason);
        continue;
      }
      if (attention_shared_bytes(attention_, config) > options_.target.gpu->shared_bytes) {
        collector_->reject("tiles that do not fit a multiprocessor's shared memory");
        continue;
      }
      candidate.config = config;
      candidate.estimate = estimate(config);
      const bool first_of_kind = seen.insert({config.wgmma, config.rows_in_smem, config.single_kernel,
                                              config.specialized, config.head_splits > 1})
                                     .second;
      if (first_of_kind || options_.every_shape || has_written_layouts(domains_, partition_, candidate)) {
        collector_->add(candidate);
      } else {
        collector_->count();
      }
    }
  }

  // wgmma reads lines of 64 elements from shared memory.
  bool fits_wgmma() const {
    return options_.target.gpu->wgmma && attention_.inner % kWgmmaTile == 0 && attention_.values % kWgmmaTile == 0 &&
           std::max(attention_.inner, attention_.values) <= kMostColumnsOfWgmma;
  }
  // Kernels that mask some scores branch, and after a branch ptxas 13.0 loses registers of a row that a later product
  // needs. The same happens in loops over fewer tiles than stages.
  bool masks_scores() const {
    return !attention_.is_plain() || attention_.queries % kWgmmaTile != 0 || attention_.keys % kWgmmaTile != 0;
  }

  // The first is tried first, and is selected if nothing is measured: it does not use wgmma, which has to be checked.
  // There are few, because similar configs take similar times. With two row tiles, if its registers have room for them,
  // a warp reads each tile half as often.
  std::vector<AttentionConfig> configs() const {
    const bool narrow = std::max(attention_.inner, attention_.values) <= kMostColumnsOfTwo;
    const std::vector<int> columns = attention_.backward ? std::vector{64, 32} : std::vector{64, 32, 128};
    const std::vector<int> stages = attention_.backward ? std::vector{2, 1} : std::vector{2, 3};
    std::vector<AttentionConfig> made;
    for (const int warps : {4, 8}) {
      for (const int row_tiles : {1, 2}) {
        for (const int tile_columns : columns) {
          if (row_tiles == 2 && (!narrow || tile_columns == 128)) continue;
          for (const int count : stages) made.push_back({warps, row_tiles, tile_columns, count});
        }
      }
    }
    if (fits_wgmma()) add_wgmma(made);
    return with_single_kernel(std::move(made));
  }

  void add_wgmma(std::vector<AttentionConfig>& made) const {
    for (const int warps : {4, 8}) {
      for (const int count : {2, 3}) {
        const bool short_loop = int64_t{count} * kWgmmaTile > std::min(attention_.queries, attention_.keys);
        if (!masks_scores() && (count == 2 || !short_loop)) made.push_back({warps, 1, kWgmmaTile, count, true});
        made.push_back({warps, 1, kWgmmaTile, count, true, true});
      }
    }
    if (attention_.queries > kWgmmaTile && attention_.keys > kWgmmaTile) add_specialized(made);
  }

  // Three warpgroups multiply, with 160 registers for each thread, where nothing spills.
  void add_specialized(std::vector<AttentionConfig>& made) const {
    const bool narrow = std::max(attention_.inner, attention_.values) <= kMostColumnsOfTwo;
    const auto add = [&](int warps, int columns, int stages) {
      made.push_back({warps, 1, columns, stages, true, true, false, true});
    };
    if (!attention_.backward) {
      add(12, kWgmmaTile, 3);
      if (narrow && !attention_.mask.valid()) add(12, 2 * kWgmmaTile, 2);
      for (const int stages : {2, 3}) add(8, 2 * kWgmmaTile, stages);
      add(8, kWgmmaTile, 3);
    } else {
      if (narrow) add(12, kWgmmaTile, 3);
      for (const int stages : {3, 2, 4}) add(8, kWgmmaTile, stages);
      const int heads = attention_.d_term.valid() ? 1 : static_cast<int>(attention_.heads_per_group());
      for (int splits = 2; splits <= heads; ++splits) {
        if (heads % splits == 0 && (splits == 2 || splits == heads))
          made.push_back({8, 1, kWgmmaTile, 3, true, true, false, true, splits});
      }
    }
  }

  // For each config there is also one with backward in a single kernel, if few of a block's rows have no key. It has
  // one row tile, since two do not fit a warp's registers.
  std::vector<AttentionConfig> with_single_kernel(std::vector<AttentionConfig> made) const {
    const size_t count = made.size();
    for (size_t k = 0; k < count; ++k) {
      AttentionConfig config = made[k];
      config.single_kernel = true;
      if (config.row_tiles == 1 && !config.specialized && can_be_single_kernel(attention_, config) &&
          rows_of_block(config) < 2 * attention_.keys)
        made.push_back(config);
    }
    return made;
  }

  // The share of the scores that a window leaves.
  double seen_share() const {
    const KeyWindow window = attention_.keys_seen();
    double seen = 0;
    for (int64_t query = 0; query < attention_.queries; ++query) {
      const int64_t first = std::max<int64_t>(0, query + window.first);
      const int64_t last = std::min(attention_.keys - 1, query + window.last);
      seen += static_cast<double>(std::max<int64_t>(0, last - first + 1));
    }
    return seen / static_cast<double>(attention_.queries) / static_cast<double>(attention_.keys);
  }

  // How many columns the products of one score run over, in all. Each kernel of backward computes the scores and their
  // gradients.
  double products_of(const AttentionConfig& config) const {
    const auto inner = static_cast<double>(attention_.inner);
    const auto values = static_cast<double>(attention_.values);
    const double both = inner + values;
    if (!attention_.backward) return both;
    if (config.single_kernel) return 3 * inner + 2 * values;
    const double d_k = attention_.has(Operand::d_k) ? inner : 0;
    const double d_v = attention_.has(Operand::d_v) ? values : 0;
    return (attention_.has(Operand::d_q) ? both + inner : 0) + (d_k + d_v > 0 ? both + d_k + d_v : 0) +
           (attention_.d_term.valid() ? both : 0);
  }

  // Products at the tensor cores' speed, including the rows and columns of partly filled tiles.
  double estimate(const AttentionConfig& config) const {
    const auto rounded_up = [](int64_t extent, int64_t step) { return (extent + step - 1) / step * step; };
    const int64_t rows = rows_of_block(config);
    const double scores = static_cast<double>(attention_.heads()) *
                          static_cast<double>(rounded_up(attention_.queries, rows)) *
                          static_cast<double>(rounded_up(attention_.keys, config.tile_columns)) * seen_share_;
    const double products = products_of(config);
    double bytes = 0;
    for (const TensorId tensor : attention_.tensors)
      bytes +=
          tensor.valid() ? static_cast<double>(elements_of(graph_, tensor) * bytes_of(graph_.tensor(tensor).dtype)) : 0;
    return std::max(2 * scores * products / kTensorFlopPerSecond * imbalance(config), bytes / kGpuBytesPerSecond) +
           split_seconds(config) + kGpuLaunchSeconds;
  }

  // How much longer the busiest multiprocessor takes than the average one, if each has one block.
  double imbalance(const AttentionConfig& config) const {
    if (!config.specialized) return 1;
    const int64_t rows = rows_of_block(config);
    const int64_t shares = attention_.backward ? attention_.heads() / attention_.heads_per_group() * config.head_splits
                                               : attention_.heads();
    const int64_t blocks = shares * (((attention_.backward ? attention_.keys : attention_.queries) + rows - 1) / rows);
    // The time of the longest block, relative to the average one.
    const double longest = attention_.causal && !attention_.window ? 1 / seen_share_ : 1;
    return std::max(1.0, longest * options_.target.gpu->multiprocessors / static_cast<double>(blocks));
  }

  // The sums of each split are written and read once more, as floats.
  double split_seconds(const AttentionConfig& config) const {
    if (config.head_splits == 1) return 0;
    constexpr double kBytes = 2 * sizeof(float);
    const int64_t groups = attention_.heads() / attention_.heads_per_group();
    const int64_t sums = groups * config.head_splits * attention_.keys * (attention_.inner + attention_.values);
    return static_cast<double>(sums) * kBytes / kGpuBytesPerSecond + kGpuLaunchSeconds;
  }

  const Graph& graph_;
  const std::vector<TensorDomain>& domains_;
  const EnumerateOptions& options_;
  const Partition& partition_;
  const Attention& attention_;
  std::vector<TensorId> tensors_;
  std::vector<OperandLayouts> given_;      // of q, k and v
  std::vector<OperandLayouts> results_;    // of o and d_o
  std::vector<OperandLayouts> gradients_;  // of d_q, d_k and d_v
  std::vector<OperandLayouts> terms_;      // of the terms of the scores, and of the gradient of one
  std::optional<std::string> not_by_cudnn_;
  Collector* collector_ = nullptr;  // of the group that is being added
  double seen_share_ = 1;
  std::vector<int> layouts_;  // of the next candidates
};

}  // namespace

std::unique_ptr<ConfigGroups> attention_configs(const Graph& graph, const std::vector<TensorDomain>& domains,
                                                const EnumerateOptions& options, const Partition& partition) {
  return std::make_unique<AttentionConfigs>(graph, domains, options, partition);
}

}  // namespace millrace
