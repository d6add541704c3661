// Timing classes of a GPU's candidates: by cache lines and by how threads share the work.
#include "measure/timing_class.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/text.h"
#include "candidates/enumerate.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

class TimingClassTest : public testing::Test {
 protected:
  void enumerate_all(const std::string& program) {
    training_ = training_of(concat("B = 4\nL = 32\nI = 64\nU = 128\n", program));
    EnumerateOptions options;
    options.target = gpu_target({2});
    options.libraries = {GemmLibrary::cublaslt};
    options.most = std::numeric_limits<size_t>::max() / 8;
    options.every_shape = true;
    Result<Candidates> found = enumerate(training_, fuse(training_), options);
    ASSERT_TRUE(found) << to_string(found.error());
    candidates_ = std::move(*found);
  }

  const PartitionCandidates& partition(const std::string& name) const {
    for (const PartitionCandidates& each : candidates_.partitions) {
      if (each.partition.name == name) return each;
    }
    ADD_FAILURE() << "no partition " << name;
    return candidates_.partitions.front();
  }

  std::string text_of(const PartitionCandidates& each, const Candidate& candidate) const {
    return timing_class_key(training_.graph, candidates_.domains, each.partition, candidate);
  }

  // The printed candidates by timing class.
  std::map<std::string, std::vector<std::string>> groups(const PartitionCandidates& each) const {
    std::map<std::string, std::vector<std::string>> made;
    for (const Candidate& candidate : each.candidates)
      made[text_of(each, candidate)].push_back(print_candidate(candidates_.domains, each.partition, candidate));
    return made;
  }

  std::string timing_class_of(const PartitionCandidates& each, const std::string& printed) const {
    const std::optional<Candidate> candidate = parse_candidate(candidates_.domains, each.partition, printed);
    EXPECT_TRUE(candidate) << printed;
    return candidate ? text_of(each, *candidate) : "";
  }

  TrainingGraph training_;
  Candidates candidates_;
};

TEST_F(TimingClassTest, KernelsByCacheLines) {
  enumerate_all(R"(
def layer(x: float16[B, L, I]):
    y = relu(x)
    return np.exp(y)
)");
  const PartitionCandidates& each = partition("y relu");
  const auto config = [](const std::string& loops, int vector, const std::string& shape = "8.1.128.0.0") {
    return concat("flat loops ", loops, " vector ", vector, " threads 1 block -1 gpu ", shape);
  };
  // 64 halves are a cache line of 128 bytes: the position of the next line does not matter.
  const std::string plain = timing_class_of(each, concat("012 012; ", config("0.1.2", 2)));
  EXPECT_EQ(timing_class_of(each, concat("012 102; ", config("0.1.2", 2))), plain);
  EXPECT_EQ(timing_class_of(each, concat("012 102; ", config("1.0.2", 2))), plain);
  EXPECT_NE(timing_class_of(each, concat("012 102; ", config("1.0.2", 2, "8.1.256.0.0"))), plain) << "another shape";
  EXPECT_NE(timing_class_of(each, concat("012 021; ", config("0.1.2", 2))), plain) << "written across its lines";
  EXPECT_NE(timing_class_of(each, concat("012 021; ", config("0.2.1", 1))),
            timing_class_of(each, concat("012 021; ", config("0.1.2", 2))));
  // Four halves are shorter than a line, so the next axis counts.
  const std::string narrow = timing_class_of(each, concat("012 120; ", config("1.2.0", 0)));
  EXPECT_NE(timing_class_of(each, concat("012 210; ", config("1.2.0", 0))), narrow);
  EXPECT_NE(timing_class_of(each, concat("012 120; ", config("2.1.0", 0))), narrow);

  size_t largest = 0;
  const auto all = groups(each);
  for (const auto& [text, members] : all) largest = std::max(largest, members.size());
  EXPECT_LT(all.size(), each.candidates.size());
  EXPECT_GT(largest, 1U);
}

TEST_F(TimingClassTest, MasksByStorage) {
  enumerate_all(R"(
def layer(x: float16[B, L, I]):
    return dropout(x, p=0.1)
)");
  std::map<std::string, size_t> groups_that_keep;
  for (const PartitionCandidates& each : candidates_.partitions) {
    for (const auto& [text, members] : groups(each)) {
      for (const char* const kept : {"bits", "regenerated"}) {
        std::set<bool> has;
        for (const std::string& printed : members) has.insert(printed.find(kept) != std::string::npos);
        EXPECT_EQ(has.size(), 1U) << each.partition.name << ": " << text;
        if (has.contains(true)) ++groups_that_keep[kept];
      }
    }
  }
  EXPECT_GT(groups_that_keep["bits"], 0U);
  EXPECT_GT(groups_that_keep["regenerated"], 0U);
}

TEST_F(TimingClassTest, ProductsByTheArgumentsOfTheCall) {
  enumerate_all(R"(
def layer(x: float16[B, L, I], w: float16[U, I]):
    return np.exp(relu(np.einsum("bli,ui->blu", np.exp(x), w)))
)");
  const auto product =
      std::find_if(candidates_.partitions.begin(), candidates_.partitions.end(),
                   [](const PartitionCandidates& each) { return each.partition.kind == PartitionKind::contraction; });
  ASSERT_NE(product, candidates_.partitions.end());
  const auto printed = [&](const Candidate& candidate) {
    return print_candidate(candidates_.domains, product->partition, candidate);
  };
  // There are fewer classes with an algorithm than with the library's own choice, and fewer of these than layouts.
  std::set<std::string> all, own, named;
  for (const Candidate& candidate : product->candidates) {
    all.insert(printed(candidate));
    own.insert(text_of(*product, candidate));
    Candidate by_name = candidate;
    std::get<GemmConfig>(by_name.config).algorithm.id = 7;
    const std::string text = text_of(*product, by_name);
    named.insert(text);
    std::get<GemmConfig>(by_name.config).algorithm.tile = 5;
    EXPECT_NE(text_of(*product, by_name), text);
    EXPECT_NE(text_of(*product, candidate), text);
  }
  EXPECT_LT(own.size(), all.size());
  EXPECT_LT(named.size(), own.size());
  // Transposition and the use of Tensor Cores separate classes.
  EXPECT_GE(named.size(), 2 * 2U);
}

}  // namespace
}  // namespace millrace
