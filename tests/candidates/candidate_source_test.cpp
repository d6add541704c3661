// A source yields the same candidates as a list of all, in the order of their estimates.
#include "candidates/candidate_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "base/sanitized.h"
#include "candidates/verify.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

constexpr const char* kSmallProgram = R"(
B = 2
J = 3
K = 4
P = 5


def scores(q: float32[B, J, P], y: float32[B, K, P], c: float32[P]):
    return dropout(softmax(np.einsum("bjp,bkp->bjk", q + c, y + c)), p=0.5)
)";

// Products of four axes, and kernels with masks.
constexpr const char* kAttention = R"(
B = 2
H = 2
J = 3
K = 4
P = 5


def heads(x: float32[B, J, H, P], b: float32[H, P], y: float32[B, K, H, P], c: float32[H, P]):
    q = x + b
    k = y + c
    return dropout(softmax(np.einsum("bjhp,bkhp->bhjk", q, k)), p=0.5)
)";

// Two attentions, along rows and along columns: products of tensors with five axes, 120 layouts each.
constexpr const char* kAxial = R"(
B = 2
R = 3
C = 4
H = 2
P = 5
I = 6


def axial(x: float32[B, R, C, I], wq: float32[I, H, P], wk: float32[I, H, P], wo: float32[H, P, I]):
    q = np.einsum("brci,ihp->brchp", x, wq)
    k = np.einsum("brci,ihp->brchp", x, wk)
    a = softmax(np.einsum("brchp,brdhp->brhcd", q, k))
    y = np.einsum("brchp,hpi->brci", np.einsum("brhcd,brdhp->brchp", a, k), wo)
    q = np.einsum("brci,ihp->brchp", y, wq)
    a = softmax(np.einsum("brchp,bschp->bchrs", q, k))
    return np.einsum("bchrs,bschp->brchp", a, k)
)";

EnumerateOptions options_with(double most_combinations) {
  EnumerateOptions options;
  options.threads = 2;
  options.libraries = {GemmLibrary::openblas, GemmLibrary::blis};
  options.most_combinations = most_combinations;
  return options;
}

std::vector<std::string> texts_of(const Candidates& candidates, const Partition& partition,
                                  const std::vector<Candidate>& list) {
  std::vector<std::string> texts;
  for (const Candidate& candidate : list) texts.push_back(print_candidate(candidates.domains, partition, candidate));
  return texts;
}

class CandidateSourceTest : public testing::Test {
 protected:
  Candidates listed(const EnumerateOptions& options) const {
    Result<Candidates> found = enumerate(training_, fuse(training_), options);
    EXPECT_TRUE(found) << to_string(found.error());
    return found ? std::move(*found) : Candidates();
  }

  // What is listed, and what the source yields in blocks.
  static std::vector<std::string> all_of(const Candidates& candidates, CandidateSources& sources, size_t number) {
    const PartitionCandidates& entry = candidates.partitions[number];
    std::vector<std::string> all = texts_of(candidates, entry.partition, entry.candidates);
    for (size_t most = 100;; most *= 2) {
      const std::vector<Candidate> next = sources.next(number, most);
      if (next.empty()) return all;
      for (const std::string& text : texts_of(candidates, entry.partition, next)) all.push_back(text);
    }
  }

  TrainingGraph training_ = training_of(kAttention);
};

TEST_F(CandidateSourceTest, YieldsTheRestAndNothingTwice) {
  size_t estimated = 0;
  for (const Target& target : {Target(), gpu_target({2})}) {
    training_ = training_of(target.gpu ? kSmallProgram : kAttention);
    EnumerateOptions whole = options_with(std::numeric_limits<double>::infinity());
    whole.target = target;
    if (target.gpu) whole.libraries = {GemmLibrary::cublaslt};
    whole.every_shape = true;
    whole.most = std::numeric_limits<size_t>::max() / 8;
    EnumerateOptions lazy = whole;
    lazy.most = 50;
    lazy.most_combinations = 10;
    const Candidates every = listed(whole);
    const Candidates some = listed(lazy);
    CandidateSources sources(training_.graph, some, lazy);
    for (size_t number = 0; number < every.partitions.size(); ++number) {
      const PartitionCandidates& entry = every.partitions[number];
      std::vector<std::string> expected = texts_of(every, entry.partition, entry.candidates);
      std::vector<std::string> found = all_of(some, sources, number);
      std::sort(expected.begin(), expected.end());
      std::sort(found.begin(), found.end());
      EXPECT_EQ(std::adjacent_find(found.begin(), found.end()), found.end()) << entry.partition.name;
      EXPECT_EQ(found, expected) << entry.partition.name;
      estimated += some.partitions[number].estimated ? 1 : 0;
    }
  }
  EXPECT_GT(estimated, 0U);
}

TEST_F(CandidateSourceTest, TheListHasTheBestAndEveryLayout) {
  const Candidates every = listed(options_with(std::numeric_limits<double>::infinity()));
  const Candidates some = listed(options_with(100));
  for (size_t number = 0; number < every.partitions.size(); ++number) {
    const PartitionCandidates& entry = every.partitions[number];
    const PartitionCandidates& few = some.partitions[number];
    ASSERT_FALSE(few.candidates.empty()) << entry.partition.name;
    EXPECT_EQ(few.candidates.front().estimate, entry.candidates.front().estimate) << entry.partition.name;
    for (size_t k = 0; k < entry.candidates.front().layouts.size(); ++k) {
      std::set<int> all, kept;
      for (const Candidate& candidate : entry.candidates) all.insert(candidate.layouts[k]);
      for (const Candidate& candidate : few.candidates) kept.insert(candidate.layouts[k]);
      EXPECT_EQ(kept, all) << entry.partition.name << " " << k;
    }
    const auto written = [&](const PartitionCandidates& entry) {
      return std::count_if(entry.candidates.begin(), entry.candidates.end(), [&](const Candidate& candidate) {
        return has_written_layouts(some.domains, entry.partition, candidate);
      });
    };
    EXPECT_EQ(written(few), written(entry)) << entry.partition.name;
    // The number is about right, and the reasons stay.
    EXPECT_LT(few.configurations, 4 * entry.configurations) << entry.partition.name;
    EXPECT_GT(few.configurations, entry.configurations / 4) << entry.partition.name;
    EXPECT_FALSE(few.rejected.empty()) << entry.partition.name;
  }
}

TEST_F(CandidateSourceTest, ManyMillionsAreListedInSeconds) {
  training_ = training_of(kAxial);
  const double begin = now();
  const Candidates some = listed(options_with(20'000));
  if (!kSanitized) {
    EXPECT_LT(now() - begin, 20);
  }
  double all = 0;
  for (const PartitionCandidates& entry : some.partitions) {
    all += entry.configurations;
    EXPECT_LT(entry.candidates.size(), 20'000U) << entry.partition.name;
    EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
  }
  EXPECT_GT(all, 1e6);
}

// If each of many masks could be stored in its own form, there would be 2^20 candidates of each order. They are all
// stored in the same form.
TEST_F(CandidateSourceTest, ManyMasksAreStoredAlike) {
  std::string text = "N = 8\n\n\ndef chain(x: float32[N, N]):\n    y = x\n";
  for (int k = 0; k < 20; ++k) text += "    y = dropout(y + x, p=0.5)\n";
  training_ = training_of(text + "    return y\n");
  const Candidates all = listed(options_with(std::numeric_limits<double>::infinity()));
  std::set<std::set<MaskStorage>> storages;
  for (const PartitionCandidates& entry : all.partitions) {
    const std::vector<TensorId> tensors = tensors_of(entry.partition);
    const auto is_mask = [&](TensorId t) {
      const std::vector<Layout>& layouts = all.domains[t.at()].layouts;
      return std::any_of(layouts.begin(), layouts.end(),
                         [](const Layout& layout) { return layout.storage != MaskStorage::words; });
    };
    if (std::count_if(tensors.begin(), tensors.end(), is_mask) < 20) continue;
    EXPECT_LT(entry.candidates.size(), 1000U) << entry.partition.name;
    for (const Candidate& candidate : entry.candidates) {
      std::set<MaskStorage> used;
      for (size_t k = 0; k < tensors.size(); ++k) {
        if (is_mask(tensors[k]))
          used.insert(all.domains[tensors[k].at()].layouts[static_cast<size_t>(candidate.layouts[k])].storage);
      }
      EXPECT_EQ(used.size(), 1U) << entry.partition.name;
      storages.insert(used);
    }
  }
  EXPECT_EQ(storages.size(), 3U) << "words, bits and regenerated";
}

}  // namespace
}  // namespace millrace
