// Products that accumulate into an existing tensor.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/sanitized.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "candidates/partitions_text.h"
#include "fusion/fuse.h"
#include "fusion/fusion_text.h"
#include "random/generator.h"

namespace millrace {
namespace {

// `free`: tensors whose layout the caller leaves open.
EnumerateOptions on(bool gpu, const std::vector<std::string>& free = {}) {
  EnumerateOptions options;
  if (gpu) options.target = gpu_target();
  options.libraries = {gpu ? GemmLibrary::cublaslt : GemmLibrary::openblas};
  options.most = 200;
  for (const std::string& name : free) options.layouts.emplace_back(name, "any");
  return options;
}

Candidates partitions_of(const TrainingGraph& training, const EnumerateOptions& options) {
  Result<Candidates> found = find_partitions(training, fuse(training), options);
  EXPECT_TRUE(found);
  return *found;
}

// Two projections of one input, and the input itself.
constexpr const char* kResidual = R"(
B = 6
I = 4
O = 5


def layer(x: float32[B, I], wq: float32[I, O], wk: float32[I, O]):
    q = np.einsum("bi,io->bo", x, wq)
    k = np.einsum("bi,io->bo", x, wk)
    return np.einsum("bo,co->bc", q, k), x
)";

TEST(Additions, OfAResidualAndProjections) {
  const TrainingGraph training = training_of(kResidual);
  for (const bool gpu : {false, true}) {
    const std::string text = partitions_text(training, partitions_of(training, on(gpu)));
    const size_t choice_points = text.find("choice points");
    EXPECT_EQ(text.substr(text.find("  k einsum d_x:"), choice_points - text.find("  k einsum d_x:")),
              "  k einsum d_x: wk d_k -> d_x.2\n"
              "  k einsum d_wk: x d_k -> d_wk\n"
              "  q einsum d_x: wq d_q -> d_x.3\n"
              "  q einsum d_wq: x d_q -> d_wq\n"
              "  q einsum d_wq + k einsum d_wk: x d_q d_k -> d_wq d_wk\n"
              "  d_x sum: d_x d_x.2 -> d_x.sum\n"
              "  k einsum d_x with d_x sum: wk d_x d_k -> d_x.sum\n"
              "  residual*2 (d_x.sum.2): d_x d_x.2 d_x.3 -> d_x.sum.2\n"
              "  d_x sum 2: d_x.3 d_x.sum -> d_x.sum.2\n"
              "  q einsum d_x + k einsum d_x with d_x sum, d_x sum 2: wq wk d_x d_q d_k -> d_x.sum.2\n"
              "  q einsum d_x with d_x sum 2: wq d_q d_x.sum -> d_x.sum.2\n");
    EXPECT_NE(text.find("  k einsum d_x; q einsum d_x; residual*2 (d_x.sum.2)\n"
                        "  or k einsum d_x; q einsum d_x; d_x sum; d_x sum 2\n"
                        "  or q einsum d_x + k einsum d_x with d_x sum, d_x sum 2\n"
                        "  or k einsum d_x with d_x sum; q einsum d_x with d_x sum 2\n"),
              std::string::npos)
        << text;
  }
}

// The added tensor has the result's layout; and a partition that adds is not the product alone.
TEST(Additions, HaveTheResultsLayout) {
  const TrainingGraph training = training_of(R"(
B = 6
I = 4
O = 5


def layer(m: float32[B, O], x: float32[B, I], w: float32[I, O], p: float32[B, I], q: float32[I, O]):
    z = m + np.einsum("bi,io->bo", x, w) + np.einsum("bi,io->bo", p, q)
    return z
)");
  for (const bool gpu : {false, true}) {
    const EnumerateOptions options = on(gpu, {"m", "x", "w", "p", "q", "z"});
    Candidates found = partitions_of(training, options);
    size_t configs = 0;
    for (PartitionCandidates& entry : found.partitions) {
      if (!entry.partition.product.adds()) continue;
      EXPECT_TRUE(print_partition(training.graph, entry.partition).ends_with("+"));
      find_configs(training.graph, found.domains, options, entry);
      EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
      const auto added =
          std::find(entry.partition.reads.begin(), entry.partition.reads.end(), entry.partition.product.added);
      ASSERT_NE(added, entry.partition.reads.end());
      for (const Candidate& candidate : entry.candidates) {
        ++configs;
        const std::vector<Layout> layouts = layouts_of(found.domains, entry.partition, candidate);
        EXPECT_EQ(layouts[static_cast<size_t>(added - entry.partition.reads.begin())], layouts.back());
        EXPECT_TRUE(is_candidate(training.graph, found.domains, entry.partition, candidate));
        Candidate other = candidate;
        int& layout = other.layouts[static_cast<size_t>(added - entry.partition.reads.begin())];
        layout = 1 - layout;
        EXPECT_FALSE(is_candidate(training.graph, found.domains, entry.partition, other));
      }
    }
    EXPECT_GT(configs, 15U);
  }
}

// A sum has three alternatives, however many products it has: all accumulate one by one, all are stacked, or none
// accumulates.
TEST(Additions, OfALongSumAreFew) {
  constexpr int kProducts = 24;
  std::vector<std::string> arguments = {"x: float32[B, I]"};
  std::vector<std::string> terms;
  for (int k = 0; k < kProducts; ++k) {
    arguments.push_back(concat("w", k, ": float32[I, I]"));
    terms.push_back(concat("relu(np.einsum(\"bi,io->bo\", x, w", k, "))"));
  }
  const std::string text =
      concat("B = 6\nI = 4\n\n\ndef f(", join(arguments, ", "), "):\n    return x + ", join(terms, " + "), "\n");
  const TrainingGraph training = training_of(text);
  for (const bool gpu : {false, true}) {
    const Candidates found = partitions_of(training, on(gpu));
    std::vector<std::string> seen;
    for (const ChoicePoint& choice_point : found.choice_points) {
      for (const std::vector<int>& alternative : choice_point.alternatives) {
        size_t apart = 0;
        size_t stacked = 0;
        for (const int k : alternative) {
          const Product& product = found.partitions[static_cast<size_t>(k)].partition.product;
          if (product.adds()) ++(product.tensors[0].size() > 1 ? stacked : apart);
        }
        if (apart + stacked > 0) seen.push_back(concat(apart, " and ", stacked));
      }
    }
    EXPECT_EQ(join(seen, ", "), "0 and 1, 24 and 0");
  }
}

TEST(Additions, RandomProgramsHaveThem) {
  size_t programs = 0;
  for (uint64_t seed = 0; seed < tried_of(200); ++seed) {
    const TrainingGraph training = training_of(random_programs::random_program(seed));
    const Candidates found = partitions_of(training, on(false));
    const bool adds = std::any_of(found.partitions.begin(), found.partitions.end(),
                                  [](const PartitionCandidates& entry) { return entry.partition.product.adds(); });
    programs += adds ? 1U : 0U;
  }
  EXPECT_GE(programs, kSanitized ? 1U : 10U);
}

}  // namespace
}  // namespace millrace
