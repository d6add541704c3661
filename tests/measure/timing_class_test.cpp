// Which candidates of a GPU are alike: by what lies close together in memory, and how the work is shared.
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
    options.gpu = GpuTarget{2};
    options.libraries = {GemmLibrary::cublaslt};
    options.most = std::numeric_limits<size_t>::max() / 8;
    options.every_shape = true;
    Result<Candidates> found = enumerate(training_, fuse(training_), options);
    ASSERT_TRUE(found) << to_string(found.error());
    candidates_ = std::move(*found);
  }

  const PartitionCandidates& partition(const std::string& name) const {
    for (const PartitionCandidates& of : candidates_.partitions) {
      if (of.partition.name == name) return of;
    }
    ADD_FAILURE() << "no partition " << name;
    return candidates_.partitions.front();
  }

  std::string text_of(const PartitionCandidates& of, const Candidate& candidate) const {
    return timing_class_text(training_.graph, candidates_.domains, of.partition, candidate);
  }

  // By their texts, the printed candidates.
  std::map<std::string, std::vector<std::string>> groups(const PartitionCandidates& of) const {
    std::map<std::string, std::vector<std::string>> made;
    for (const Candidate& candidate : of.candidates)
      made[text_of(of, candidate)].push_back(print_candidate(candidates_.domains, of.partition, candidate));
    return made;
  }

  std::string timing_class_of(const PartitionCandidates& of, const std::string& printed) const {
    const std::optional<Candidate> candidate = parse_candidate(candidates_.domains, of.partition, printed);
    EXPECT_TRUE(candidate) << printed;
    return candidate ? text_of(of, *candidate) : "";
  }

  TrainingGraph training_;
  Candidates candidates_;
};

TEST_F(TimingClassTest, KernelsByTheLinesOfTheirTensors) {
  enumerate_all(R"(
def layer(x: float16[B, L, I]):
    y = relu(x)
    return np.exp(y)
)");
  const PartitionCandidates& of = partition("y relu");
  const auto config = [](const std::string& loops, int vector, const std::string& shape = "8.1.128.0.0") {
    return concat("flat loops ", loops, " vector ", vector, " threads 1 block -1 gpu ", shape);
  };
  // Lines of 64 halves are 128 bytes: where the next one lies does not matter.
  const std::string plain = timing_class_of(of, concat("012 012; ", config("0.1.2", 2)));
  EXPECT_EQ(timing_class_of(of, concat("012 102; ", config("0.1.2", 2))), plain);
  EXPECT_EQ(timing_class_of(of, concat("012 102; ", config("1.0.2", 2))), plain);
  EXPECT_NE(timing_class_of(of, concat("012 102; ", config("1.0.2", 2, "8.1.256.0.0"))), plain) << "another shape";
  EXPECT_NE(timing_class_of(of, concat("012 021; ", config("0.1.2", 2))), plain) << "written across its lines";
  EXPECT_NE(timing_class_of(of, concat("012 021; ", config("0.2.1", 1))),
            timing_class_of(of, concat("012 021; ", config("0.1.2", 2))));
  // One of four halves is shorter than that: the next axis counts.
  const std::string narrow = timing_class_of(of, concat("012 120; ", config("1.2.0", 0)));
  EXPECT_NE(timing_class_of(of, concat("012 210; ", config("1.2.0", 0))), narrow);
  EXPECT_NE(timing_class_of(of, concat("012 120; ", config("2.1.0", 0))), narrow);

  size_t largest = 0;
  const auto all = groups(of);
  for (const auto& [text, members] : all) largest = std::max(largest, members.size());
  EXPECT_LT(all.size(), of.candidates.size());
  EXPECT_GT(largest, 1U);
}

TEST_F(TimingClassTest, MasksByHowTheyAreKept) {
  enumerate_all(R"(
def layer(x: float16[B, L, I]):
    return dropout(x, p=0.1)
)");
  std::map<std::string, size_t> groups_that_keep;
  for (const PartitionCandidates& of : candidates_.partitions) {
    for (const auto& [text, members] : groups(of)) {
      for (const char* const kept : {"bits", "regenerated"}) {
        std::set<bool> has;
        for (const std::string& printed : members) has.insert(printed.find(kept) != std::string::npos);
        EXPECT_EQ(has.size(), 1U) << of.partition.name << ": " << text;
        if (has.contains(true)) ++groups_that_keep[kept];
      }
    }
  }
  EXPECT_GT(groups_that_keep["bits"], 0U);
  EXPECT_GT(groups_that_keep["regenerated"], 0U);
}

TEST_F(TimingClassTest, ProductsByWhatTheLibraryIsTold) {
  enumerate_all(R"(
def layer(x: float16[B, L, I], w: float16[U, I]):
    return np.exp(relu(np.einsum("bli,ui->blu", np.exp(x), w)))
)");
  const auto product =
      std::find_if(candidates_.partitions.begin(), candidates_.partitions.end(),
                   [](const PartitionCandidates& of) { return of.partition.kind == PartitionKind::contraction; });
  ASSERT_NE(product, candidates_.partitions.end());
  const auto printed = [&](const Candidate& candidate) {
    return print_candidate(candidates_.domains, product->partition, candidate);
  };
  // With an algorithm, fewer are apart than by the library's own choice; and fewer of these than there are layouts.
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
  // Matrices that are transposed, and products on Tensor Cores and off them, are not alike.
  EXPECT_GE(named.size(), 2 * 2U);
}

}  // namespace
}  // namespace millrace
