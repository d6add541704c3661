// Trials on an emulated GPU: right and wrong candidates, and a GPU that is lost or out of memory.
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
#include "device/emulated/emulated_gpu.h"
#include "device/gpu_kernel_cache.h"
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

// Too large for the reference.
constexpr const char* kLarge = R"(
B = 320
J = 320
K = 320


def product(x: float16[B, J], w: float16[J, K]):
    return np.einsum("bj,jk->bk", x, w)
)";

constexpr const char* kMutated = R"(
A = 6
B = 37


def layer(x: float32[A, B], y: float32[A, B], bias: float32[B]):
    return dropout(softmax(x), p=0.25), relu(x + bias[None, :]) + y
)";

class EmulatedTrials : public ScratchTest {
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
    options.target = gpu_target({2});
    options.libraries = {GemmLibrary::cublaslt};
    Result<Candidates> found = enumerate(training_, fuse(training_), options);
    ASSERT_TRUE(found) << to_string(found.error());
    candidates_ = std::move(*found);
    gpu_ = emulated::make_gpu();
    compiler_ = emulated::make_compiler();
  }

  Result<GpuTrials> trials() const {
    return GpuTrials::make(*gpu_, *compiler_, path("cache"), training_.graph, candidates_.domains);
  }

  Result<MeasurementRow> run(GpuTrials& trials, const Partition& partition, const Candidate& candidate) const {
    const Launch launch =
        lower(training_.graph, partition, layouts_of(candidates_.domains, partition, candidate), candidate.config);
    const GpuKernelCache cache(path("cache"), *compiler_, gpu_prelude(), "sm_90");
    const Result<CompiledCubin> cubin = cache.get({launch}, 1).front();
    if (!cubin) return cubin.error();
    return trials.run(partition, candidate, cubin->bytes, cubin->name, {});
  }

  // The largest partition with an operator of this kind.
  const Partition* fused_with(OperatorKind kind) const {
    const Partition* found = nullptr;
    for (const PartitionCandidates& each : candidates_.partitions) {
      const std::vector<OperatorId>& members = each.partition.members;
      const bool has = std::any_of(members.begin(), members.end(),
                                   [&](OperatorId op) { return training_.graph.operators[op.at()].kind == kind; });
      if (has && (found == nullptr || members.size() > found->members.size())) found = &each.partition;
    }
    return found;
  }

  // The partition's first candidate with all tensors stored as words, with a piece of its kernel's text replaced.
  Result<MeasurementRow> run_altered(GpuTrials& trials, const Partition& partition, const std::string& from,
                                     const std::string& to) const {
    for (const PartitionCandidates& each : candidates_.partitions) {
      if (&each.partition != &partition) continue;
      for (const Candidate& candidate : each.candidates) {
        const std::vector<Layout> layouts = layouts_of(candidates_.domains, partition, candidate);
        const bool words = std::all_of(layouts.begin(), layouts.end(),
                                       [](const Layout& layout) { return layout.storage == MaskStorage::words; });
        if (!words) continue;
        Launch launch = lower(training_.graph, partition, layouts, candidate.config);
        const size_t at = launch.kernel.find(from);
        if (at == std::string::npos) return Error::make(ErrorKind::failed, concat(from, " is not in ", launch.kernel));
        launch.kernel.replace(at, from.size(), to);
        const GpuKernelCache cache(path("cache"), *compiler_, gpu_prelude(), "sm_90");
        const Result<CompiledCubin> cubin = cache.get({launch}, 1).front();
        if (!cubin) return cubin.error();
        return trials.run(partition, candidate, cubin->bytes, cubin->name, {});
      }
    }
    return Error::make(ErrorKind::failed, "no candidate");
  }

  void expect_measured(GpuTrials& trials, const Partition& partition, const Candidate& candidate) const {
    const Result<MeasurementRow> row = run(trials, partition, candidate);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(word(*row), "measured") << partition.name << ": " << row->detail;
  }

  static std::string resized(std::string program, const std::vector<std::pair<std::string, std::string>>& sizes) {
    for (const auto& [from, to] : sizes) program.replace(program.find(from), from.size(), to);
    return program;
  }

  // The program's first product with a given algorithm.
  std::pair<const Partition*, Candidate> product(int algorithm, int split = 1) const {
    for (const PartitionCandidates& each : candidates_.partitions) {
      for (const Candidate& candidate : each.candidates) {
        if (!std::holds_alternative<GemmConfig>(candidate.config)) continue;
        Candidate made = candidate;
        std::get<GemmConfig>(made.config).algorithm.id = algorithm;
        std::get<GemmConfig>(made.config).algorithm.split_k = split;
        return {&each.partition, made};
      }
    }
    ADD_FAILURE() << "no product";
    return {nullptr, {}};
  }

  static std::string word(const MeasurementRow& row) {
    return std::string(kOutcomeNames.at(static_cast<size_t>(row.outcome)));
  }

  static constexpr std::array kVariables = {"MILLRACE_EMULATED_WRONG", "MILLRACE_EMULATED_REFUSED",
                                            "MILLRACE_EMULATED_LOST", "MILLRACE_EMULATED_MEMORY",
                                            "MILLRACE_EMULATED_WRONG_AUXILIARY"};
  TrainingGraph training_;
  Candidates candidates_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuCompiler> compiler_;
};

TEST_F(EmulatedTrials, EveryPartitionIsMeasured) {
  take(kTriedProgram);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  size_t products = 0;
  for (const PartitionCandidates& each : candidates_.partitions) {
    for (const size_t number : {size_t{0}, each.candidates.size() / 2, each.candidates.size() - 1}) {
      const Result<MeasurementRow> row = run(*all, each.partition, each.candidates[number]);
      ASSERT_TRUE(row) << to_string(row.error());
      EXPECT_EQ(word(*row), "measured") << each.partition.name << ": " << row->detail;
      EXPECT_GT(row->seconds, 1e-5);
      EXPECT_LT(row->seconds, 1e-3);
      EXPECT_GE(row->samples, 5);
      products += std::holds_alternative<GemmConfig>(each.candidates[number].config) ? 1U : 0U;
    }
  }
  EXPECT_GT(products, 0U);
}

// Equal partitions may have different dropout masks.
TEST_F(EmulatedTrials, EqualPartitionsWithDifferentMasksAreMeasured) {
  take(kTwoDropouts);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  std::map<std::string, int> equal;
  for (const PartitionCandidates& each : candidates_.partitions) {
    ++equal[print_partition(training_.graph, each.partition)];
    for (const Candidate& candidate : each.candidates) {
      expect_measured(*all, each.partition, candidate);
    }
  }
  EXPECT_TRUE(std::any_of(equal.begin(), equal.end(), [](const auto& each) { return each.second == 2; }));
}

// Products that absorb biases, a ReLU, and the gradients of biases: small ones against the reference, large ones by
// probed elements; also with a negative factor.
TEST_F(EmulatedTrials, EpiloguesAreMeasured) {
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
  const std::string large = resized(kBiases, {{"B = 6", "B = 330"}, {"I = 4", "I = 320"}, {"O = 5", "O = 310"}});
  for (const std::string& program : {std::string(kBiases), large}) {
    take(program);
    Result<GpuTrials> all = trials();
    ASSERT_TRUE(all) << to_string(all.error());
    std::set<std::string> tried;
    for (const PartitionCandidates& each : candidates_.partitions) {
      if (!each.partition.product.has_epilogue()) continue;
      EXPECT_FALSE(each.candidates.empty()) << each.partition.name;
      const bool fresh = tried
                             .insert(each.partition.product.activation == Activation::relu ? "relu"
                                     : each.partition.product.vector->written()            ? "gradient"
                                                                                           : "bias")
                             .second;
      if (kSanitized && program == large && !fresh) continue;
      const size_t most = program == large ? 1 : 4;
      for (size_t number = 0; number < std::min(most, each.candidates.size()); ++number) {
        expect_measured(*all, each.partition, each.candidates[number]);
      }
    }
    EXPECT_EQ(tried.size(), 3U);
  }
}

// Products that take a GELU, and its gradient, by a tanh as coarse as a GPU's: small ones and large ones. An algorithm
// with a wrong element in the auxiliary matrix is detected.
TEST_F(EmulatedTrials, GelusAreMeasured) {
  const std::string large = resized(kGelus, {{"B = 6", "B = 330"}, {"I = 4", "I = 320"}, {"U = 8", "U = 312"}});
  setenv("MILLRACE_EMULATED_WRONG_AUXILIARY", "3", 1);
  for (const std::string& program : {std::string(kGelus), large}) {
    take(program);
    Result<GpuTrials> all = trials();
    ASSERT_TRUE(all) << to_string(all.error());
    std::set<std::string> tried;
    for (const PartitionCandidates& each : candidates_.partitions) {
      const Product& product = each.partition.product;
      if (!product.auxiliary.valid()) continue;
      // Under a sanitizer a large product takes half a minute, so the batch, which is twice as many, is left out.
      if (program == large && training_.graph.tensor(product.auxiliary).dims.size() > 2) continue;
      tried.insert(each.partition.name);
      EXPECT_EQ(is_large(each.partition), program == large) << each.partition.name;
      ASSERT_FALSE(each.candidates.empty()) << each.partition.name;
      const size_t most = program == large ? 1 : 4;
      for (size_t number = 0; number < std::min(most, each.candidates.size()); ++number) {
        Candidate candidate = each.candidates[number];
        expect_measured(*all, each.partition, candidate);
        if (!product.writes_auxiliary()) continue;
        std::get<GemmConfig>(candidate.config).algorithm = {emulated::kFastAlgorithm};
        const Result<MeasurementRow> wrong = run(*all, each.partition, candidate);
        ASSERT_TRUE(wrong) << to_string(wrong.error());
        EXPECT_EQ(word(*wrong), "wrong") << each.partition.name;
        EXPECT_TRUE(wrong->detail.starts_with(training_.graph.tensor(product.auxiliary).name + "[")) << wrong->detail;
      }
    }
    EXPECT_EQ(tried.size(), program == large ? 2U : 4U);
  }
}

// Products that add to a tensor, one by one and stacked, a batch of them and with a negative factor.
TEST_F(EmulatedTrials, AdditionsAreMeasured) {
  std::string halves = kSums;
  for (size_t at = halves.find("float32"); at != std::string::npos; at = halves.find("float32", at))
    halves.replace(at, 7, "float16");
  const std::string large = resized(halves, {{"B = 6", "B = 330"}, {"I = 4", "I = 320"}, {"O = 5", "O = 310"}});
  for (const std::string& program : {halves, large}) {
    take(program);
    Result<GpuTrials> all = trials();
    ASSERT_TRUE(all) << to_string(all.error());
    std::set<std::string> tried;
    for (const PartitionCandidates& each : candidates_.partitions) {
      const Product& product = each.partition.product;
      if (!product.adds() || each.candidates.empty()) continue;
      const bool fresh = tried
                             .insert(!product.scales.empty()                                 ? "factor"
                                     : product.tensors[0].size() > 1                         ? "stacked"
                                     : training_.graph.tensor(product.added).dims.size() > 2 ? "batch"
                                                                                             : "plain")
                             .second;
      // Under a sanitizer a large product takes half a minute, so only one is tried.
      if (program == large && (!fresh || (kSanitized && tried.size() > 1))) continue;
      EXPECT_EQ(is_large(each.partition), program == large) << each.partition.name;
      const size_t most = program == large ? 1 : 4;
      for (size_t number = 0; number < std::min(most, each.candidates.size()); ++number) {
        expect_measured(*all, each.partition, each.candidates[number]);
      }
    }
    EXPECT_EQ(tried.size(), 4U);
  }
}

TEST_F(EmulatedTrials, WrongAlgorithmsAreDetected) {
  take(kTriedProgram);
  setenv("MILLRACE_EMULATED_WRONG", "3", 1);
  setenv("MILLRACE_EMULATED_REFUSED", "2", 1);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  for (const auto& [algorithm, split, wanted] : {std::tuple(emulated::kHeuristicAlgorithm, 1, "measured"),
                                                 {emulated::kSplittingAlgorithm, 4, "measured"},
                                                 {emulated::kAlignedAlgorithm, 1, "failed"},
                                                 {emulated::kFastAlgorithm, 1, "wrong"},
                                                 {99, 1, "failed"},
                                                 {emulated::kHeuristicAlgorithm, 1, "measured"}}) {
    const auto [partition, candidate] = product(algorithm, split);
    const Result<MeasurementRow> row = run(*all, *partition, candidate);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(word(*row), wanted) << row->detail;
    const bool says_why = row->outcome == Outcome::wrong    ? row->detail.find(", expected ") != std::string::npos
                          : row->outcome == Outcome::failed ? row->detail.find("does not accept") != std::string::npos
                                                            : row->detail.empty();
    EXPECT_TRUE(says_why) << row->detail;
  }
}

TEST_F(EmulatedTrials, LargeProductsAreComparedWithTheOracle) {
  take(kLarge);
  setenv("MILLRACE_EMULATED_WRONG", "3", 1);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  // This holds for the very first candidate too, which has no peer.
  for (const auto& [algorithm, wanted] :
       {std::pair(emulated::kFastAlgorithm, "wrong"), {emulated::kHeuristicAlgorithm, "measured"}}) {
    const auto [partition, candidate] = product(algorithm);
    ASSERT_TRUE(is_large(*partition));
    const Result<MeasurementRow> row = run(*all, *partition, candidate);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(word(*row), wanted) << row->detail;
    EXPECT_EQ(all->why_not_on_gpu(), "");
  }
}

// Where the oracle does not fit into the GPU's memory, the first product is checked by elements that are computed one
// by one, and all others are compared with it.
TEST_F(EmulatedTrials, LargeProductsAreComparedWithAPeer) {
  setenv("MILLRACE_EMULATED_MEMORY", std::to_string((256 << 10) + 6'000'000).c_str(), 1);
  take(kLarge);
  setenv("MILLRACE_EMULATED_WRONG", "3", 1);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  for (const auto& [algorithm, wanted] :
       {std::pair(emulated::kHeuristicAlgorithm, "measured"), {emulated::kFastAlgorithm, "wrong"}}) {
    const auto [partition, candidate] = product(algorithm);
    ASSERT_TRUE(is_large(*partition));
    const Result<MeasurementRow> row = run(*all, *partition, candidate);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(word(*row), wanted) << row->detail;
    EXPECT_NE(all->why_not_on_gpu().find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << all->why_not_on_gpu();
  }
}

// The check can fail: kernels that were changed to be wrong are detected, as on the CPU (codegen/wrong_kernel_test).
TEST_F(EmulatedTrials, WrongKernelsAreDetected) {
  take(kMutated);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  for (const auto& [kind, from, to] : {std::tuple(OperatorKind::relu, "", ""),
                                       {OperatorKind::relu, " + x", " - x"},
                                       {OperatorKind::relu, " + x", " * 1.000002f + x"},
                                       {OperatorKind::softmax, "mr::exp(", "1.0f + mr::exp("},
                                       {OperatorKind::softmax, "mr::exp(", "mr::infinity() * 0 * mr::exp("},
                                       {OperatorKind::dropout, "args.subsequences[0]", "args.subsequences[0] + 1"}}) {
    const Partition* partition = fused_with(kind);
    ASSERT_NE(partition, nullptr);
    const Result<MeasurementRow> row = run_altered(*all, *partition, from, to);
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(word(*row), std::string(from).empty() ? "measured" : "wrong") << to << ": " << row->detail;
  }
}

// Kernels whose results are right, at first.
TEST_F(EmulatedTrials, KernelsThatMisuseTheirMemoryAreDetected) {
  take(kMutated);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  const Partition* const partition = fused_with(OperatorKind::relu);
  ASSERT_NE(partition, nullptr);
  const std::string first =
      "if (mr::block_number() == 0 && mr::thread_number() == 0) static_cast<mr::u8*>(args.tensors[";
  const std::string output = concat(first, tensors_of(*partition).size() - 1, "])");
  const std::string bytes = concat(6 * 37 * sizeof(float));
  const std::string input = training_.graph.tensor(partition->reads[0]).name;
  for (const auto& [statement, detail] : {
           std::pair(output + "[-1] = 1;", std::string("it writes before or after its tensors")),
           {concat(output, "[", bytes, "] = 1;"), "it writes before or after its tensors"},
           {concat(first, "0])[0] ^= 1;"), "it changes its input " + input},
           {"static int calls[1 << 16]; if (++calls[mr::block_number() * 256 + mr::thread_number()] > 3) return;",
            "after the timing: "},
       }) {
    const Result<MeasurementRow> row =
        run_altered(*all, *partition, "mr::begin();", concat("mr::begin(); ", statement));
    ASSERT_TRUE(row) << to_string(row.error());
    EXPECT_EQ(word(*row), "wrong") << statement;
    EXPECT_TRUE(row->detail.starts_with(detail)) << row->detail;
  }
}

// This holds with more ranges than one launch takes, too.
TEST_F(EmulatedTrials, TheFirstChangedByteOutsideOfRangesIsFound) {
  take(kMutated);
  const Result<GpuChecker> checker = GpuChecker::make(*gpu_, *compiler_);
  ASSERT_TRUE(checker) << to_string(checker.error());
  constexpr int64_t kBytes = 4096;
  const Result<GpuMemory> one = GpuMemory::allocate(*gpu_, kBytes);
  const Result<GpuMemory> two = GpuMemory::allocate(*gpu_, kBytes);
  ASSERT_TRUE(one && two);
  std::vector<ByteRange> ranges;
  for (int64_t k = 0; k < 30; ++k) ranges.push_back({100 * k + 51, 100 * k + 80});
  for (const std::vector<ByteRange>& skipped : {std::vector<ByteRange>(), ranges}) {
    for (const int64_t at : {0, 7, 50, 51, 79, 80, 1251, 1350, 2951, 2999, 3000, 4095}) {
      ASSERT_TRUE(gpu_->fill(one->data(), 1, kBytes) && gpu_->fill(two->data(), 1, kBytes));
      ASSERT_TRUE(gpu_->fill(one->bytes_at(at), 2, 1));
      const bool allowed =
          std::any_of(skipped.begin(), skipped.end(), [&](const ByteRange& r) { return r.begin <= at && at < r.end; });
      const Result<std::optional<int64_t>> found =
          checker->first_change(one->bytes_at(0), two->bytes_at(0), kBytes, skipped);
      ASSERT_TRUE(found) << to_string(found.error());
      EXPECT_EQ(*found, allowed ? std::nullopt : std::optional<int64_t>(at)) << at;
    }
  }
}

TEST_F(EmulatedTrials, ALostGpuIsAnErrorAndNotAnOutcome) {
  take(kTriedProgram);
  setenv("MILLRACE_EMULATED_LOST", "3", 1);
  Result<GpuTrials> all = trials();
  ASSERT_TRUE(all) << to_string(all.error());
  const auto [partition, candidate] = product(emulated::kFastAlgorithm);
  const Result<MeasurementRow> row = run(*all, *partition, candidate);
  ASSERT_FALSE(row) << word(*row);
  EXPECT_NE(to_string(row.error()).find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  const auto [same, other] = product(emulated::kHeuristicAlgorithm);
  EXPECT_FALSE(run(*all, *same, other)) << "nothing works after that";
}

// Memory may run out anywhere: for the reference data, for the candidate's tensors, for its workspace.
TEST_F(EmulatedTrials, OutOfMemoryIsAnOutcomeAndTheWorkerContinues) {
  std::map<std::string, int> seen;
  for (int64_t bytes = 257 << 10; bytes < 350 << 10; bytes += 4 << 10) {
    setenv("MILLRACE_EMULATED_MEMORY", std::to_string(bytes).c_str(), 1);
    take(kTriedProgram);
    Result<GpuTrials> all = trials();
    if (!all) {
      EXPECT_NE(to_string(all.error()).find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos);
      continue;
    }
    for (const PartitionCandidates& each : candidates_.partitions) {
      if (!std::holds_alternative<GemmConfig>(each.candidates.front().config)) continue;
      const Result<MeasurementRow> row = run(*all, each.partition, each.candidates.front());
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
