// Program text to fused groups: the structural patterns of the paper's figure on fusion, and their limits.
#include "fusion/fuse.h"

#include <gtest/gtest.h>

#include "fusion/fusion_text.h"
#include "random/fused_check.h"

namespace millrace {
namespace {

// The kernels, after checking that running them row by row gives the same as the separate operators.
std::string checked_kernels_of(std::string_view text) {
  const TrainingGraph training = training_of(text);
  return random_programs::check_fusion(training, 1).value_or(kernels_of(training, fuse(training)));
}

// The indices of a group's space: [outer | row].
std::string space_of(const TrainingGraph& training, const FusedOperator& group) {
  std::vector<std::string> outer;
  std::vector<std::string> row;
  for (const FusedIndex& index : group.space)
    (index.outer ? outer : row).push_back(training.graph.dims[index.dim.at()].name);
  return concat("[", join(outer, ", "), " | ", join(row, ", "), "]");
}

TEST(Fuse, AChainOfMapsIsOne) {
  EXPECT_EQ(checked_kernels_of(R"(
A = 3
B = 4
def f(x: float64[A, B], w: float64[A, B]):
    y = np.exp(x)
    z = y * w
    return np.tanh(z)
)"),
            "result tanh d_z, z multiply d_y, z multiply d_w, y exp d_x\n"
            "y exp, z multiply, result tanh\n");
}

// A gather is a map of its ids; only its table must be in memory. The sum into a table is a kernel alone.
TEST(Fuse, AGatherFusesWithItsReadersButNotWithItsTable) {
  EXPECT_EQ(checked_kernels_of(R"(
V = 11
E = 4
B = 7
def f(x: float64[V, E], ids: int32[B], scale: float64[B, E]):
    table = np.exp(x)
    rows = table[ids]
    return softmax(rows * scale)
)"),
            "rows gather again, result softmax d_result.1, result multiply d_rows, result multiply d_scale\n"
            "rows gather d_table\n"
            "rows gather, result multiply, result softmax\n"
            "table exp\n"
            "table exp d_x\n");
}

// One position of each row: nothing is summed, so the gradient is part of its neighbours' kernel.
TEST(Fuse, TheGradientOfOnePositionOfEachRowFuses) {
  const TrainingGraph training = training_of(R"(
B = 7
V = 11
def f(x: float64[B, V], labels: int32[B]):
    return cross_entropy(x, labels)
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
  for (const FusedOperator& group : fused.groups) {
    for (const std::string& name : member_names(training, group)) {
      if (name == "result gather d_x") {
        EXPECT_GT(group.members.size(), 4U);
      }
    }
  }
}

TEST(Fuse, MapsFuseIntoTheNormalizationAfterThem) {
  const TrainingGraph training = training_of(R"(
B = 3
I = 4
def f(x: float64[B, I], r: float64[B, I], c: float64[I], w: float64[I], v: float64[I]):
    biased = x + c
    dropped = dropout(biased)
    added = dropped + r
    return layernorm(added, w, v)
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
  const FusedOperator& forward = group_with(training, fused, "biased bias");
  EXPECT_EQ(join(member_names(training, forward), ", "),
            "biased bias, dropped dropout, added residual, result layernorm");
  EXPECT_EQ(space_of(training, forward), "[B | I]");
  EXPECT_EQ(forward.name, "bias-dropout-residual-layernorm");
  EXPECT_EQ(forward.paper_name, "BDRLN");
  EXPECT_EQ(forward.loops, 2);
  EXPECT_FALSE(forward.rereads);
}

TEST(Fuse, SiblingsThatReadOneTensorFuseThoughOneReduces) {
  const TrainingGraph training = training_of(R"(
B = 3
I = 4
U = 5
def f(x: float64[B, I], w: float64[I, U], c: float64[U]):
    linear = np.einsum("bi,iu->bu", x, w)
    biased = linear + c
    activated = relu(biased)
    return dropout(activated, p=0.5)
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
  EXPECT_EQ(kernels_of(training, fused),
            "biased bias, activated relu, result dropout\n"
            "result dropout d_activated, activated relu d_biased, biased bias d_c\n");
  const FusedOperator& backward = group_with(training, fused, "biased bias d_c");
  EXPECT_EQ(backward.paper_name, "BDRB");
  EXPECT_EQ(backward.loops, 1);
}

TEST(Fuse, ProducerAndConsumerShareTheirOuterDimensionsOnly) {
  const TrainingGraph training = training_of(R"(
B = 2
J = 3
K = 4
M = 5
def f(x: float64[B, J, K], w: float64[M]):
    y = np.sum(x, axis=2)
    z = y[:, :, None] * w
    return z
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
  const FusedOperator& forward = group_with(training, fused, "y sum");
  EXPECT_EQ(join(member_names(training, forward), ", "), "y sum, z multiply");
  EXPECT_EQ(space_of(training, forward), "[B, J | K, M]");
  EXPECT_EQ(forward.words_before, 2 * 3 * 4 + 2 * 3 + 2 * 3 + 5 + 2 * 3 * 5);
  EXPECT_EQ(forward.words_after, 2 * 3 * 4 + 5 + 2 * 3 + 2 * 3 * 5);  // y once: backward reads it
}

TEST(Fuse, APartialFusionUsesWhatARowHas) {
  const TrainingGraph training = training_of(R"(
B = 3
K = 4
M = 5
def f(x: float64[B, K], w: float64[B, M]):
    y = np.sum(x, axis=1)
    scaled = np.tanh(y)
    return scaled[:, None] * w
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
  EXPECT_EQ(kernels_of(training, fused),
            "result multiply d_scaled, result multiply d_scaled 2, result multiply d_w, scaled tanh d_y, y sum d_x\n"
            "y sum, scaled tanh, result multiply\n");
}

// A sum over a column is complete only after the last row.
TEST(Fuse, NothingUsesAReductionAcrossTheGridInItsKernel) {
  const TrainingGraph training = training_of(R"(
B = 6
I = 5
def f(x: float64[B, I], w: float64[B, I]):
    y = softmax(x)
    total = np.sum(y, axis=0)
    return total * w
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
  EXPECT_FALSE(together(training, fused, "y softmax", "result multiply"));
  // With columns as rows, the sum would end inside one; the softmax needs the actual rows.
  EXPECT_TRUE(together(training, fused, "total sum", "result multiply"));
  EXPECT_EQ(space_of(training, group_with(training, fused, "total sum")), "[I | B, B]");
}

TEST(Fuse, RowsThatDoNotFitCountTheirWordsInEveryLoop) {
  const TrainingGraph training = training_of("def f(x: float32[2, 200000]):\n    return softmax(x * 2)\n");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_structure(training, fused), std::nullopt);
  const FusedOperator& forward = group_with(training, fused, "result softmax");
  EXPECT_EQ(forward.members.size(), 2U);
  EXPECT_TRUE(forward.rereads);
  EXPECT_EQ(forward.loops, 2);
  EXPECT_EQ(forward.words_after, (2 + 1) * 400000);

  const TrainingGraph short_rows = training_of("def f(x: float32[2, 2000]):\n    return softmax(x * 2)\n");
  const FusedGraph fits = fuse(short_rows);
  EXPECT_EQ(random_programs::check_structure(short_rows, fits), std::nullopt);
  EXPECT_FALSE(group_with(short_rows, fits, "result softmax").rereads);
  EXPECT_EQ(group_with(short_rows, fits, "result softmax").words_after, 2 * 4000);
}

// In long rows, a tensor that one loop writes and the next one needs is read again: that may cost more than it saves.
TEST(Fuse, RejectsWhatWouldMoveMoreWords) {
  const TrainingGraph training = training_of(R"(
N = 200000
def f(a: float32[2, N], b: float32[2, N], c: float32[2, N], d: float32[2, N], e: float32[2, N]):
    x = a * b + c * d + e
    return softmax(x), x
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_structure(training, fused), std::nullopt);
  EXPECT_FALSE(together(training, fused, "x residual 2", "result_0 softmax"));
  EXPECT_NE(explained(training, fused, "x residual 2", "result_0 softmax").find("more words"), std::string::npos);
}

TEST(Fuse, AnIndexOfExtentOneIsNoObstacle) {
  EXPECT_EQ(checked_kernels_of(R"(
A = 3
def f(x: float64[A], w: float64[A, 1]):
    y = np.exp(x)
    z = y[:, None] * w
    return np.tanh(z)
)"),
            "result tanh d_z, z multiply d_y, z multiply d_y 2, z multiply d_w, y exp d_x\n"
            "y exp, z multiply, result tanh\n");
}

// The join copies y twice, along an index that has extent one in y. The join is a kernel by itself, since it runs along
// other indices; so y's index becomes no part of a longer one.
TEST(Fuse, AnIndexOfExtentOneThatNoJoinUsesIsNoObstacle) {
  const TrainingGraph training = training_of(R"(
A = 3
def f(x: float64[A]):
    y = -x
    return np.concatenate([y, y]), x * 2
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_fusion(training, 1), std::nullopt);
  EXPECT_TRUE(together(training, fused, "y negate", "result_1 multiply"));
  EXPECT_FALSE(together(training, fused, "y negate", "result_0 concatenate"));
  const FusedOperator& both = group_with(training, fused, "y negate");
  EXPECT_EQ(space_of(training, both), "[A | ]");
  EXPECT_EQ(both.words_before - both.words_after, 3);  // x is read once
}

TEST(Fuse, AGraphOfContractionsHasNoKernels) {
  const TrainingGraph training = training_of(R"(
def f(x: float64[2, 3], w: float64[3, 4]):
    return np.einsum("ab,bc->ac", x, w)
)");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(kernels_of(training, fused), "");
  EXPECT_EQ(fused.groups.size(), 3U);
  EXPECT_EQ(fused.words_before, fused.words_after);
}

// Masks may be stored as words or as bits, or be regenerated.
TEST(Fuse, MasksAreCountedByTheirStorage) {
  const TrainingGraph training = training_of("def f(x: float16[8, 100]):\n    return dropout(x)\n");
  const FusedGraph fused = fuse(training);
  EXPECT_EQ(random_programs::check_structure(training, fused), std::nullopt);
  const int64_t rest = 800 + 800 + 800 + 800;  // x, y, d_y, d_x
  EXPECT_EQ(fused.words_after_by_mask[static_cast<size_t>(MaskStorage::words)], rest + 2 * 800);
  EXPECT_EQ(fused.words_after_by_mask[static_cast<size_t>(MaskStorage::bits)], rest + 2 * 800 / 16);
  EXPECT_EQ(fused.words_after_by_mask[static_cast<size_t>(MaskStorage::regenerated)], rest);
}

}  // namespace
}  // namespace millrace
