// Which candidates of a GPU are alike: by what lies close together in memory, and how the work is shared.
#include "measure/alike.h"

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

class AlikeTest : public testing::Test {
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

  const PartCandidates& part(const std::string& name) const {
    for (const PartCandidates& of : candidates_.parts) {
      if (of.part.name == name) return of;
    }
    ADD_FAILURE() << "no part " << name;
    return candidates_.parts.front();
  }

  std::string text_of(const PartCandidates& of, const Candidate& candidate) const {
    return alike_text(training_.graph, candidates_.domains, of.part, candidate);
  }

  // By their texts, the printed candidates.
  std::map<std::string, std::vector<std::string>> groups(const PartCandidates& of) const {
    std::map<std::string, std::vector<std::string>> made;
    for (const Candidate& candidate : of.candidates)
      made[text_of(of, candidate)].push_back(print_candidate(candidates_.domains, of.part, candidate));
    return made;
  }

  std::string alike_of(const PartCandidates& of, const std::string& printed) const {
    const std::optional<Candidate> candidate = parse_candidate(candidates_.domains, of.part, printed);
    EXPECT_TRUE(candidate) << printed;
    return candidate ? text_of(of, *candidate) : "";
  }

  TrainingGraph training_;
  Candidates candidates_;
};

TEST_F(AlikeTest, KernelsByTheLinesOfTheirTensors) {
  enumerate_all(R"(
def layer(x: float16[B, L, I]):
    y = relu(x)
    return np.exp(y)
)");
  const PartCandidates& of = part("y relu");
  const auto way = [](const std::string& loops, int vector, const std::string& shape = "8.1.128.0.0") {
    return concat("flat loops ", loops, " vector ", vector, " threads 1 block -1 gpu ", shape);
  };
  // Lines of 64 halves are 128 bytes: where the next one lies does not matter.
  const std::string plain = alike_of(of, concat("012 012; ", way("0.1.2", 2)));
  EXPECT_EQ(alike_of(of, concat("012 102; ", way("0.1.2", 2))), plain);
  EXPECT_EQ(alike_of(of, concat("012 102; ", way("1.0.2", 2))), plain);
  EXPECT_NE(alike_of(of, concat("012 102; ", way("1.0.2", 2, "8.1.256.0.0"))), plain) << "another shape";
  EXPECT_NE(alike_of(of, concat("012 021; ", way("0.1.2", 2))), plain) << "written across its lines";
  EXPECT_NE(alike_of(of, concat("012 021; ", way("0.2.1", 1))), alike_of(of, concat("012 021; ", way("0.1.2", 2))));
  // One of four halves is shorter than that: the next axis counts.
  const std::string narrow = alike_of(of, concat("012 120; ", way("1.2.0", 0)));
  EXPECT_NE(alike_of(of, concat("012 210; ", way("1.2.0", 0))), narrow);
  EXPECT_NE(alike_of(of, concat("012 120; ", way("2.1.0", 0))), narrow);

  size_t largest = 0;
  const auto all = groups(of);
  for (const auto& [text, members] : all) largest = std::max(largest, members.size());
  EXPECT_LT(all.size(), of.candidates.size());
  EXPECT_GT(largest, 1U);
}

TEST_F(AlikeTest, MasksByHowTheyAreKept) {
  enumerate_all(R"(
def layer(x: float16[B, L, I]):
    return dropout(x, p=0.1)
)");
  for (const PartCandidates& of : candidates_.parts) {
    for (const auto& [text, members] : groups(of)) {
      for (const char* const kept : {"bits", "drawn"}) {
        std::set<bool> has;
        for (const std::string& printed : members) has.insert(printed.find(kept) != std::string::npos);
        EXPECT_EQ(has.size(), 1U) << of.part.name << ": " << text;
      }
    }
  }
}

TEST_F(AlikeTest, ProductsByWhatTheLibraryIsTold) {
  enumerate_all(R"(
def layer(x: float16[B, L, I], w: float16[U, I]):
    return np.exp(relu(np.einsum("bli,ui->blu", np.exp(x), w)))
)");
  const auto product = std::find_if(candidates_.parts.begin(), candidates_.parts.end(),
                                    [](const PartCandidates& of) { return of.part.kind == PartKind::contraction; });
  ASSERT_NE(product, candidates_.parts.end());
  const auto printed = [&](const Candidate& candidate) {
    return print_candidate(candidates_.domains, product->part, candidate);
  };
  // With an algorithm, fewer are apart than by the library's own choice; and fewer of these than there are layouts.
  std::set<std::string> all, own, named;
  for (const Candidate& candidate : product->candidates) {
    all.insert(printed(candidate));
    own.insert(text_of(*product, candidate));
    Candidate by_name = candidate;
    std::get<GemmWay>(by_name.way).algorithm.id = 7;
    const std::string text = text_of(*product, by_name);
    named.insert(text);
    std::get<GemmWay>(by_name.way).algorithm.tile = 5;
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
