// Trials of candidates on a GPU, which the CPU plays: right ones, wrong ones, and a GPU that is lost or full.
#include "measure/gpu/gpu_trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "base/sanitized.h"
#include "base/scratch.h"
#include "candidates/adding_program.h"
#include "candidates/enumerate.h"
#include "candidates/gelu_program.h"
#include "codegen/corner_programs.h"
#include "codegen/cuda/generate.h"
#include "codegen/lower.h"
#include "device/gpu_kernel_cache.h"
#include "device/played/played_gpu.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

constexpr const char* kTriedProgram = R"(
B = 4
J = 8
K = 24


def layer(x: float16[B, J], w: float16[J, K]):
    y = np.einsum("bj,jk->bk", x, w)
    return dropout(softmax(y), p=0.5)
)";

// Larger than what the reference computes.
constexpr const char* kLarge = R"(
B = 320
J = 320
K = 320


def product(x: float16[B, J], w: float16[J, K]):
    return np.einsum("bj,jk->bk", x, w)
)";

class PlayedTrials : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    for (const char* const variable : kVariables) unsetenv(variable);
  }
  void TearDown() override {
    for (const char* const variable : kVariables) unsetenv(variable);
    ScratchTest::TearDown();
  }

  void take(const std::string& program) {
    training_ = training_of(program);
    EnumerateOptions options;
    options.gpu = GpuTarget{2};
    options.libraries = {GemmLibrary::cublaslt};
    Result<Candidates> found = enumerate(training_, fuse(training_), options);
    ASSERT_TRUE(found) << to_string(found.error());
    candidates_ = std::move(*found);
    gpu_ = played::make_gpu();
    compiler_ = played::make_compiler();
  }

  Result<GpuTrials> trials() const { return GpuTrials::make(*gpu_, *compiler_, training_.graph, candidates_.domains); }

  Result<MeasurementRow> run(GpuTrials& trials, const Part& part, const Candidate& candidate) const {
    const Launch launch = lower(training_.graph, part, layouts_of(candidates_.domains, part, candidate), candidate.way);
    const GpuKernelCache cache(path("cache"), *compiler_, concat(cuda_hardware(), cuda_prelude()), "sm_90");
    const Result<CompiledCubin> cubin = cache.get({launch}, 1).front();
    if (!cubin) return cubin.error();
    return trials.run(part, candidate, cubin->bytes, cubin->name, {});
  }

  // The first product of the program, by an algorithm.
  std::pair<const Part*, Candidate> product(int algorithm, int split = 1) const {
    for (const PartCandidates& of : candidates_.parts) {
      for (const Candidate& candidate : of.candidates) {
        if (!std::holds_alternative<GemmWay>(candidate.way)) continue;
        Candidate made = candidate;
        std::get<GemmWay>(made.way).algorithm.id = algorithm;
        std::get<GemmWay>(made.way).algorithm.split_k = split;
        return {&of.part, made};
      }
    }
    ADD_FAILURE() << "no product";
    return {nullptr, {}};
  }

  static std::string word(const MeasurementRow& row) {
    return std::string(kOutcomeNames.at(static_cast<size_t>(row.outcome)));
  }

  static constexpr std::array kVariables = {"MILLRACE_PLAYED_WRONG", "MILLRACE_PLAYED_REFUSED", "MILLRACE_PLAYED_LOST",
                                            "MILLRACE_PLAYED_MEMORY", "MILLRACE_PLAYED_WRONG_AUXILIARY"};
  TrainingGraph training_;
  Candidates candidates_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuCompiler> compiler_;
};

TEST_F(PlayedTrials, EveryPartIsMeasured) {
  take(kTriedProgram);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  size_t products = 0;
  for (const PartCandidates& of : candidates_.parts) {
    for (const size_t number : {size_t{0}, of.candidates.size() / 2, of.candidates.size() - 1}) {
      const Result<MeasurementRow> row = run(*all, of.part, of.candidates[number]);
      ASSERT_TRUE(row) << to_string(row.error());
      EXPECT_EQ(word(*row), "measured") << of.part.name << ": " << row->detail;
      EXPECT_GT(row->seconds, 1e-5);
      EXPECT_LT(row->seconds, 1e-3);
      EXPECT_GE(row->samples, 5);
      products += std::holds_alternative<GemmWay>(of.candidates[number].way) ? 1U : 0U;
    }
  }
  EXPECT_GT(products, 0U);
}

// What one of two equal parts draws says nothing of what the other one draws.
TEST_F(PlayedTrials, EqualPartsThatDrawFromDifferentStreamsAreMeasured) {
  take(kTwoDropouts);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  std::map<std::string, int> equal;
  for (const PartCandidates& of : candidates_.parts) {
    ++equal[print_part(training_.graph, of.part)];
    for (const Candidate& candidate : of.candidates) {
      const Result<MeasurementRow> row = run(*all, of.part, candidate);
      ASSERT_TRUE(row) << to_string(row.error());
      EXPECT_EQ(word(*row), "measured") << of.part.name << ": " << row->detail;
    }
  }
  EXPECT_TRUE(std::any_of(equal.begin(), equal.end(), [](const auto& of) { return of.second == 2; }));
}

// Products that swallow biases, a ReLU, and the gradients of biases: small ones against the reference, large ones by
// elements computed one by one; with a negative factor too.
TEST_F(PlayedTrials, EpiloguesAreMeasured) {
  constexpr const char* kBiases = R"(
B = 6
I = 4
O = 5


def layer(x: float16[B, I], wq: float16[I, O], bq: float16[O], wk: float16[I, O], bk: float16[O], wr: float16[I, O],
          br: float16[O]):
    qq = -2 * np.einsum("bi,io->bo", x, wq) + bq
    kk = np.einsum("bi,io->bo", x, wk) + bk
    return np.einsum("bo,co->bc", qq, kk), relu(np.einsum("bi,io->bo", x, wr) + br)
)";
  std::string large = kBiases;
  large.replace(large.find("B = 6"), 5, "B = 330");
  large.replace(large.find("I = 4"), 5, "I = 320");
  large.replace(large.find("O = 5"), 5, "O = 310");
  for (const std::string& program : {std::string(kBiases), large}) {
    take(program);
    Result<GpuTrials> all = trials();
    ASSERT_TRUE(all) << to_string(all.error());
    std::set<std::string> tried;
    for (const PartCandidates& of : candidates_.parts) {
      if (!of.part.product.has_epilogue()) continue;
      EXPECT_FALSE(of.candidates.empty()) << of.part.name;
      const bool fresh = tried
                             .insert(of.part.product.activation == Activation::relu ? "relu"
                                     : of.part.product.vector->written()            ? "gradient"
                                                                                    : "bias")
                             .second;
      if (kSanitized && program == large && !fresh) continue;
      const size_t most = program == large ? 1 : 4;
      for (size_t number = 0; number < std::min(most, of.candidates.size()); ++number) {
        const Result<MeasurementRow> row = run(*all, of.part, of.candidates[number]);
        ASSERT_TRUE(row) << to_string(row.error());
        EXPECT_EQ(word(*row), "measured") << of.part.name << ": " << row->detail;
      }
    }
    EXPECT_EQ(tried.size(), 3U);
  }
}

// Products that take a GELU, and its gradient, by a tanh as coarse as a GPU's: small ones and large ones. An algorithm
// that gets an element wrong of what it writes beside the GELU is told.
TEST_F(PlayedTrials, GelusAreMeasured) {
  std::string large = kGelus;
  large.replace(large.find("B = 6"), 5, "B = 330");
  large.replace(large.find("I = 4"), 5, "I = 320");
  large.replace(large.find("U = 8"), 5, "U = 312");
  setenv("MILLRACE_PLAYED_WRONG_AUXILIARY", "3", 1);
  for (const std::string& program : {std::string(kGelus), large}) {
    take(program);
    Result<GpuTrials> all = trials();
    ASSERT_TRUE(all) << to_string(all.error());
    std::set<std::string> tried;
    for (const PartCandidates& of : candidates_.parts) {
      const Product& product = of.part.product;
      if (!product.auxiliary.valid()) continue;
      // Under a sanitizer a large product takes half a minute: none of the batch, which is twice as many.
      if (program == large && training_.graph.tensor(product.auxiliary).dims.size() > 2) continue;
      tried.insert(of.part.name);
      EXPECT_EQ(is_large(of.part), program == large) << of.part.name;
      ASSERT_FALSE(of.candidates.empty()) << of.part.name;
      const size_t most = program == large ? 1 : 4;
      for (size_t number = 0; number < std::min(most, of.candidates.size()); ++number) {
        Candidate candidate = of.candidates[number];
        const Result<MeasurementRow> row = run(*all, of.part, candidate);
        ASSERT_TRUE(row) << to_string(row.error());
        EXPECT_EQ(word(*row), "measured") << of.part.name << ": " << row->detail;
        if (!product.writes_auxiliary()) continue;
        std::get<GemmWay>(candidate.way).algorithm = {played::kFastAlgorithm};
        const Result<MeasurementRow> wrong = run(*all, of.part, candidate);
        ASSERT_TRUE(wrong) << to_string(wrong.error());
        EXPECT_EQ(word(*wrong), "wrong") << of.part.name;
        EXPECT_TRUE(wrong->detail.starts_with(training_.graph.tensor(product.auxiliary).name + "[")) << wrong->detail;
      }
    }
    EXPECT_EQ(tried.size(), program == large ? 2U : 4U);
  }
}

// Products that add to a tensor, one by one and stacked, a batch of them and with a negative factor.
TEST_F(PlayedTrials, AdditionsAreMeasured) {
  std::string halves = kSums;
  for (size_t at = halves.find("float32"); at != std::string::npos; at = halves.find("float32", at))
    halves.replace(at, 7, "float16");
  std::string large = halves;
  large.replace(large.find("B = 6"), 5, "B = 330");
  large.replace(large.find("I = 4"), 5, "I = 320");
  large.replace(large.find("O = 5"), 5, "O = 310");
  for (const std::string& program : {halves, large}) {
    take(program);
    Result<GpuTrials> all = trials();
    ASSERT_TRUE(all) << to_string(all.error());
    std::set<std::string> tried;
    for (const PartCandidates& of : candidates_.parts) {
      const Product& product = of.part.product;
      if (!product.adds() || of.candidates.empty()) continue;
      const bool fresh = tried
                             .insert(!product.scales.empty()                                 ? "factor"
                                     : product.tensors[0].size() > 1                         ? "stacked"
                                     : training_.graph.tensor(product.added).dims.size() > 2 ? "batch"
                                                                                             : "plain")
                             .second;
      // Under a sanitizer a large product takes half a minute: one of them.
      if (program == large && (!fresh || (kSanitized && tried.size() > 1))) continue;
      EXPECT_EQ(is_large(of.part), program == large) << of.part.name;
      const size_t most = program == large ? 1 : 4;
      for (size_t number = 0; number < std::min(most, of.candidates.size()); ++number) {
        const Result<MeasurementRow> row = run(*all, of.part, of.candidates[number]);
        ASSERT_TRUE(row) << to_string(row.error());
        EXPECT_EQ(word(*row), "measured") << of.part.name << ": " << row->detail;
      }
    }
    EXPECT_EQ(tried.size(), 4U);
  }
}

TEST_F(PlayedTrials, AlgorithmsAreTriedAndWrongOnesAreTold) {
  take(kTriedProgram);
  setenv("MILLRACE_PLAYED_WRONG", "3", 1);
  setenv("MILLRACE_PLAYED_REFUSED", "2", 1);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  for (const auto& [algorithm, split, wanted] : {std::tuple(played::kHeuristicAlgorithm, 1, "measured"),
                                                 {played::kSplittingAlgorithm, 4, "measured"},
                                                 {played::kAlignedAlgorithm, 1, "failed"},
                                                 {played::kFastAlgorithm, 1, "wrong"},
                                                 {99, 1, "failed"},
                                                 {played::kHeuristicAlgorithm, 1, "measured"}}) {
    const auto [part, candidate] = product(algorithm, split);
    const Result<MeasurementRow> row = run(*all, *part, candidate);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(word(*row), wanted) << row->detail;
    const std::string words = row->outcome == Outcome::wrong    ? "is right, within"
                              : row->outcome == Outcome::failed ? "does not admit"
                                                                : "";
    EXPECT_NE(row->detail.find(words), std::string::npos) << row->detail;
  }
}

TEST_F(PlayedTrials, ProductsThatAreTooLargeForTheReferenceAreComparedWithAPeer) {
  take(kLarge);
  setenv("MILLRACE_PLAYED_WRONG", "3", 1);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  for (const auto& [algorithm, wanted] :
       {std::pair(played::kHeuristicAlgorithm, "measured"), {played::kFastAlgorithm, "wrong"}}) {
    const auto [part, candidate] = product(algorithm);
    ASSERT_TRUE(is_large(*part));
    const Result<MeasurementRow> row = run(*all, *part, candidate);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(word(*row), wanted) << row->detail;
  }
}

TEST_F(PlayedTrials, AGpuThatIsLostIsAnErrorAndNoOutcome) {
  take(kTriedProgram);
  setenv("MILLRACE_PLAYED_LOST", "3", 1);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  const auto [part, candidate] = product(played::kFastAlgorithm);
  const Result<MeasurementRow> row = run(*all, *part, candidate);
  ASSERT_FALSE(row) << word(*row);
  EXPECT_NE(to_string(row.error()).find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  const auto [same, other] = product(played::kHeuristicAlgorithm);
  EXPECT_FALSE(run(*all, *same, other)) << "nothing works after that";
}

// Wherever the memory ends: for the truth, for the candidate's own tensors, for its workspace.
TEST_F(PlayedTrials, MemoryThatIsShortIsAnOutcomeAndTheWorkerLivesOn) {
  std::map<std::string, int> seen;
  for (int64_t bytes = 257 << 10; bytes < 290 << 10; bytes += 4 << 10) {
    setenv("MILLRACE_PLAYED_MEMORY", std::to_string(bytes).c_str(), 1);
    take(kTriedProgram);
    Result<GpuTrials> all = trials();
    if (!all) {
      EXPECT_NE(to_string(all.error()).find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos);
      continue;
    }
    for (const PartCandidates& of : candidates_.parts) {
      if (!std::holds_alternative<GemmWay>(of.candidates.front().way)) continue;
      const Result<MeasurementRow> row = run(*all, of.part, of.candidates.front());
      ASSERT_TRUE(row) << bytes << ": " << to_string(row.error());
      ++seen[word(*row)];
    }
  }
  EXPECT_GT(seen["out_of_memory"], 0);
  EXPECT_GT(seen["measured"], 0);
  EXPECT_EQ(seen.size(), 2U);
}

}  // namespace
}  // namespace millrace
