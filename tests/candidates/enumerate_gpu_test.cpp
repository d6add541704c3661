// Candidates on a GPU: every layout, every shape, and what is not worth trying.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/sanitized.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

constexpr const char* kWeights = R"(
B = 8
H = 4
J = 16
K = 16


def weights(x: float16[B, H, J, K]):
    return dropout(softmax(x + x))
)";

// Neighbouring partitions may want any layout: none is lost because others look more promising.
TEST(EnumerateOnAGpu, EveryLayoutOfEveryTensorHasACandidate) {
  const TrainingGraph training = training_of(kWeights);
  EnumerateOptions options;
  options.target = gpu_target({2});
  options.most = 10;
  const Result<Candidates> found = enumerate(training, fuse(training), options);
  ASSERT_TRUE(found);
  for (const PartitionCandidates& entry : found->partitions) {
    std::vector<std::set<int>> layouts(tensors_of(entry.partition).size());
    for (const Candidate& candidate : entry.candidates) {
      for (size_t k = 0; k < layouts.size(); ++k) layouts[k].insert(candidate.layouts[k]);
    }
    size_t k = 0;
    for (const TensorId tensor : tensors_of(entry.partition)) {
      const TensorDomain& domain = found->domains[tensor.at()];
      const size_t all = domain.pinned < 0 ? domain.layouts.size() : 1;
      EXPECT_EQ(layouts[k].size(), all) << entry.partition.name << " " << training.graph.tensor(tensor).name;
      ++k;
    }
  }
}

TEST(EnumerateOnAGpu, GivenLayoutsHaveEveryShape) {
  const TrainingGraph training = kSanitized ? training_of(kWeights) : training_of_model("mha", {"tiny"});
  EnumerateOptions options;
  options.target = gpu_target({2});
  const Result<Candidates> few = enumerate(training, fuse(training), options);
  options.every_shape = true;
  options.most = 1'000'000;
  const Result<Candidates> all = enumerate(training, fuse(training), options);
  ASSERT_TRUE(few && all);
  size_t more = 0;
  for (size_t number = 0; number < few->partitions.size(); ++number) {
    const PartitionCandidates& entry = all->partitions[number];
    EXPECT_EQ(few->partitions[number].configurations, entry.configurations) << entry.partition.name;
    more += entry.candidates.size() > few->partitions[number].candidates.size() ? 1 : 0;
    if (entry.partition.kind != PartitionKind::kernel) continue;
    const std::vector<int>& layouts = entry.candidates.back().layouts;
    const auto has_layouts = [&](const Candidate& candidate) { return candidate.layouts == layouts; };
    EXPECT_EQ(static_cast<std::ptrdiff_t>(
                  configs_under(training.graph, few->domains, options, entry.partition, layouts).size()),
              std::count_if(entry.candidates.begin(), entry.candidates.end(), has_layouts))
        << entry.partition.name;
  }
  EXPECT_GT(more, 0U);
}

// Small tensors may have any layout, and so may tensors in their written layouts.
TEST(EnumerateOnAGpu, LargeTensorsHaveUnitStride) {
  const auto counted = [](int rows, const std::string& other) {
    const TrainingGraph training = training_of(concat("J = ", rows, R"(
K = 1024

def sum_of(x: float16[J, K], y: float16[K, J]):
    return relu(np.exp(x) + np.einsum(")",
                                                      other, R"(->jk", np.exp(y)))
)"));
    EnumerateOptions options;
    options.target = gpu_target({2});
    options.most = std::numeric_limits<size_t>::max() / 8;
    const Result<Candidates> found = enumerate(training, fuse(training), options);
    EXPECT_TRUE(found);
    double rejected = 0;
    for (const PartitionCandidates& entry : found->partitions) {
      EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
      for (const Rejected& reason : entry.rejected)
        rejected += reason.reason.find("without unit stride across threads") != std::string::npos ? reason.count : 0;
      // Each of its tensors has configs with unit stride.
      for (const Candidate& candidate : entry.candidates)
        EXPECT_TRUE(is_candidate(training.graph, found->domains, entry.partition, candidate)) << entry.partition.name;
    }
    return rejected;
  };
  EXPECT_EQ(counted(64, "kj"), 0);
  EXPECT_GT(counted(4096, "kj"), 0);
}

// Whether a mask is regenerated where it is read.
bool keeps_none(const std::vector<TensorDomain>& domains, const Partition& partition, const Candidate& candidate) {
  const std::vector<Layout> layouts = layouts_of(domains, partition, candidate);
  return std::any_of(layouts.begin(), layouts.end(),
                     [](const Layout& l) { return l.storage == MaskStorage::regenerated; });
}

// Small masks may be generated across threads, and so may those of kernels whose tensors have their written layouts.
TEST(EnumerateOnAGpu, LargeMasksAreGeneratedAlongTheirNeighbours) {
  const auto across = [](int rows) {
    const TrainingGraph training = training_of(concat("J = ", rows, R"(
K = 1024

def dropped(x: float16[J, K]):
    return dropout(np.exp(x), p=0.5)
)"));
    EnumerateOptions options;
    options.target = gpu_target({2});
    options.layouts = {{"x", "KJ"}};
    options.most = std::numeric_limits<size_t>::max() / 8;
    const Result<Candidates> found = enumerate(training, fuse(training), options);
    EXPECT_TRUE(found) << to_string(found.error());
    size_t drawn = 0;
    for (const PartitionCandidates& entry : found->partitions) {
      EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
      for (const Candidate& candidate : entry.candidates) {
        EXPECT_TRUE(is_candidate(training.graph, found->domains, entry.partition, candidate)) << entry.partition.name;
        const bool draws =
            entry.partition.pass == Pass::forward || keeps_none(found->domains, entry.partition, candidate);
        const bool masks = print_partition(training.graph, entry.partition).find("dropout") != std::string::npos;
        if (has_written_layouts(found->domains, entry.partition, candidate)) continue;
        drawn += masks && draws && std::get<KernelConfig>(candidate.config).vector == 0 ? 1U : 0U;
      }
    }
    return drawn;
  };
  EXPECT_GT(across(64), 0U);
  EXPECT_EQ(across(4096), 0U);
}

// A conversion generates nothing. Elements are numbered along the last axis with more than one.
TEST(EnumerateOnAGpu, LargeMasksAreConvertedLikeOtherTensors) {
  const TrainingGraph training = training_of(R"(
J = 4096
K = 1024
L = 1

def dropped(x: float16[J, K, L]):
    return dropout(np.exp(x), p=0.5)
)");
  EnumerateOptions options;
  options.target = gpu_target({2});
  const Result<Candidates> found = enumerate(training, fuse(training), options);
  ASSERT_TRUE(found) << to_string(found.error());
  std::set<size_t> counts;
  for (size_t t = 0; t < training.graph.tensors.size(); ++t) {
    const TensorDomain& domain = found->domains[t];
    if (domain.layouts.size() < 2 || domain.layouts[1].storage != MaskStorage::words) continue;
    counts.insert(conversions(training.graph, domain, TensorId(t), 0, 1, 1, options.target).candidates.size());
  }
  EXPECT_EQ(counts.size(), 1U);
  for (const PartitionCandidates& entry : found->partitions) {
    if (entry.partition.pass != Pass::forward || entry.partition.members.size() != 2) continue;
    EXPECT_TRUE(std::any_of(entry.candidates.begin(), entry.candidates.end(), [&](const Candidate& candidate) {
      return keeps_none(found->domains, entry.partition, candidate);
    })) << entry.partition.name;
  }
}

TEST(EnumerateOnAGpu, EveryEnumeratedConfigIsACandidate) {
  const TrainingGraph training = training_of(R"(
B = 6
I = 64

def layer(x: float16[B, I], w: float16[I], b: float16[I]):
    return layernorm(x, w, b)
)");
  for (const int multiprocessors : {2, 78, 132}) {
    EnumerateOptions options;
    options.target = gpu_target({multiprocessors});
    const Result<Candidates> found = enumerate(training, fuse(training), options);
    ASSERT_TRUE(found);
    bool across = false;
    for (const PartitionCandidates& entry : found->partitions) {
      for (size_t k = 0; k < entry.candidates.size(); k += 1 + entry.candidates.size() / 40) {
        const auto& shape = std::get<KernelConfig>(entry.candidates[k].config).gpu;
        across = across || (shape && shape->blocks > multiprocessors);
        EXPECT_TRUE(is_candidate(training.graph, found->domains, entry.partition, entry.candidates[k]))
            << print_candidate(found->domains, entry.partition, entry.candidates[k]);
      }
    }
    EXPECT_TRUE(across);
  }
}

}  // namespace
}  // namespace millrace
