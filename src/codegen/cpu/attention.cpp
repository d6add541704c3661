// Writes a struct of sizes, functions that locate a head's tensors, and calls of prelude/cpu_attention*.h in threads.
#include "codegen/cpu/attention.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "base/position.h"
#include "base/text.h"
#include "codegen/cpu/attention_rows.h"
#include "codegen/cpu/attention_score.h"
#include "codegen/nest.h"

namespace millrace {
namespace {

using Operand = Attention::Operand;

int64_t rounded_up(int64_t extent, int64_t step) { return (extent + step - 1) / step * step; }

// Sizes in scratch memory as prelude/cpu_attention*.h takes them, in bytes.
class CpuAttentionMemory {
 public:
  CpuAttentionMemory(const Attention& attention, const CpuAttentionConfig& config)
      : queries_(rounded_up(attention.queries, config.tile_queries)),
        keys_(rounded_up(attention.keys, config.tile_keys)),
        inner_(rounded_up(attention.inner, kLanes)),
        values_(rounded_up(attention.values, kLanes)),
        tile_queries_(config.tile_queries),
        tile_keys_(config.tile_keys),
        attention_(attention) {}

  // struct ForwardMemory
  int64_t forward() const {
    return sum({keys_ * attention_.inner, keys_ * values_, tile_queries_ * inner_, tile_queries_ * tile_keys_,
                tile_queries_ * values_, tile_keys_ + kLanes, tile_queries_, tile_queries_});
  }
  // struct BackwardMemory
  int64_t backward() const {
    const int64_t queries = attention_.heads_per_group() * queries_;
    return tile(queries) + sum({tile_keys_ * inner_, tile_keys_ * values_, queries * inner_});
  }
  // struct TermMemory
  int64_t term() const { return tile(tile_queries_) + sum({tile_queries_ * tile_keys_}); }

 private:
  static constexpr int64_t kLanes = 16;
  static constexpr int64_t kFloat = 4;
  static constexpr int64_t kLine = 64;

  static int64_t sum(std::initializer_list<int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0},
                           [](int64_t bytes, int64_t count) { return bytes + rounded_up(kFloat * count, kLine); });
  }
  // structs PackedQueries, PackedKeys and GradientTile
  int64_t tile(int64_t queries) const {
    return sum({queries * inner_, queries * values_, queries, queries, tile_keys_ * inner_,
                tile_keys_ * attention_.inner, tile_keys_ * attention_.values, tile_queries_ * tile_keys_,
                tile_queries_ * tile_keys_, tile_keys_ + kLanes});
  }

  int64_t queries_;
  int64_t keys_;
  int64_t inner_;
  int64_t values_;
  int64_t tile_queries_;
  int64_t tile_keys_;
  const Attention& attention_;
};

// Types of S: a matrix in memory, or a struct that computes or stores its rows.
constexpr std::array<std::pair<Operand, const char*>, 4> kRowStructs = {
    {{Operand::q, "Q"}, {Operand::k, "K"}, {Operand::d_q, "Dq"}, {Operand::d_k, "Dk"}}};

class CpuAttentionGenerator {
 public:
  CpuAttentionGenerator(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                        const CpuAttentionConfig& config)
      : graph_(graph),
        partition_(partition),
        attention_(partition.attention),
        layouts_(layouts),
        config_(config),
        tensors_(tensors_of(partition)),
        formulas_(graph, partition, layouts) {
    for (size_t k = 0; k < Attention::kOperands; ++k)
      rows_.emplace_back(graph, partition, layouts, static_cast<Operand>(k));
  }

  KernelText run() {
    add_values();
    for (const auto& [operand, name] : kRowStructs) {
      if (!rows_[operand].empty()) made_.text += rows_[operand].definition(concat("MILLRACE_KERNEL_", name));
    }
    made_.text += sizes_text();
    if (attention_.has_score_expression()) made_.text += formulas_.definition("MILLRACE_KERNEL_score");
    line(0, "extern \"C\" __attribute__((visibility(\"default\"))) void MILLRACE_KERNEL(const mr::Arguments* args) {");
    line(1, "using S = MILLRACE_KERNEL_sizes;");
    line(1, concat("using X = ", attention_.has_score_expression() ? "MILLRACE_KERNEL_score;" : "mr::PlainScore;"));
    line(1, "using T = S::T;");
    line(1, "const auto value = [&](long number) { return static_cast<long>(args->values[number]); };");
    add_scale();
    if (attention_.mask.valid())
      line(1, concat("const mr::Dropout dropout(args, args->subsequences[0], args->values[", rate_, "]);"));
    add_head_function("head", [&](size_t k) { return attention_.is_group(k); });
    if (attention_.backward)
      add_backward();
    else
      add_forward();
    line(0, "}");
    return std::move(made_);
  }

 private:
  void line(int depth, const std::string& content) {
    made_.text += std::string(static_cast<size_t>(2 * depth), ' ') + content + "\n";
  }

  static int64_t stride(const std::vector<int64_t>& strides, int axis) {
    return axis < 0 ? 0 : strides[as_index(axis)];
  }

  // --- Arguments ---

  void add_values() {
    for (const TensorId scale : attention_.scales) made_.values.push_back({scale, 0});
    if (attention_.mask.valid()) {
      const Operator& dropout = *dropout_of(graph_, attention_.mask);
      rate_ = made_.values.size();
      made_.values.push_back({TensorId(), dropout.value});
      made_.subsequences.push_back(dropout.subsequence);
    }
    for (size_t k = 0; k < Attention::kOperands; ++k) {
      if (!attention_.tensors[k].valid()) continue;
      const Attention::Axes& axes = attention_.axes[k];
      strides_[k] = add_strides(attention_.tensors[k], position_of(partition_, static_cast<Operand>(k)),
                                {axes.row(), axes.column}, axes.batch);
    }
    if (attention_.d_term.valid()) {
      const Attention::Axes& axes = attention_.d_term_axes;
      term_strides_ = add_strides(attention_.d_term, term_position(), {axes.query, axes.key}, axes.batch);
    }
    formulas_.add_values(made_.values);
    for (CpuRowFormulas& rows : rows_) rows.add_values(made_.values);
  }

  // Returns the position of the first one.
  size_t add_strides(TensorId tensor, size_t position, const std::vector<int>& axes, const std::vector<int>& batch) {
    const size_t first = made_.values.size();
    const std::vector<int64_t> all = strides_of(graph_, tensor, layouts_[position]);
    for (const std::vector<int>* const each : {&axes, &batch}) {
      for (const int axis : *each) made_.values.push_back({TensorId(), static_cast<double>(stride(all, axis))});
    }
    return first;
  }

  size_t term_position() const {
    const auto written = tensors_.begin() + std::ssize(partition_.reads);
    return static_cast<size_t>(std::find(written, tensors_.end(), attention_.d_term) - tensors_.begin());
  }

  void add_scale() {
    std::string scale = "1.0";
    for (size_t k = 0; k < attention_.scales.size(); ++k) scale += concat(" * args->values[", k, "]");
    line(1, concat("const float scale = float(", scale, ");"));
  }

  // --- Sizes ---

  std::string sizes_text() const {
    std::string text = "struct MILLRACE_KERNEL_sizes {\n";
    text += concat("  using T = ", codegen::storage_name(graph_.tensor(attention_.tensors[Operand::q]).dtype), ";\n");
    for (const auto& [operand, name] : kRowStructs)
      text += concat("  using ", name, " = ",
                     !rows_[operand].empty()      ? concat("MILLRACE_KERNEL_", name)
                     : attention_.writes(operand) ? "mr::Matrix<T>"
                                                  : "mr::Matrix<const T>",
                     ";\n");
    const auto constant = [&](const char* type, const char* name, int64_t value) {
      text += concat("  static constexpr ", type, " ", name, " = ", value, ";\n");
    };
    constant("long", "kQueries", attention_.queries);
    constant("long", "kKeys", attention_.keys);
    constant("long", "kInner", attention_.inner);
    constant("long", "kValues", attention_.values);
    constant("long", "kHeads", attention_.heads_per_group());
    constant("long", "kTileQueries", config_.tile_queries);
    constant("long", "kTileKeys", config_.tile_keys);
    constant("long", "kFirst", attention_.keys_seen().first);
    constant("long", "kLast", attention_.keys_seen().last);
    constant("long", "kSplits", splits());
    const std::vector<int64_t> steps = mask_strides();
    constant("bool", "kStoresDq", attention_.has(Operand::d_q) ? 1 : 0);
    constant("bool", "kStoresDk", attention_.has(Operand::d_k) ? 1 : 0);
    constant("bool", "kStoresDv", attention_.has(Operand::d_v) ? 1 : 0);
    constant("bool", "kDropout", attention_.mask.valid() ? 1 : 0);
    constant("bool", "kMaskBits", stores_mask_bits() ? 1 : 0);
    constant("long", "kMaskQuery", stride(steps, attention_.mask_axes.query));
    constant("long", "kMaskKey", stride(steps, attention_.mask_axes.key));
    constant("long", "kMaskBytes", stride(mask_bytes(), attention_.mask_axes.query));
    return text + "};\n";
  }

  // Elements are numbered in the order in which the program writes the mask.
  std::vector<int64_t> mask_strides() const {
    if (!attention_.mask.valid()) return {};
    return strides_of(graph_, attention_.mask, written_layout(graph_, attention_.mask));
  }
  // The strides, in bytes, of the mask as bits. Its last axis is that of the keys, and each row begins at a new byte.
  std::vector<int64_t> mask_bytes() const {
    constexpr int64_t kBits = 8;
    std::vector<int64_t> strides = mask_strides();
    for (int64_t& each : strides) each = each / attention_.keys * ((attention_.keys + kBits - 1) / kBits);
    return strides;
  }
  size_t mask_position() const { return position_in(tensors_, attention_.mask); }
  bool stores_mask_bits() const {
    const size_t position = mask_position();
    return attention_.mask.valid() && position < layouts_.size() && layouts_[position].storage == MaskStorage::bits;
  }

  int64_t groups() const { return attention_.heads() / attention_.heads_per_group(); }
  int64_t tiles_of_queries() const {
    return rounded_up(attention_.queries, config_.tile_queries) / config_.tile_queries;
  }
  // If there are fewer groups than threads, several threads share the keys of one.
  int64_t splits() const {
    const int64_t wanted = (config_.threads + groups() - 1) / groups();
    return std::min(wanted, rounded_up(attention_.keys, config_.tile_keys) / config_.tile_keys);
  }

  // --- Heads ---

  // Offset of a head in a tensor with these axes; its strides along the batch are values from `first` on.
  std::string head_offset(const Attention::Axes& axes, size_t first) const {
    std::vector<std::string> terms;
    for (size_t k = 0; k < attention_.batch.size(); ++k) {
      if (attention_.batch[k] > 1 && axes.batch[k] >= 0) terms.push_back(concat("b", k, " * value(", first + k, ")"));
    }
    return terms.empty() ? "0" : concat("(", join(terms, " + "), ")");
  }
  std::string head_offset(const std::vector<int64_t>& steps, const char* type) const {
    std::vector<std::string> terms;
    for (size_t k = 0; k < attention_.batch.size(); ++k) {
      const int64_t step = stride(steps, attention_.mask_axes.batch[k]);
      if (attention_.batch[k] > 1 && step > 0) terms.push_back(concat("b", k, " * ", step, "L"));
    }
    return concat(type, "(", terms.empty() ? "0" : join(terms, " + "), ")");
  }

  // Declares the batch indices of head number `member` of set `own`. The heads of a set differ only in the indices of
  // members.
  template <class IsMember>
  void add_batch_indices(const IsMember& is_member) {
    int64_t below_own = 1;
    int64_t below_member = 1;
    for (size_t k = attention_.batch.size(); k-- > 0;) {
      int64_t& below = is_member(k) ? below_member : below_own;
      if (attention_.batch[k] > 1)
        line(2, concat("const long b", k, " = ", is_member(k) ? "member" : "own", " / ", below, " % ",
                       attention_.batch[k], ";"));
      below *= attention_.batch[k];
    }
  }

  std::string matrix(Operand operand) const {
    const size_t first = strides_[operand];
    const std::string type =
        concat(attention_.writes(operand) ? "" : "const ", operand == Operand::log_sums ? "float" : "T");
    return concat("{static_cast<", type, "*>(args->tensors[", position_of(partition_, operand), "]) + ",
                  head_offset(attention_.axes[operand], first + 2), ", value(", first, "), value(", first + 1, ")}");
  }

  std::string operand_text(Operand operand) const {
    if (rows_[operand].empty()) return matrix(operand);
    const std::string members =
        rows_[operand].members([&](const Attention::Axes& axes, size_t first) { return head_offset(axes, first); });
    return attention_.writes(operand) ? concat("{", matrix(operand), ", ", members, "}") : concat("{", members, "}");
  }

  // NAME(own, member): a head's operands, mask and score.
  template <class IsMember>
  void add_head_function(const char* name, const IsMember& is_member) {
    line(1, concat("const auto ", name, " = [&](long own, long member) {"));
    add_batch_indices(is_member);
    line(2, concat("return mr::", attention_.backward ? "BackwardHead" : "ForwardHead", "<S, X>{"));
    for (size_t k = 0; k < Attention::kOperands; ++k) {
      const auto operand = static_cast<Operand>(k);
      if (attention_.has(operand)) line(4, concat(operand_text(operand), ","));
      if (!attention_.has(operand) && attention_.writes(operand))
        line(4, "{nullptr, 0, 0},");  // a gradient nobody needs
    }
    line(4, concat(mask_text(), ","));
    line(4, concat(score_text(), ","));
    line(4, "scale};");
    line(1, "};");
  }

  std::string mask_text() const {
    if (!attention_.mask.valid()) return "{nullptr, 0, nullptr}";
    return concat("{&dropout, ", head_offset(mask_strides(), "mr::u64"), ", ",
                  stores_mask_bits() ? concat("static_cast<mr::u8*>(args->tensors[", mask_position(), "]) + ",
                                              head_offset(mask_bytes(), ""))
                                     : "nullptr",
                  "}");
  }

  std::string score_text() const {
    if (!attention_.has_score_expression()) return "{}";
    return formulas_.members([&](const Attention::Axes& axes, size_t first) { return head_offset(axes, first); });
  }

  // --- Threads ---

  // Calls in every thread, with `scratch` for each.
  void in_threads(int64_t bytes, const std::string& call) {
    const int threads = config_.threads;
    made_.scratch_bytes = std::max(made_.scratch_bytes, bytes * threads);
    if (threads > 1) line(1, concat("#pragma omp parallel num_threads(", threads, ")"));
    const std::string loop = threads > 1 ? concat("for (long thread = omp_get_thread_num(); thread < ", threads,
                                                  "; thread += omp_get_num_threads())")
                                         : "for (long thread = 0; thread < 1; ++thread)";
    line(1, loop);
    line(2, concat(call, ";"));
  }
  // The share of a thread.
  std::string share_of(int64_t units) const {
    return concat(units, "L * thread / ", config_.threads, ", ", units, "L * (thread + 1) / ", config_.threads);
  }
  static std::string scratch_of(int64_t bytes) { return concat("args->scratch + thread * ", bytes, "L"); }

  void add_forward() {
    const int64_t bytes = CpuAttentionMemory(attention_, config_).forward();
    in_threads(bytes, concat("mr::attention_forward<S>(head, ", share_of(attention_.heads() * tiles_of_queries()), ", ",
                             scratch_of(bytes), ")"));
  }

  void add_backward() {
    const int64_t bytes = CpuAttentionMemory(attention_, config_).backward();
    if (splits() > 1)
      add_shares(bytes);
    else
      in_threads(bytes, concat("mr::attention_backward<S>(head, ", share_of(groups()), ", ", scratch_of(bytes), ")"));
    if (attention_.d_term.valid()) add_term();
  }

  // Runs all shares of all groups, and then sums what they leave in scratch memory.
  void add_shares(int64_t bytes) {
    const int64_t shares = groups() * splits();
    made_.scratch_bytes = bytes * shares;
    in_threads(0, concat("for (long share = ", shares, "L * thread / ", config_.threads, "; share < ", shares,
                         "L * (thread + 1) / ", config_.threads, "; ++share) mr::attention_backward_share<S>(head, ",
                         "share / S::kSplits, share % S::kSplits, args->scratch + share * ", bytes, "L)"));
    if (!attention_.has(Operand::d_q)) return;
    in_threads(0, concat("for (long group = 0; group < ", groups(), "; ++group) mr::sum_shares<S>(head, group, ",
                         share_of(attention_.heads_per_group() * tiles_of_queries()),
                         ", args->scratch + group * S::kSplits * ", bytes, "L, ", bytes, "L)"));
  }

  void add_term() {
    const Attention::Axes& axes = attention_.d_term_axes;
    const auto is_member = [&](size_t k) { return axes.batch[k] < 0; };
    int64_t heads = 1;
    for (size_t k = 0; k < attention_.batch.size(); ++k) heads *= is_member(k) ? attention_.batch[k] : 1;
    add_head_function("head_of_term", is_member);
    const std::string type = codegen::storage_name(graph_.tensor(attention_.d_term).dtype);
    line(1, "const auto term = [&](long own) {");
    line(2, "constexpr long member = 0;");
    add_batch_indices(is_member);
    line(2, concat("return mr::Matrix<", type, ">{static_cast<", type, "*>(args->tensors[", term_position(), "]) + ",
                   head_offset(axes, term_strides_ + 2), ", value(", term_strides_, "), value(", term_strides_ + 1,
                   ")};"));
    line(1, "};");
    const int64_t bytes = CpuAttentionMemory(attention_, config_).term();
    in_threads(bytes, concat("mr::attention_backward_term<S>(head_of_term, term, ", heads, ", ",
                             share_of(attention_.heads() / heads * tiles_of_queries()), ", ", scratch_of(bytes), ")"));
  }

  const Graph& graph_;
  const Partition& partition_;
  const Attention& attention_;
  const std::vector<Layout>& layouts_;
  const CpuAttentionConfig& config_;
  std::vector<TensorId> tensors_;
  CpuScoreFormulas formulas_;
  std::vector<CpuRowFormulas> rows_;  // by operand
  // Positions among the values: of the dropout's rate, and of an operand's strides: rows, columns, then the batch.
  size_t rate_ = 0;
  std::array<size_t, Attention::kOperands> strides_{};
  size_t term_strides_ = 0;
  KernelText made_;
};

}  // namespace

KernelText generate_cpu_attention(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                  const CpuAttentionConfig& config) {
  return CpuAttentionGenerator(graph, partition, layouts, config).run();
}

}  // namespace millrace
