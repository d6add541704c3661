// Writes a struct of sizes, and kernels that locate their tensors and call the functions of prelude/cuda_attention.h.
#include "codegen/cuda/attention.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "codegen/cuda/attention_blocks.h"
#include "codegen/cuda/attention_mask.h"
#include "codegen/cuda/attention_rows.h"
#include "codegen/cuda/attention_score.h"
#include "codegen/nest.h"
#include "ir/attention_columns.h"

namespace millrace {
namespace {

constexpr int64_t kRowStatsBytes = 8;  // two floats that backward's first kernel stores for every query
constexpr int64_t kIntRange = int64_t{1} << 31;

using Operand = Attention::Operand;

// Variable names in the kernel, by operand.
constexpr std::array<const char*, Attention::kOperands> kNames = {"q",   "k",   "v",   "o",  "log_sum_exp",
                                                                  "d_o", "d_q", "d_k", "d_v"};

class AttentionGenerator {
 public:
  AttentionGenerator(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                     const AttentionConfig& config)
      : graph_(graph),
        partition_(partition),
        attention_(partition.attention),
        layouts_(layouts),
        config_(config),
        formulas_(graph, partition, layouts, integer()),
        mask_(graph, partition, layouts) {
    for (size_t k = 0; k < Attention::kOperands; ++k)
      rows_.emplace_back(graph, partition, layouts, static_cast<Operand>(k), integer());
  }

  KernelText run() {
    add_values();
    made_.text = concat("#ifndef MILLRACE_ATTENTIONS\n#define MILLRACE_ATTENTIONS\n", cuda_matrices(), cuda_attention(),
                        "#endif\n", attention_.has_score_expression() ? formulas_.definition() : "", row_structs(),
                        sizes_text(config_, "MILLRACE_KERNEL_sizes", attention_shared_bytes(attention_, config_)));
    if (!attention_.backward) {
      add({"MILLRACE_KERNEL",
           config_.specialized ? "attention_forward_specialized" : "attention_forward",
           OwnedRows::queries,
           {Operand::q, Operand::k, Operand::v, Operand::o, Operand::log_sums}});
    } else if (config_.single_kernel) {
      add({"MILLRACE_KERNEL",
           "attention_backward",
           OwnedRows::keys,
           {Operand::q, Operand::k, Operand::v, Operand::o, Operand::log_sums, Operand::d_o, Operand::d_q, Operand::d_k,
            Operand::d_v}});
    } else {
      made_.scratch_bytes =
          row_stats_bytes() + (config_.head_splits > 1 ? config_.head_splits * partial_floats() * 4 : 0);
      add({"MILLRACE_KERNEL",
           config_.specialized ? "attention_backward_dq_specialized" : "attention_backward_dq",
           OwnedRows::queries,
           {Operand::q, Operand::k, Operand::v, Operand::o, Operand::log_sums, Operand::d_o, Operand::d_q}});
      if (attention_.has(Operand::d_k) || attention_.has(Operand::d_v)) {
        add_dk_dv();
        if (config_.head_splits > 1) add_partials();
      }
      if (attention_.d_term.valid()) add_d_term();
    }
    return std::move(made_);
  }

 private:
  // A kernel calls one function of the prelude for each head.
  struct Kernel {
    const char* name;
    const char* function;
    OwnedRows rows;  // of the scores, divided among the blocks
    std::vector<Operand> operands;
    const char* sizes = "MILLRACE_KERNEL_sizes";
  };

  // Elements between neighbours along an axis; 0 without the axis.
  static int64_t stride(const std::vector<int64_t>& strides, int axis) {
    return axis < 0 ? 0 : strides[as_index(axis)];
  }
  std::vector<int64_t> strides(Operand operand) const {
    return strides_of(graph_, attention_.tensors[operand], layouts_[position_of(partition_, operand)]);
  }
  // Otherwise columns are contiguous. The log-sum-exp has a single column. Computed rows are never in memory.
  bool is_row_major(Operand operand) const {
    return operand == Operand::log_sums || is_computed(operand) ||
           stride(strides(operand), attention_.axes[operand].column) == 1;
  }
  bool is_computed(Operand operand) const { return !rows_[operand].empty() && !attention_.writes(operand); }
  // Elements from row to row; if col-major, from column to column.
  int64_t pitch(Operand operand) const {
    const Attention::Axes& axes = attention_.axes[operand];
    return stride(strides(operand), is_row_major(operand) ? axes.row() : axes.column);
  }
  // Offset of a head in an operand with these axes. stride_text(k): the text of the stride of batch index k.
  std::string head_offset(const Attention::Axes& axes, const std::function<std::string(size_t)>& stride_text) const {
    std::vector<std::string> terms;
    for (size_t k = 0; k < attention_.batch.size(); ++k) {
      if (attention_.batch[k] > 1 && axes.batch[k] >= 0) terms.push_back(concat("b", k, " * ", stride_text(k)));
    }
    return terms.empty() ? "0" : join(terms, " + ");
  }
  ScoreFormulas::HeadOffset head_offsets() const {
    return [this](const Attention::Axes& axes, const std::function<std::string(size_t)>& stride_text) {
      return head_offset(axes, stride_text);
    };
  }

  // --- Arguments ---

  void add_values() {
    for (const TensorId scale : attention_.scales) made_.values.push_back({scale, 0});
    if (attention_.mask.valid()) mask_.add_values(made_);
    for (size_t k = 0; k < Attention::kOperands; ++k) {
      const auto operand = static_cast<Operand>(k);
      if (!attention_.has(operand) || is_computed(operand)) continue;
      pitches_[k] = made_.values.size();
      made_.values.push_back({TensorId(), encode_integer(pitch(operand))});
      for (const int axis : attention_.axes[k].batch)
        made_.values.push_back({TensorId(), encode_integer(stride(strides(operand), axis))});
    }
    if (attention_.has_score_expression()) formulas_.add_values(made_.values);
    for (CudaRowFormulas& rows : rows_) rows.add_values(made_.values);
  }

  // The narrowest index type that cannot overflow.
  std::string integer() const {
    int64_t largest = 0;
    for (const TensorId tensor : tensors_of(partition_)) {
      if (tensor != attention_.mask) largest = std::max(largest, elements_of(graph_, tensor));
    }
    return 2 * largest + 65536 < kIntRange ? "int" : "long long";
  }

  // --- Text ---

  static void line(std::string& text, int depth, const std::string& content) {
    text += std::string(static_cast<size_t>(2 * depth), ' ') + content + "\n";
  }
  static void constant(std::string& text, const char* type, const char* name, int64_t value) {
    line(text, 1, concat("static constexpr ", type, " ", name, " = ", value, ";"));
  }

  // The keys that a query sees: limits of the key's position less the query's.
  void add_window(std::string& text) const {
    const KeyWindow window = attention_.keys_seen();
    const bool limited = window.first != -KeyWindow::kUnlimited;
    constant(text, "bool", "kCausal", window.last != KeyWindow::kUnlimited ? 1 : 0);
    constant(text, "int", "kLast", window.last != KeyWindow::kUnlimited ? window.last : 0);
    constant(text, "bool", "kWindow", limited ? 1 : 0);
    constant(text, "int", "kFirst", limited ? window.first : 0);
    constant(text, "bool", "kFormulas", attention_.has_score_expression() ? 1 : 0);
    line(text, 1,
         concat("static constexpr bool kMayHideTiles = ",
                attention_.has_score_expression() ? "kWindow || MILLRACE_KERNEL_score::kHides;" : "kWindow;"));
  }

  std::string sizes_text(const AttentionConfig& config, const char* name, int64_t smem_bytes) const {
    const bool half = graph_.tensor(attention_.tensors[Operand::q]).dtype == DType::float16;
    const bool masked = attention_.mask.valid();
    std::string text;
    line(text, 0, concat("struct ", name, " {"));
    line(text, 1, concat("using T = mr::", half ? "f16;" : "bf16;"));
    line(text, 1, concat("using I = ", integer(), ";"));
    line(text, 1, concat("using Block = mr::", masked && mask_.has_few_blocks() ? "u32;" : "u64;"));
    constant(text, "bool", "kBackward", attention_.backward ? 1 : 0);
    add_window(text);
    constant(text, "bool", "kStoresDq", attention_.has(Operand::d_q) ? 1 : 0);
    constant(text, "bool", "kStoresDk", attention_.has(Operand::d_k) ? 1 : 0);
    constant(text, "bool", "kStoresDv", attention_.has(Operand::d_v) ? 1 : 0);
    constant(text, "bool", "kDropout", masked ? 1 : 0);
    constant(text, "bool", "kWgmma", config.wgmma ? 1 : 0);
    constant(text, "bool", "kRowsInSmem", config.rows_in_smem ? 1 : 0);
    constant(text, "bool", "kSpecialized", config.specialized ? 1 : 0);
    constant(text, "bool", "kSingleKernel", config.single_kernel && attention_.backward ? 1 : 0);
    constant(text, "int", "kMembers", attention_.heads_per_group() / config.head_splits);
    constant(text, "int", "kHeadSplits", config.head_splits);
    constant(text, "int", "kQueries", attention_.queries);
    constant(text, "int", "kKeys", attention_.keys);
    constant(text, "int", "kInner", padded_columns(attention_.inner));
    constant(text, "int", "kValues", padded_columns(attention_.values));
    constant(text, "int", "kWarps", config.warps);
    constant(text, "int", "kRowTiles", config.row_tiles);
    constant(text, "int", "kTileColumns", config.tile_columns);
    constant(text, "int", "kStages", config.stages);
    constant(text, "int", "kLaunchSmemBytes", smem_bytes);
    const bool permuted = is_row_major(Operand::k) && is_row_major(Operand::v);
    line(text, 1,
         concat("static constexpr mr::RowOrder kKeyOrder = mr::RowOrder::", permuted ? "permuted;" : "in_order;"));
    if (masked) text += mask_.constants();
    line(text, 0, "};");
    return text;
  }

  int64_t blocks_of(OwnedRows rows) const {
    const int64_t count = rows == OwnedRows::queries ? attention_.queries : attention_.keys;
    const int64_t own = rows_of_block(rows == OwnedRows::keys ? dk_dv_config(config_) : config_);
    return (count + own - 1) / own;
  }

  void add_signature(const char* name, int threads, int64_t resident, const char* sizes) {
    line(made_.text, 0,
         concat("MR_KERNEL(", threads, " MR_MIN_BLOCKS(", resident, ")) ", name, "(MR_PARAMETER mr::Arguments<",
                layouts_.size(), ", ", std::max<size_t>(made_.values.size(), 1), ", ",
                std::max<size_t>(made_.subsequences.size(), 1), "> args) {"));
    line(made_.text, 1, concat("using S = ", sizes, ";"));
    line(made_.text, 1, "mr::begin();");
  }

  // `head`: the name of the number of a block's head, or group of heads.
  void begin(const Kernel& kernel, const char* head, int64_t heads) {
    const AttentionConfig& config = kernel.rows == OwnedRows::keys ? dk_dv_config(config_) : config_;
    const int threads = threads_of_block(config);
    add_signature(kernel.name, threads, resident_blocks(attention_, config_, kernel.rows), kernel.sizes);
    const int64_t blocks = blocks_of(kernel.rows);
    made_.grids.push_back({kernel.name, heads * blocks, threads, attention_shared_bytes(attention_, config)});
    add_block(kernel.rows, head, heads, blocks);
  }

  // Neighbouring blocks share a head, so they read the same tiles. In a causal attention, blocks with the most tiles
  // come first, so that the multiprocessors finish at about the same time. They alternate between as many heads as have
  // tiles that fit the L2 cache together.
  void add_block(OwnedRows rows, const char* head, int64_t heads, int64_t blocks) {
    if (!attention_.causal) {
      line(made_.text, 1, concat("const int block = mr::block_number() % ", blocks, ";"));
      return line(made_.text, 1, concat("const int ", head, " = mr::block_number() / ", blocks, ";"));
    }
    const int64_t together = heads_together(attention_, heads);
    line(made_.text, 1, concat("const int number = mr::block_number() % ", blocks * together, ";"));
    line(made_.text, 1,
         concat("const int block = ", rows == OwnedRows::queries ? concat(blocks - 1, " - ") : "", "number / ",
                together, ";"));
    line(made_.text, 1,
         concat("const int ", head, " = mr::block_number() / ", blocks * together, " * ", together, " + number % ",
                together, ";"));
  }
  void add_scale() {
    std::string scale = "1.0";
    for (size_t k = 0; k < attention_.scales.size(); ++k) scale += concat(" * args.values[", k, "]");
    line(made_.text, 1, concat("const double scale = ", scale, ";"));
  }

  void add(const Kernel& kernel) {
    begin(kernel, "head", attention_.heads());
    add_batch_indices("head", attention_.batch, 1);
    std::string arguments = "block";
    for (const Operand operand : kernel.operands) {
      add_matrix(operand, 1);
      arguments += concat(", ", kNames[operand]);
    }
    if (attention_.backward && !config_.single_kernel) {
      add_row_stats(1);
      arguments += ", row_stats";
    }
    add_scale();
    line(made_.text, 1, mask_.initializer(head_offsets()));
    arguments += ", scale, mask";
    if (!config_.single_kernel || !attention_.backward) {
      line(made_.text, 1, score_text());
      arguments += ", score";
    }
    line(made_.text, 1, concat("mr::", kernel.function, "<S>(", arguments, ");"));
    line(made_.text, 0, "}");
  }

  // Extents of the batch indices, split in two: `own` counts the groups of heads that share a gradient, `members` the
  // heads of one group. Each has an extent of 1 for the indices that belong to the other.
  struct SplitBatch {
    std::vector<int64_t> own;
    std::vector<int64_t> members;
  };
  template <class IsMember>
  SplitBatch split_batch(const IsMember& is_member) const {
    SplitBatch made{attention_.batch, attention_.batch};
    for (size_t k = 0; k < attention_.batch.size(); ++k) (is_member(k) ? made.own : made.members)[k] = 1;
    return made;
  }
  static int64_t product(const std::vector<int64_t>& extents) {
    int64_t count = 1;
    for (const int64_t extent : extents) count *= extent;
    return count;
  }

  // Each block owns rows of keys of one group, and visits the queries of all heads of the group.
  void add_dk_dv() {
    const int splits = config_.head_splits;
    const bool own_sizes = config_.warps != dk_dv_config(config_).warps;
    const char* const sizes = own_sizes ? "MILLRACE_KERNEL_key_sizes" : "MILLRACE_KERNEL_sizes";
    if (own_sizes)
      made_.text += sizes_text(dk_dv_config(config_), sizes, attention_shared_bytes(attention_, dk_dv_config(config_)));
    begin({"MILLRACE_KERNEL_keys", "attention_backward_dk_dv", OwnedRows::keys, {}, sizes}, "share", groups() * splits);
    line(made_.text, 1, concat("const int group = share / ", splits, ";"));
    if (splits > 1) line(made_.text, 1, concat("const int split = share % ", splits, ";"));
    const SplitBatch batch = split_batch([&](size_t k) { return attention_.is_group(k); });
    add_batch_indices("group", batch.own, 1);
    for (const Operand operand : {Operand::k, Operand::v, Operand::d_k, Operand::d_v}) add_matrix(operand, 1);
    add_scale();
    add_head_function("query_head", batch.members, {Operand::q, Operand::d_o}, splits);
    if (splits > 1) add_partials_pointer();
    line(made_.text, 1,
         config_.specialized ? concat("mr::attention_backward_dk_dv_specialized<S>(block, query_head, k, v, d_k, d_v, ",
                                      splits > 1 ? concat("partials + (split * ", groups(), "LL + group) * ",
                                                          partial_floats() / groups())
                                                 : "nullptr",
                                      ", scale);")
                             : "mr::attention_backward_dk_dv<S>(block, query_head, k, v, d_k, d_v, scale);");
    line(made_.text, 0, "}");
  }

  int64_t groups() const { return attention_.heads() / attention_.heads_per_group(); }
  int64_t row_stats_bytes() const { return attention_.heads() * attention_.queries * kRowStatsBytes; }
  // The sums of d_k and d_v of one split.
  int64_t partial_floats() const {
    return groups() * attention_.keys * (padded_columns(attention_.inner) + padded_columns(attention_.values));
  }
  void add_partials_pointer() {
    line(made_.text, 1,
         concat("float* const partials = reinterpret_cast<float*>(args.scratch + ", row_stats_bytes(), "LL);"));
  }

  // Adds the sums of the blocks that share the heads of a group, in one order.
  void add_partials() {
    constexpr int64_t kThreads = 256;
    const int64_t floats = partial_floats() / groups();
    const int64_t blocks = (floats + kThreads - 1) / kThreads;
    constexpr const char* kName = "MILLRACE_KERNEL_partials";
    add_signature(kName, kThreads, 1, "MILLRACE_KERNEL_sizes");
    made_.grids.push_back({kName, groups() * blocks, kThreads, 0});
    line(made_.text, 1, concat("const int block = mr::block_number() % ", blocks, ";"));
    line(made_.text, 1, concat("const int group = mr::block_number() / ", blocks, ";"));
    add_partials_pointer();
    add_batch_indices("group", split_batch([&](size_t k) { return attention_.is_group(k); }).own, 1);
    for (const Operand operand : {Operand::d_k, Operand::d_v}) add_matrix(operand, 1);
    line(made_.text, 1,
         concat("mr::add_partials<S>(block, partials + group * ", floats, "LL, ", partial_floats(), "LL, d_k, d_v);"));
    line(made_.text, 0, "}");
  }

  // A function NAME(member) of the kernel: it passes a head's operands, statistics, mask and score to mr::make_NAME.
  // With more than one split, it counts only the members of the block's split.
  void add_head_function(const char* name, const std::vector<int64_t>& members, const std::vector<Operand>& operands,
                         int splits = 1) {
    line(made_.text, 1, concat("const auto ", name, " = [&](int ", splits > 1 ? "own) {" : "member) {"));
    if (splits > 1) line(made_.text, 2, concat("const int member = split * ", product(members) / splits, " + own;"));
    add_batch_indices("member", members, 2);
    line(made_.text, 2, concat("const long long head = ", head_number(), ";"));
    std::string arguments;
    for (const Operand operand : operands) {
      add_matrix(operand, 2);
      arguments += concat(kNames[operand], ", ");
    }
    add_row_stats(2);
    line(made_.text, 2, mask_.initializer(head_offsets()));
    line(made_.text, 2, score_text());
    line(made_.text, 2, concat("return mr::make_", name, "(", arguments, "row_stats, mask, score);"));
    line(made_.text, 1, "};");
  }

  // Each block owns queries and a tile of keys of one element of the term's batch, and visits the heads that share it.
  void add_d_term() {
    const AttentionConfig config = d_term_config(attention_);
    const SplitBatch batch = split_batch([&](size_t k) { return attention_.d_term_axes.batch[k] < 0; });
    const int64_t blocks = (attention_.queries + rows_of_block(config) - 1) / rows_of_block(config);
    const int64_t tiles = (attention_.keys + config.tile_columns - 1) / config.tile_columns;
    made_.text += sizes_text(config, "MILLRACE_KERNEL_term_sizes", d_term_smem_bytes(attention_, config));
    constexpr const char* kName = "MILLRACE_KERNEL_term";
    const int threads = threads_of_block(config);
    add_signature(kName, threads, 2, "MILLRACE_KERNEL_term_sizes");
    made_.grids.push_back({kName, product(batch.own) * blocks * tiles, threads, d_term_smem_bytes(attention_, config)});
    line(made_.text, 1, concat("const int tile = mr::block_number() % ", tiles, ";"));
    line(made_.text, 1, concat("const int block = mr::block_number() / ", tiles, " % ", blocks, ";"));
    line(made_.text, 1, concat("const int group = mr::block_number() / ", tiles * blocks, ";"));
    add_batch_indices("group", batch.own, 1);
    add_scale();
    add_head_function("score_head", batch.members, {Operand::q, Operand::k, Operand::v, Operand::d_o});
    add_d_term_call(product(batch.members));
    line(made_.text, 0, "}");
  }

  void add_d_term_call(int64_t heads) {
    const Attention::Axes& axes = attention_.d_term_axes;
    const std::vector<TensorId> all = tensors_of(partition_);
    const auto position = static_cast<size_t>(
        std::find(all.begin() + std::ssize(partition_.reads), all.end(), attention_.d_term) - all.begin());
    const std::vector<int64_t> strides = strides_of(graph_, attention_.d_term, layouts_[position]);
    const std::string offset =
        head_offset(axes, [&](size_t k) { return concat(stride(strides, axes.batch[k]), "LL"); });
    const int64_t align = formulas_.alignment({attention_.d_term, axes}, strides);
    const std::string element = codegen::storage_name(graph_.tensor(attention_.d_term).dtype);
    line(made_.text, 1,
         concat(element, "* const d_term = static_cast<", element, "*>(args.tensors[", position, "]) + (", offset,
                ");"));
    line(made_.text, 1,
         concat("mr::attention_backward_term<S, ", align, ">(block, tile, ", heads, ", score_head, d_term, S::I(",
                stride(strides, axes.query), "), S::I(", stride(strides, axes.key), "));"));
  }

  // Declares the batch indices b0, b1 and so on that `number` stands for. An index with an extent of 1 gets none.
  void add_batch_indices(const char* number, const std::vector<int64_t>& extents, int depth) {
    int64_t below = 1;
    for (const int64_t extent : extents) below *= extent;
    for (size_t k = 0; k < extents.size(); ++k) {
      below /= extents[k];
      if (extents[k] > 1)
        line(made_.text, depth, concat("const long long b", k, " = ", number, " / ", below, " % ", extents[k], ";"));
    }
  }

  // The number of the head with these batch indices.
  std::string head_number() const {
    std::vector<std::string> terms;
    int64_t below = attention_.heads();
    for (size_t k = 0; k < attention_.batch.size(); ++k) {
      below /= attention_.batch[k];
      if (attention_.batch[k] > 1) terms.push_back(concat("b", k, " * ", below));
    }
    return terms.empty() ? "0" : join(terms, " + ");
  }

  void add_row_stats(int depth) {
    line(made_.text, depth,
         concat("float* const row_stats = reinterpret_cast<float*>(args.scratch) + head * ", 2 * attention_.queries,
                "LL;"));
  }

  // The kernel's variable for an operand. A gradient that nobody needs has no matrix.
  void add_matrix(Operand operand, int depth) {
    if (!attention_.has(operand)) return line(made_.text, depth, concat("const mr::NoGradient ", kNames[operand], ";"));
    if (!rows_[operand].empty())
      return line(made_.text, depth,
                  concat("const ", row_struct(operand), " ", kNames[operand], "{",
                         attention_.writes(operand) ? concat(matrix(operand), ", ") : "", row_members(operand), "};"));
    const std::string type = operand == Operand::log_sums ? "float" : "S::T";
    line(made_.text, depth,
         concat("const ", matrix_type(operand, type, "S::I"), " ", kNames[operand], matrix(operand), ";"));
  }
  std::string matrix_type(Operand operand, const std::string& element, const std::string& integer) const {
    return concat("mr::Matrix<", attention_.writes(operand) ? "" : "const ", element, ", ", integer,
                  ", mr::Order::", is_row_major(operand) ? "row_major" : "col_major", ", ", attention_.columns(operand),
                  ">");
  }
  // The initializer of an operand's matrix: address and pitch.
  std::string matrix(Operand operand) const {
    const std::string type = operand == Operand::log_sums ? "float" : "S::T";
    const auto value = [&](size_t number) {
      return concat("mr::decode_integer(args.values[", pitches_[operand] + number, "])");
    };
    const std::string offset = head_offset(attention_.axes[operand], [&](size_t k) { return value(1 + k); });
    return concat("{static_cast<", attention_.writes(operand) ? "" : "const ", type, "*>(args.tensors[",
                  position_of(partition_, operand), "]) + (", offset, "), S::I(", value(0), ")}");
  }

  // --- Rows that are computed, or stored after a computation ---

  static std::string row_struct(Operand operand) { return concat("MILLRACE_KERNEL_rows_", kNames[operand]); }
  std::string row_structs() const {
    std::string text;
    for (size_t k = 0; k < Attention::kOperands; ++k) {
      const auto operand = static_cast<Operand>(k);
      if (rows_[k].empty()) continue;
      const std::string element = codegen::storage_name(graph_.tensor(attention_.tensors[k]).dtype);
      text += rows_[k].definition(row_struct(operand), matrix_type(operand, element, integer()));
    }
    return text;
  }
  std::string row_members(Operand operand) const { return rows_[operand].members(head_offsets()); }

  std::string score_text() const {
    if (!attention_.has_score_expression()) return "const mr::PlainScore score;";
    return formulas_.initializer(head_offsets());
  }

  const Graph& graph_;
  const Partition& partition_;
  const Attention& attention_;
  const std::vector<Layout>& layouts_;
  const AttentionConfig& config_;
  ScoreFormulas formulas_;
  AttentionMaskText mask_;
  std::vector<CudaRowFormulas> rows_;  // by operand
  // Position of an operand's strides among the values; the pitch is first.
  std::array<size_t, Attention::kOperands> pitches_{};
  KernelText made_;
};

}  // namespace

KernelText generate_cuda_attention(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                   const AttentionConfig& config) {
  return AttentionGenerator(graph, partition, layouts, config).run();
}

}  // namespace millrace
