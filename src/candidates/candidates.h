// The artefact of candidates: every way to carry out every part of the training step, under which layouts.
//
// A partition is one launch: a fused operator, one of its members alone, a contraction, several contractions stacked
// into one, contractions that add to what is there, or with what a library does at their end (an epilogue), or an
// attention in one piece. A candidate is a way to carry out one partition when its tensors lie in given layouts. What
// cannot be done, or is not worth trying, is counted with the reason.
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
#include "ir/attention.h"
#include "ir/graph.h"
#include "ir/layout.h"

namespace millrace {

// An index of a kernel's loop nest. fused_graph.h says what outer and inner mean.
struct PartitionIndex {
  DimId dim;
  int64_t extent = 1;
  bool outer = true;
};

// A contraction as sums of products over indices, with each operand and the result in one or more tensors: stacked ones
// have the same shape and lie one behind the other, along the index that `stacks` them.
struct ProductIndex {
  DimId dim;  // invalid: it counts stacked tensors
  int64_t extent = 1;
  bool reduced = false;
  std::array<std::vector<int>, 3> axes;  // of a, b and c: those that run along it
  std::array<bool, 3> stacks{};          // it counts the tensors of a, b or c
};

// A vector beside the matrices: a bias that is added to the result before it is stored, or the gradient of one, which
// is the sum of an operand over the indices that are contracted. Stacked ones have one each.
struct ProductVector {
  enum class Role { bias, gradient_of_a, gradient_of_b };
  Role role = Role::bias;
  std::vector<TensorId> tensors;
  std::vector<std::vector<int>> axes;  // one an index of the product: the vector's axes that run along it

  bool written() const { return role != Role::bias; }
};

inline constexpr size_t kVectorOperand = 3;  // behind a, b and c
inline constexpr size_t kOperands = 4;

struct Product {
  std::array<std::vector<TensorId>, 3> tensors;  // a, b, c
  // Of a, b, c and the vector: stacked, but not adjacent in memory. Copied together first, or apart after.
  std::array<bool, 4> packed{};
  std::vector<ProductIndex> indices;
  std::vector<TensorId> scales;
  std::optional<ProductVector> vector;
  Activation activation = Activation::none;  // of the result, behind the bias
  TensorId added;      // valid: a tensor of the result's shape that is added to it, and lies as it does
  TensorId auxiliary;  // valid: the activation's auxiliary matrix, likewise

  bool has_epilogue() const { return vector || activation != Activation::none; }
  bool adds() const { return added.valid(); }
  bool writes_auxiliary() const { return auxiliary.valid() && activation == Activation::gelu; }
  // The tensor that lies as the result does, whichever it is; invalid where there is none.
  TensorId beside() const { return adds() ? added : auxiliary; }

  // The same of a, b, c and the vector (0 to 3). Its tensors: none where there is no vector.
  const std::vector<TensorId>& operand(size_t number) const;
  bool is_written(size_t number) const;
  // Whether its tensors are several, and taken as the one that they are in memory.
  bool is_adjacent(size_t number) const { return operand(number).size() > 1 && !packed[number]; }
  // Whether an index counts its tensors: whatever is stacked, the vectors are.
  bool is_stacked_along(size_t number, const ProductIndex& index) const;
};

// A softmax between two contractions, with the scores never in memory: o = dropout(softmax(scale · q kᵀ)) v, or its
// gradients. Its indices: those of the batch, the queries, the keys (over which the softmax runs), the inner one that q
// and k are contracted over, and that of the values.
struct Attention {
  // The logarithms of the rows' sums of exponentials are all that backward needs of the softmax.
  enum Operand : size_t { q, k, v, o, log_sums, d_o, d_q, d_k, d_v };
  static constexpr size_t kOperands = 9;

  using Axes = AttentionAxes;

  bool backward = false;
  std::array<TensorId, kOperands> tensors;  // invalid: not in this pass
  std::array<Axes, kOperands> axes;
  std::vector<int64_t> batch;  // extents
  int64_t queries = 1;
  int64_t keys = 1;
  int64_t inner = 1;
  int64_t values = 1;
  std::vector<TensorId> scales;  // numbers that the scores are multiplied with
  bool causal = false;           // keys behind the query are not looked at
  TensorId mask;                 // valid: of the dropout behind the softmax, which is drawn
  Axes mask_axes;

  bool writes(Operand operand) const { return backward ? operand >= d_q : operand == o || operand == log_sums; }
};

enum class PartitionKind { kernel, contraction, attention };

struct Partition {
  PartitionKind kind = PartitionKind::kernel;
  std::string name;  // unique
  Pass pass = Pass::forward;
  std::vector<OperatorId> operators;  // all that it carries out
  std::vector<TensorId> reads;        // from memory, each once
  std::vector<TensorId> writes;
  // As a loop nest: every partition but a stacked one, and one with an epilogue.
  std::vector<OperatorId> members;
  std::vector<PartitionIndex> space;
  std::vector<std::vector<int>> index_of;  // one a member: for each index of its own space, the nest's, or -1
  // A contraction's.
  Product product;
  // An attention's.
  Attention attention;
  std::vector<OperatorId> repeats;  // operators of forward whose work it does again: what it reads came out of them
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
  bool rows = false;       // the inner indices of an outer point are one row, worked on as a whole; else one flat nest
  std::vector<int> loops;  // indices of the space, outermost first; of a row nest the outer ones, then the inner ones
  int vector = kNoIndex;   // whose neighbours fill a vector
  int threads = 1;         // that share the outer loops
  int block =
      kNoIndex;  // flat: an index that is taken in blocks inside the vector's loop, to transpose through the cache
  std::optional<GpuShape> gpu;  // there: on a GPU

  bool operator==(const KernelConfig&) const = default;
};

enum class GemmLibrary { openblas, blis, cublaslt };

// A library's matrix product, in loops over the indices that are not in m, n or k.
struct GemmConfig {
  GemmLibrary library = GemmLibrary::openblas;
  std::vector<int> m;  // indices of the product, outermost first, that together make one of the matrix's
  std::vector<int> n;
  std::vector<int> k;
  bool threads_over_loops = false;  // else inside the product
  int threads = 1;
  // cuBLASLt's.
  bool tensor_cores = true;
  GemmAlgorithm algorithm;

  bool operator==(const GemmConfig&) const = default;
};

// Fused attention on tensor cores: a block of warps owns rows of the scores (columns, in backward's second kernel) and
// loops over the other index one tile at a time.
struct AttentionConfig {
  int warps = 4;          // warps of a block
  int row_tiles = 1;      // tiles of 16 rows that a warp owns
  int tile_columns = 64;  // columns of a tile
  int stages = 2;         // tiles in shared memory: one is loaded while another is processed
  // Multiply with Hopper's wgmma, a warpgroup at a time; the operand that its warps share stays in shared memory.
  bool wgmma = false;
  // The block's own rows are in shared memory too, not in registers.
  bool rows_in_smem = false;
  // Backward in one kernel, where a block owns all keys: five products instead of seven in two kernels.
  bool single_kernel = false;

  bool operator==(const AttentionConfig&) const = default;
};

using Config = std::variant<KernelConfig, GemmConfig, AttentionConfig>;

struct Candidate {
  std::vector<int> layouts;  // one a tensor of the partition, its reads and then its writes: of the tensor's domain
  Config config;
  double estimate = 0;  // seconds, by the byte model: what to try first
};

// Combinations that were not made candidates.
struct Rejected {
  std::string reason;
  double count = 0;
};

struct PartitionCandidates {
  Partition partition;
  double configurations = 0;  // of which these are the most promising ones
  std::vector<Candidate> candidates;
  std::vector<Rejected> rejected;
};

struct TensorDomain {
  std::vector<Layout> layouts;  // empty: not in memory (a scalar)
  int pinned = -1;              // the layout that the caller gives or expects
  std::vector<int> otherwise;   // layouts beside the pinned one in which partitions may read it, when it is converted

  bool allows(int layout) const {
    return pinned < 0 || layout == pinned || std::find(otherwise.begin(), otherwise.end(), layout) != otherwise.end();
  }
};

struct ChoicePoint {
  std::vector<std::vector<int>> alternatives;  // each a list of partitions; the first is the default
};

struct Candidates {
  std::vector<TensorDomain> domains;                     // one a tensor of the graph
  std::vector<PartitionCandidates> partitions;           // in an order in which every cover can run
  std::vector<ChoicePoint> choice_points;                // every partition in one of them
  std::vector<std::vector<TensorId>> contiguous_groups;  // tensors that lie one behind the other, in every layout
  size_t callers_contiguous_groups = 0;                  // so many of them, the first ones, are the caller's
  std::vector<Rejected> rejected;                        // alternatives that are no partitions
};

// Elements between neighbours along an index, in a, b, c or the vector (0 to 3), when its tensors lie in `layout`.
int64_t step_along(const Graph& graph, const Product& product, size_t operand, size_t index, const Layout& layout);

// What a block of an attention's kernels asks for of a multiprocessor's shared memory.
int64_t attention_shared_bytes(const Attention& attention, const AttentionConfig& config);
// Of the scores, that a block has.
int64_t rows_of_block(const AttentionConfig& config);
// Whether backward can be one kernel: a block has all keys, and its warps can share what comes of a panel of queries.
// Not with a group's rows in registers: ptxas 13.0 gives those away meanwhile.
bool can_be_single_kernel(const Attention& attention, const AttentionConfig& config);

// What a partition computes, without its names: partitions with one text take the same time.
std::string print_partition(const Graph& graph, const Partition& partition);

// A way by itself: "rows loops 0.1.2.3 vector 3 threads 2".
std::string print_config(const Config& config);

// A way and its layouts, without names: "0213 012; rows loops 0.1.2.3 vector 3 threads 2".
std::string print_candidate(const std::vector<TensorDomain>& domains, const Partition& partition,
                            const Candidate& candidate);

// What print_candidate wrote, for a part of the same program; nothing where it does not fit.
std::optional<Candidate> parse_candidate(const std::vector<TensorDomain>& domains, const Partition& partition,
                                         std::string_view text);

// Its reads, then its writes.
std::vector<TensorId> tensors_of(const Partition& partition);

// Of an element of its narrowest tensor; truth values are left out.
int64_t narrowest_bytes(const Graph& graph, const Partition& partition);

// Whether every tensor lies as the caller has it, and the others as the program writes them.
bool has_written_layouts(const std::vector<TensorDomain>& domains, const Partition& partition,
                         const Candidate& candidate);

// The layouts of a candidate, one a tensor of the partition.
std::vector<Layout> layouts_of(const std::vector<TensorDomain>& domains, const Partition& partition,
                               const Candidate& candidate);

}  // namespace millrace
