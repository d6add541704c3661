// The artefact of candidates: every partition of the training step, and its implementations.
//
// A partition is one launch: a fused operator, one of its members alone, a contraction, several contractions stacked
// into one, a contraction that accumulates into a tensor or has an epilogue, or fused attention. A candidate is a
// partition with one config and one layout per tensor. Rejected combinations are counted by reason.
// Tests: tests/candidates/.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/activation.h"
#include "base/gemm_algorithm.h"
#include "base/gemm_library.h"
#include "ir/attention.h"
#include "ir/graph.h"
#include "ir/layout.h"
#include "ir/row_expression.h"

namespace millrace {

// An index of a kernel's loop nest. fused_graph.h says what outer and inner mean.
struct PartitionIndex {
  DimId dim;
  int64_t extent = 1;
  bool outer = true;
};

// An axis of an operand that runs along an index: the position moves by `stride` with each step of the index.
struct ProductAxis {
  int axis = 0;
  int64_t stride = 1;

  auto operator<=>(const ProductAxis&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one
};

// A contraction as sums of products over indices. Each operand, and the result, is one tensor or several stacked ones:
// these have the same shape and follow each other along the index that `stacks` them.
struct ProductIndex {
  DimId dim;  // invalid: it counts stacked tensors
  int64_t extent = 1;
  bool reduced = false;
  std::array<std::vector<ProductAxis>, 3> axes;  // of a, b and c: the axes that run along it
  std::array<bool, 3> stacks{};                  // it counts the tensors of a, b or c
};

// A vector operand: a bias that is added to the result before it is stored, or the gradient of a bias, which is the
// sum of an operand over the contracted indices. Each of several stacked products has its own.
struct ProductVector {
  enum class Role { bias, gradient_of_a, gradient_of_b };
  Role role = Role::bias;
  std::vector<TensorId> tensors;
  std::vector<std::vector<ProductAxis>> axes;  // per index of the product: the vector's axes that run along it

  bool written() const { return role != Role::bias; }
};

inline constexpr size_t kVectorOperand = 3;  // after a, b and c
inline constexpr size_t kOperands = 4;

struct Product {
  std::array<std::vector<TensorId>, 3> tensors;  // a, b, c
  // Of a, b and c: the position on each axis where all indices are zero; empty if that is the first element.
  std::array<std::vector<int64_t>, 3> origins;
  // Of a, b, c and the vector: stacked, but not adjacent in memory. Inputs are gathered before the product, outputs
  // scattered after it.
  std::array<bool, 4> packed{};
  std::vector<ProductIndex> indices;
  std::vector<TensorId> scales;
  std::optional<ProductVector> vector;
  Activation activation = Activation::none;  // applied to the result after the bias
  TensorId added;                            // if valid: a tensor of the result's shape and layout that is added to it
  TensorId auxiliary;  // if valid: the activation's auxiliary matrix, of the result's shape and layout

  bool has_epilogue() const { return vector || activation != Activation::none; }
  bool adds() const { return added.valid(); }
  bool writes_auxiliary() const { return auxiliary.valid() && activation == Activation::gelu; }
  // The added or auxiliary tensor, which must have the result's layout; invalid if the product has neither.
  TensorId companion() const { return adds() ? added : auxiliary; }

  // The tensors of a, b, c or the vector (0 to 3); none if there is no vector.
  const std::vector<TensorId>& operand(size_t number) const;
  bool is_written(size_t number) const;
  // Whether it has several tensors, adjacent in memory, that are used as one.
  bool is_adjacent(size_t number) const { return operand(number).size() > 1 && !packed[number]; }
  // Whether an index counts its tensors. Vectors are stacked in every stacked product.
  bool is_stacked_along(size_t number, const ProductIndex& index) const;
};

// Fused attention, a softmax between two contractions with the scores kept on chip: o = dropout(softmax(scale · q kᵀ))
// v, or its gradients. Its indices: the batch, the queries, the keys (over which the softmax runs), the inner index
// over which q and k are contracted, and the values.
struct Attention {
  // log_sums: the logarithm of each row's sum of exponentials, which is all that backward needs of the softmax.
  enum Operand : size_t { q, k, v, o, log_sums, d_o, d_q, d_k, d_v };
  static constexpr size_t kOperands = 9;

  using Axes = AttentionAxes;

  bool backward = false;
  std::array<TensorId, kOperands> tensors;  // invalid: not in this pass, or a gradient that is not needed
  std::array<Axes, kOperands> axes;
  std::vector<int64_t> batch;  // extents
  int64_t queries = 1;
  int64_t keys = 1;
  int64_t inner = 1;
  int64_t values = 1;
  std::vector<TensorId> scales;     // scalars that multiply the scores
  bool causal = false;              // a query attends to no later key
  std::optional<KeyWindow> window;  // if set: the only keys that a query attends to; then it is not causal
  ScoreExpression score;            // what is applied to a score before the softmax; nothing if it has no nodes
  // How the rows of q and k are computed from tensors in memory; `tensors` has one of these tensors. For d_q and d_k:
  // what is stored in `tensors` instead of their rows. Empty: the operand is in memory.
  std::array<RowExpression, kOperands> rows;
  TensorId d_term;  // if valid: the gradient of a term of the expression, which backward writes
  Axes d_term_axes;
  TensorId mask;  // if valid: the mask of the dropout after the softmax
  Axes mask_axes;

  bool has(Operand operand) const { return tensors[operand].valid(); }
  bool has_all_gradients() const { return has(d_q) && has(d_k) && has(d_v); }
  bool writes(Operand operand) const { return backward ? operand >= d_q : operand == o || operand == log_sums; }
  // Whether a batch index counts heads that share their keys and values: grouped or multi-query attention.
  bool is_group(size_t batch_index) const { return axes[k].batch[batch_index] < 0; }
  int64_t heads() const;
  int64_t heads_per_group() const;  // that share their keys and values
  // The keys that a query attends to.
  KeyWindow keys_seen() const { return causal ? KeyWindow{-KeyWindow::kUnlimited, 0} : window.value_or(KeyWindow()); }
  bool has_score_expression() const { return !score.nodes.empty(); }
  bool has_row_expressions() const {
    return std::any_of(rows.begin(), rows.end(), [](const RowExpression& one) { return !one.empty(); });
  }
  // Every query attends to every key, and the softmax takes the scores themselves.
  bool is_plain() const { return !causal && !window && !has_score_expression(); }
  int64_t columns(Operand operand) const;
};

enum class PartitionKind { kernel, contraction, attention };

struct Partition {
  PartitionKind kind = PartitionKind::kernel;
  std::string name;  // unique
  Pass pass = Pass::forward;
  std::vector<OperatorId> operators;  // all operators that it carries out
  std::vector<TensorId> reads;        // from memory, each once
  std::vector<TensorId> writes;
  // As a loop nest; empty for stacked products, products with an epilogue, and attention.
  std::vector<OperatorId> members;
  std::vector<PartitionIndex> space;
  std::vector<std::vector<int>> index_of;      // per member: for each index of its own space, the nest's, or -1
  std::vector<std::vector<int64_t>> shift_of;  // per member: its own index is the nest's minus this (fused_graph.h)
  Product product;                             // of a contraction
  Attention attention;                         // of an attention
  std::vector<OperatorId> repeats;             // operators that another partition carries out too
};

inline constexpr int kNoIndex = -1;

// How a GPU's threads share a loop nest.
struct GpuShape {
  int width = 1;        // neighbours along the vector index that a thread processes at once
  int row_threads = 1;  // threads that share a row
  int threads = 1;      // threads of a block
  int blocks = 0;    // if the nest reduces across rows: the number of blocks that share them; 0: as many as rows need
  int prefetch = 0;  // if the nest reduces across rows: 1 loads the next row while the current one is processed; if
                     // rows have no reduction of their own, 1 loads twice as many rows at a time

  bool operator==(const GpuShape&) const = default;
};

// A generated kernel: one loop nest over the partition's space.
struct KernelConfig {
  bool rows = false;       // the inner indices of an outer point are a row, kept while it is processed; else flat
  std::vector<int> loops;  // indices of the space, outermost first; if `rows`, the outer indices, then the inner ones
  int vector = kNoIndex;   // the index whose neighbours fill a vector
  int threads = 1;         // threads that share the outer loops
  int block = kNoIndex;    // flat: an index blocked inside the vector's loop, to transpose through the cache
  std::optional<GpuShape> gpu;  // only on a GPU

  bool operator==(const KernelConfig&) const = default;
};

// A library's matrix product, in loops over the indices that are not in m, n or k.
struct GemmConfig {
  GemmLibrary library = GemmLibrary::openblas;
  std::vector<int> m;  // indices of the product, outermost first, merged into one matrix index
  std::vector<int> n;
  std::vector<int> k;
  bool threads_over_loops = false;  // else inside the product
  int threads = 1;
  // Only of cuBLASLt.
  bool tensor_cores = true;
  GemmAlgorithm algorithm;
  // The operand (0: a, 1: b) that is copied into a dense matrix first, because its windows overlap (is_window).
  int unfolded = kNoIndex;

  bool operator==(const GemmConfig&) const = default;
};

// Fused attention on a GPU's tensor cores: a block of warps owns rows of the scores (columns, in backward's second
// kernel) and loops over the other index one tile at a time.
struct AttentionConfig {
  int warps = 4;          // warps of a block that multiply
  int row_tiles = 1;      // tiles of 16 rows that a warp owns
  int tile_columns = 64;  // columns of a tile
  int stages = 2;         // tiles in shared memory: one is loaded while another is processed
  // Multiply with Hopper's wgmma, a warpgroup at a time; the operand that its warps share stays in shared memory.
  bool wgmma = false;
  // The block's own rows are in shared memory too, not in registers.
  bool rows_in_smem = false;
  // Backward in one kernel, where a block owns all keys: five products instead of seven in two kernels.
  bool single_kernel = false;
  // Four more warps copy tiles (warp specialization); needs rows_in_smem and 8 or 12 warps.
  bool specialized = false;
  // Backward of a specialized kernel: blocks that share the heads of a group; another kernel adds their sums.
  int head_splits = 1;

  bool operator==(const AttentionConfig&) const = default;
};

// Fused attention on the CPU: a tile of scores stays in a core's cache.
struct CpuAttentionConfig {
  int tile_queries = 64;
  int tile_keys = 64;
  int threads = 1;  // that share the heads, and the queries (in backward: the keys) of a head

  bool operator==(const CpuAttentionConfig&) const = default;
};

// Fused attention by cuDNN, with the engine that the library prefers.
struct CudnnConfig {
  bool operator==(const CudnnConfig&) const = default;
};

using Config = std::variant<KernelConfig, GemmConfig, AttentionConfig, CpuAttentionConfig, CudnnConfig>;

struct Candidate {
  std::vector<int> layouts;  // index into the domain of each tensor, the partition's reads and then its writes
  Config config;
  double estimate = 0;  // seconds, by the byte model; decides what to try first
};

// Combinations that were not made candidates.
struct Rejected {
  std::string reason;
  double count = 0;
};

struct PartitionCandidates {
  Partition partition;
  double configurations = 0;  // how many there are; `candidates` keeps the most promising ones
  std::vector<Candidate> candidates;
  std::vector<Rejected> rejected;
  bool estimated = false;  // `configurations` and the counts of `rejected` are estimated from a sample
};

struct TensorDomain {
  std::vector<Layout> layouts;  // empty: not in memory (a scalar)
  int pinned = -1;              // the layout that the caller requires, if any
  std::vector<int> otherwise;   // other layouts that partitions may read, after a conversion from the pinned one

  // The layout that the caller requires, else that of the program.
  int written() const { return std::max(0, pinned); }
  bool allows(int layout) const {
    return pinned < 0 || layout == pinned || std::find(otherwise.begin(), otherwise.end(), layout) != otherwise.end();
  }
};

struct ChoicePoint {
  std::vector<std::vector<int>> alternatives;  // each a list of partitions; the first is the default
};

// A pass of a fused attention next to the launches that it replaces. Masks count as words.
struct AttentionAlternative {
  std::string name;
  std::vector<std::string> operators;
  size_t launches_apart = 0;
  int64_t words_apart = 0;
  int64_t words_fused = 0;
};

struct Candidates {
  std::vector<TensorDomain> domains;            // one per tensor of the graph
  std::vector<PartitionCandidates> partitions;  // in an order in which every combination of alternatives can run
  std::vector<ChoicePoint> choice_points;       // each partition is in the alternatives of at most one of them
  std::vector<std::vector<TensorId>> contiguous_groups;  // tensors adjacent in memory, in every layout
  size_t callers_contiguous_groups = 0;                  // how many of them, at the front, are the caller's
  std::vector<Rejected> rejected;                        // alternatives that became no partition
};

// The stride along an index, in elements, of a, b, c or the vector (0 to 3) in `layout`.
int64_t stride_along(const Graph& graph, const Product& product, size_t operand, size_t index, const Layout& layout);

// The offset, in elements, of the element where all indices are zero.
int64_t origin_of(const Graph& graph, const Product& product, size_t operand, const Layout& layout);

// Whether an axis of a (0) or b (1) runs along a contracted index and along a row or column of the result: then the
// operand is no matrix, but can be unfolded into one (im2col). This is false if no index of the result belongs to the
// other operand alone, as in a depthwise convolution: that is no product of matrices.
bool is_window(const Product& product, size_t operand);

// The indices of an unfolded operand's copy, outermost first: those of the loops in the order of c, then those of the
// matrix, so that neighbours in the copy are near each other in the source. `strides`: the operand's stride along each
// index of the product, in the source; `strides_of_c`: c's.
std::vector<int> unfolded_indices(const Product& product, const GemmConfig& config, const std::vector<int64_t>& strides,
                                  const std::vector<int64_t>& strides_of_c);

// Per index of the product: the stride in the dense copy, or 0.
std::vector<int64_t> unfolded_strides(const Product& product, const std::vector<int>& indices);

// The position of an attention's operand among the partition's tensors.
size_t position_of(const Partition& partition, Attention::Operand operand);

// Shared memory of a block of an attention's kernels.
int64_t attention_shared_bytes(const Attention& attention, const AttentionConfig& config);
// Why a config cannot compute rows of this attention's operands; nothing if it can, or if it need not.
std::optional<std::string> why_not_with_rows(const Attention& attention, const AttentionConfig& config);
// Rows of the scores that a block owns.
int64_t rows_of_block(const AttentionConfig& config);
int threads_of_block(const AttentionConfig& config);
// Whether backward can be one kernel: a block owns all keys of one head, and its warps can share the gradients of a
// tile of queries. Not with wgmma and rows in registers: ptxas 13.0 reuses those registers too early.
bool can_be_single_kernel(const Attention& attention, const AttentionConfig& config);

// An attention in given layouts as cuDNN sees it: every operand has one index of batches and one of heads.
struct CudnnAxes {
  int64_t batches = 1;
  int64_t heads = 1;
  int64_t key_heads = 1;  // heads of k and v; each is shared by heads / key_heads neighbouring heads
  // By operand, in elements: between batches, heads, rows and columns.
  std::array<std::array<int64_t, 4>, Attention::kOperands> strides{};
};
// Nothing if its indices cannot be merged into these, or if a head's columns are not contiguous. `layouts`: one for
// each tensor of the partition.
std::optional<CudnnAxes> cudnn_axes(const Graph& graph, const Partition& partition, const std::vector<Layout>& layouts);
// Why cuDNN does not compute an attention in any layout; nothing if it may.
std::optional<std::string> why_not_by_cudnn(const Graph& graph, const Partition& partition);

// What a partition computes, without names: partitions with the same text take the same time.
std::string print_partition(const Graph& graph, const Partition& partition);

// A config: "rows loops 0.1.2.3 vector 3 threads 2".
std::string print_config(const Config& config);

// A config and its layouts, without names: "0213 012; rows loops 0.1.2.3 vector 3 threads 2".
std::string print_candidate(const std::vector<TensorDomain>& domains, const Partition& partition,
                            const Candidate& candidate);

// Reads what print_candidate wrote for a partition of the same program; nothing if it does not fit.
std::optional<Candidate> parse_candidate(const std::vector<TensorDomain>& domains, const Partition& partition,
                                         std::string_view text);

// Its reads, then its writes.
std::vector<TensorId> tensors_of(const Partition& partition);

// Bytes of an element of its narrowest tensor; booleans do not count.
int64_t narrowest_bytes(const Graph& graph, const Partition& partition);

// Whether every tensor has its written layout: the pinned one, else that of the program.
bool has_written_layouts(const std::vector<TensorDomain>& domains, const Partition& partition,
                         const Candidate& candidate);

// The layouts of a candidate, one per tensor of the partition.
std::vector<Layout> layouts_of(const std::vector<TensorDomain>& domains, const Partition& partition,
                               const Candidate& candidate);

}  // namespace millrace
