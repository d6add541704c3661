// What is written here is a structure of sizes, and a kernel that finds its tensors and calls the prelude's.
#include "codegen/cuda/attention.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace millrace {
namespace {

constexpr int kWarpThreads = 32;
constexpr int64_t kDrawn = 8;      // neighbours of a mask that are drawn at once
constexpr int64_t kPairBytes = 8;  // two floats, that backward's first kernel leaves of every query
constexpr int64_t kIntRange = int64_t{1} << 31;

using Operand = Attention::Operand;

// Names in the text, by operand.
constexpr std::array<const char*, Attention::kOperands> kNames = {"q",   "k",   "v",   "o",  "log_sums",
                                                                  "d_o", "d_q", "d_k", "d_v"};

class AttentionGenerator {
 public:
  AttentionGenerator(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                     const AttentionConfig& config)
      : graph_(graph), partition_(partition), attention_(partition.attention), layouts_(layouts), config_(config) {
    for (const int64_t extent : attention_.batch) heads_ *= extent;
  }

  KernelText run() {
    number_values();
    made_.text = concat("#ifndef MILLRACE_ATTENTIONS\n#define MILLRACE_ATTENTIONS\n", cuda_matrices(), cuda_attention(),
                        "#endif\n", sizes_text());
    if (!attention_.backward) {
      add({"MILLRACE_KERNEL",
           "attend",
           Rows::queries,
           {Operand::q, Operand::k, Operand::v, Operand::o, Operand::log_sums}});
    } else if (config_.single_kernel) {
      add({"MILLRACE_KERNEL",
           "attend_back",
           Rows::keys,
           {Operand::q, Operand::k, Operand::v, Operand::o, Operand::log_sums, Operand::d_o, Operand::d_q, Operand::d_k,
            Operand::d_v}});
    } else {
      made_.scratch_bytes = heads_ * attention_.queries * kPairBytes;
      add({"MILLRACE_KERNEL",
           "attend_dq",
           Rows::queries,
           {Operand::q, Operand::k, Operand::v, Operand::o, Operand::log_sums, Operand::d_o, Operand::d_q}});
      add({"MILLRACE_KERNEL_keys",
           "attend_dk_dv",
           Rows::keys,
           {Operand::q, Operand::k, Operand::v, Operand::d_o, Operand::d_k, Operand::d_v}});
    }
    return std::move(made_);
  }

 private:
  enum class Rows { queries, keys };

  // What calls one of the prelude's functions.
  struct Kernel {
    const char* name;
    const char* function;
    Rows rows;  // that blocks share
    std::vector<Operand> operands;
  };

  size_t position_of(Operand operand) const {
    const bool written = attention_.writes(operand);
    const std::vector<TensorId>& list = written ? partition_.writes : partition_.reads;
    const auto at = std::find(list.begin(), list.end(), attention_.tensors[operand]) - list.begin();
    return static_cast<size_t>(at) + (written ? partition_.reads.size() : 0);
  }

  // Elements between neighbours along an index of the attention.
  static int64_t stride(const std::vector<int64_t>& strides, int axis) {
    return axis < 0 ? 0 : strides[static_cast<size_t>(axis)];
  }
  std::vector<int64_t> strides(Operand operand) const {
    return strides_of(graph_, attention_.tensors[operand], layouts_[position_of(operand)]);
  }
  // Whether the numbers of a row lie together; else those of a column do. Sums of rows have one each.
  bool lies_by_rows(Operand operand) const {
    return operand == Operand::log_sums || stride(strides(operand), attention_.axes[operand].column) == 1;
  }
  // Elements from row to row, or from column to column.
  int64_t pitch(Operand operand) const {
    const Attention::Axes& axes = attention_.axes[operand];
    return stride(strides(operand), lies_by_rows(operand) ? axes.row() : axes.column);
  }
  // A mask's elements are numbered as the program writes it.
  std::vector<int64_t> mask_strides() const {
    return strides_of(graph_, attention_.mask, written_layout(graph_, attention_.mask));
  }

  // Where the head that a block works on begins. `step`: the text of what is between neighbours along a batch index.
  template <class Step>
  std::string head_offset(const Step& step) const {
    std::vector<std::string> terms;
    for (size_t k = 0; k < attention_.batch.size(); ++k) {
      if (attention_.batch[k] > 1) terms.push_back(concat("b", k, " * ", step(k)));
    }
    return terms.empty() ? "0" : join(terms, " + ");
  }

  // --- Numbers ---

  void number_values() {
    for (const TensorId scale : attention_.scales) made_.values.push_back({scale, 0});
    if (attention_.mask.valid()) number_dropout();
    for (size_t k = 0; k < Attention::kOperands; ++k) {
      if (!attention_.tensors[k].valid()) continue;
      const auto operand = static_cast<Operand>(k);
      pitches_[k] = made_.values.size();
      made_.values.push_back({TensorId(), whole_number(pitch(operand))});
      for (const int axis : attention_.axes[k].batch)
        made_.values.push_back({TensorId(), whole_number(stride(strides(operand), axis))});
    }
  }

  // As the prelude reads it.
  static double whole_number(int64_t number) { return 0x1p52 + static_cast<double>(number); }

  void number_dropout() {
    const Operator& dropout = *dropout_of(graph_, attention_.mask);
    const double rounded = std::min(std::floor(dropout.value * 65536 + 0.5), 65535.0);
    made_.values.push_back({TensorId(), rounded * 65536});
    made_.values.push_back({TensorId(), 1.0 / (1.0 - dropout.value)});
    made_.subsequences.push_back(dropout.subsequence);
  }

  // The mask's among the partition's tensors.
  size_t mask_position() const {
    const std::vector<TensorId> tensors = tensors_of(partition_);
    return static_cast<size_t>(std::find(tensors.begin(), tensors.end(), attention_.mask) - tensors.begin());
  }
  // Whether forward leaves it for backward, as bits.
  bool keeps_mask() const {
    const size_t position = mask_position();
    return position < layouts_.size() && layouts_[position].storage == MaskStorage::bits;
  }

  // Whether the neighbours that are drawn at once are keys of one query.
  bool draws_keys() const {
    const std::vector<int64_t> steps = mask_strides();
    const Attention::Axes& axes = attention_.mask_axes;
    if (stride(steps, axes.key) != 1 || attention_.keys % kDrawn != 0) return false;
    const auto whole = [&](int axis) { return stride(steps, axis) % kDrawn == 0; };
    return (attention_.queries == 1 || whole(axes.query)) &&
           std::all_of(axes.batch.begin(), axes.batch.end(), [&](int axis) {
             return axis < 0 || whole(axis) ||
                    graph_.extent(graph_.tensor(attention_.mask).dims[static_cast<size_t>(axis)]) == 1;
           });
  }

  std::string integer() const {
    int64_t largest = 0;
    for (const TensorId tensor : attention_.tensors) {
      if (tensor.valid()) largest = std::max(largest, elements_of(graph_, tensor));
    }
    return 2 * largest + 65536 < kIntRange ? "int" : "long long";
  }

  // --- Registers ---

  // A thread's: pieces of rows, sums and scores, and about as much beside them as ptxas was seen to want.
  int64_t registers(const Kernel& kernel) const {
    constexpr int64_t kBeside = 48;
    constexpr int64_t kBesideOfGroups = 40;
    constexpr int64_t kBesideOfSharedRows = 32;
    const int64_t inner = attention_.inner;
    const int64_t values = attention_.values;
    if (config_.wgmma && attention_.backward) {
      const int64_t scores = kernel.rows == Rows::queries ? 64 - values / 2 : 32;
      if (config_.rows_in_smem) return (inner + values) / 2 + scores + kBesideOfSharedRows;
      return config_.row_tiles * (3 * (inner + values) / 4 + scores) + kBesideOfGroups;
    }
    const int64_t pieces = !attention_.backward
                               ? (config_.rows_in_smem ? 0 : inner / 4) + values / 2 + config_.tile_columns / 2
                           : kernel.rows == Rows::queries ? 3 * inner / 4 + values / 4 + 16
                                                          : 3 * (inner + values) / 4 + 16;
    return config_.row_tiles * pieces + kBeside + (attention_.causal ? 8 : 0);
  }

  // As many as registers and shared memory allow, with hardly any of the former spilled.
  int64_t blocks_at_a_time(const Kernel& kernel) const {
    constexpr int64_t kRegisters = 65536;  // of a multiprocessor
    constexpr int64_t kMostOfThread = 255;
    constexpr int64_t kShared = 228 << 10;
    constexpr int64_t kSharedBeside = 1024;  // of every block
    constexpr int64_t kThreads = 1536;       // of the smallest multiprocessor that we care for
    const int64_t threads = int64_t{kWarpThreads} * config_.warps;
    const int64_t by_registers = kRegisters / (threads * std::min(registers(kernel), kMostOfThread));
    const int64_t by_shared = kShared / (attention_shared_bytes(attention_, config_) + kSharedBeside);
    return std::max<int64_t>(1, std::min({by_registers, by_shared, kThreads / threads}));
  }

  // --- Text ---

  static void line(std::string& text, int depth, const std::string& content) {
    text += std::string(static_cast<size_t>(2 * depth), ' ') + content + "\n";
  }
  static void constant(std::string& text, const char* type, const char* name, int64_t value) {
    line(text, 1, concat("static constexpr ", type, " ", name, " = ", value, ";"));
  }

  std::string sizes_text() const {
    const bool half = graph_.tensor(attention_.tensors[Operand::q]).dtype == DType::float16;
    const bool masked = attention_.mask.valid();
    std::string text;
    line(text, 0, "struct MILLRACE_KERNEL_sizes {");
    line(text, 1, concat("using T = mr::", half ? "f16;" : "bf16;"));
    line(text, 1, concat("using I = ", integer(), ";"));
    const bool few = masked && elements_of(graph_, attention_.mask) / kDrawn + 65536 < 2 * kIntRange;
    line(text, 1, concat("using Block = mr::", few ? "u32;" : "u64;"));
    constant(text, "bool", "kBackward", attention_.backward ? 1 : 0);
    constant(text, "bool", "kCausal", attention_.causal ? 1 : 0);
    constant(text, "bool", "kDropout", masked ? 1 : 0);
    constant(text, "bool", "kGroups", config_.wgmma ? 1 : 0);
    constant(text, "bool", "kSharedRows", config_.rows_in_smem ? 1 : 0);
    constant(text, "bool", "kWhole", config_.single_kernel && attention_.backward ? 1 : 0);
    constant(text, "int", "kQueries", attention_.queries);
    constant(text, "int", "kKeys", attention_.keys);
    constant(text, "int", "kInner", attention_.inner);
    constant(text, "int", "kValues", attention_.values);
    constant(text, "int", "kWarps", config_.warps);
    constant(text, "int", "kTiles", config_.row_tiles);
    constant(text, "int", "kPanel", config_.tile_columns);
    constant(text, "int", "kStages", config_.stages);
    constant(text, "int", "kShared", attention_shared_bytes(attention_, config_));
    const bool mixed = lies_by_rows(Operand::k) && lies_by_rows(Operand::v);
    line(text, 1, concat("static constexpr mr::Columns kKeyColumns = mr::Columns::", mixed ? "mixed;" : "in_order;"));
    if (masked) {
      constant(text, "bool", "kMaskInBlocks", draws_keys() ? 1 : 0);
      constant(text, "bool", "kMaskBits", keeps_mask() ? 1 : 0);
      constant(text, "mr::u64", "kMaskQuery", stride(mask_strides(), attention_.mask_axes.query));
      constant(text, "mr::u64", "kMaskKey", stride(mask_strides(), attention_.mask_axes.key));
    }
    line(text, 0, "};");
    return text;
  }

  void add(const Kernel& kernel) {
    const int threads = kWarpThreads * config_.warps;
    const int64_t rows = kernel.rows == Rows::queries ? attention_.queries : attention_.keys;
    const int64_t blocks = (rows + rows_of_block(config_) - 1) / rows_of_block(config_);
    std::string& text = made_.text;
    line(text, 0,
         concat("MR_KERNEL(", threads, " MR_BLOCKS(", blocks_at_a_time(kernel), ")) ", kernel.name,
                "(MR_PARAMETER mr::Arguments<", layouts_.size(), ", ", std::max<size_t>(made_.values.size(), 1), ", ",
                std::max<size_t>(made_.subsequences.size(), 1), "> args) {"));
    line(text, 1, "using S = MILLRACE_KERNEL_sizes;");
    line(text, 1, "mr::begin();");
    add_head(blocks, kernel.rows);
    std::string arguments = "block";
    for (const Operand operand : kernel.operands) {
      add_matrix(operand);
      arguments += concat(", ", kNames[operand]);
    }
    if (attention_.backward && !config_.single_kernel) {
      line(text, 1,
           concat("float* const pairs = reinterpret_cast<float*>(args.scratch) + head * ", 2 * attention_.queries,
                  "LL;"));
      arguments += ", pairs";
    }
    std::string scale = "1.0";
    for (size_t k = 0; k < attention_.scales.size(); ++k) scale += concat(" * args.values[", k, "]");
    line(text, 1, concat("const double scale = ", scale, ";"));
    line(text, 1, masks_text());
    line(text, 1, concat("mr::", kernel.function, "<S>(", arguments, ", scale, masks);"));
    line(text, 0, "}");
    made_.grids.push_back({kernel.name, heads_ * blocks, threads, attention_shared_bytes(attention_, config_)});
  }

  // Neighbouring blocks work on one head, whose panels they share. Causal: those with most to look at come first.
  void add_head(int64_t blocks, Rows rows) {
    std::string& text = made_.text;
    const bool last_first = attention_.causal && rows == Rows::queries;
    line(text, 1, concat("const int head = mr::block_number() / ", blocks, ";"));
    line(text, 1,
         concat("const int block = ", last_first ? concat(blocks - 1, " - ") : "", "mr::block_number() % ", blocks,
                ";"));
    int64_t below = heads_;
    for (size_t k = 0; k < attention_.batch.size(); ++k) {
      below /= attention_.batch[k];
      if (attention_.batch[k] > 1)
        line(text, 1, concat("const long long b", k, " = head / ", below, " % ", attention_.batch[k], ";"));
    }
  }

  void add_matrix(Operand operand) {
    const std::string type = operand == Operand::log_sums ? "float" : "S::T";
    const std::string whole = concat(attention_.writes(operand) ? "" : "const ", type);
    const auto value = [&](size_t number) {
      return concat("mr::whole_number(args.values[", pitches_[operand] + number, "])");
    };
    const std::string offset = head_offset([&](size_t k) { return value(1 + k); });
    line(made_.text, 1,
         concat("const mr::Matrix<", whole, ", S::I, mr::Lies::by_", lies_by_rows(operand) ? "rows" : "columns", "> ",
                kNames[operand], "{static_cast<", whole, "*>(args.tensors[", position_of(operand), "]) + (", offset,
                "), S::I(", value(0), ")};"));
  }

  std::string mask_offset() const {
    const std::vector<int64_t> steps = mask_strides();
    return head_offset([&](size_t k) { return stride(steps, attention_.mask_axes.batch[k]); });
  }

  std::string masks_text() const {
    if (!attention_.mask.valid()) return "const mr::NoMasks masks;";
    const size_t threshold = attention_.scales.size();
    return concat("const mr::Masks<S> masks{mr::Dropout(args.state, args.subsequences[0], args.values[", threshold,
                  "], args.values[", threshold + 1, "]), mr::u64(", mask_offset(), "), ",
                  keeps_mask() ? concat("static_cast<mr::u8*>(args.tensors[", mask_position(), "])") : "nullptr", "};");
  }

  const Graph& graph_;
  const Partition& partition_;
  const Attention& attention_;
  const std::vector<Layout>& layouts_;
  const AttentionConfig& config_;
  int64_t heads_ = 1;
  std::array<size_t, Attention::kOperands>
      pitches_{};  // where an operand's strides are among the values: its pitch first
  KernelText made_;
};

}  // namespace

KernelText generate_cuda_attention(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts,
                                   const AttentionConfig& config) {
  return AttentionGenerator(graph, partition, layouts, config).run();
}

}  // namespace millrace
