// Trials of products with oneDNN's epilogues: every candidate agrees with the reference, on small and on large shapes.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/text.h"
#include "candidates/enumerate.h"
#include "device/cpu/onednn.h"
#include "fusion/fusion_text.h"
#include "measure/trial.h"

namespace millrace {
namespace {

// The functions of its products with epilogues that were tried.
std::set<Activation> try_epilogues(const std::string& text, size_t most) {
  EnumerateOptions options;
  options.target = cpu_target();
  options.libraries = {GemmLibrary::onednn};
  options.most = most;
  options.threads = 2;
  const TrainingGraph training = training_of(text);
  Result<Candidates> found = find_partitions(training, fuse(training), options);
  EXPECT_TRUE(found);
  Trials trials(training.graph, found->domains);
  std::set<Activation> functions;
  for (PartitionCandidates& entry : found->partitions) {
    if (!entry.partition.product.has_epilogue()) continue;
    find_configs(training.graph, found->domains, options, entry);
    EXPECT_FALSE(entry.candidates.empty()) << entry.partition.name;
    for (const Candidate& candidate : entry.candidates) {
      const MeasurementRow row = trials.run(entry.partition, candidate, nullptr, {{}, 0, 0});
      EXPECT_EQ(row.outcome, Outcome::measured)
          << entry.partition.name << ": " << print_candidate(found->domains, entry.partition, candidate) << ": "
          << row.detail;
      functions.insert(entry.partition.product.activation);
    }
  }
  return functions;
}

std::string program(const std::string& type, int a, int b, int c) {
  std::string text = R"(
def f(x: TYPE[A, B], w: TYPE[B, C], u: TYPE[B, C], b: TYPE[C], e: TYPE[C]):
    y = relu(np.einsum("ab,bc->ac", x, w) + b)
    s = 0.5 * np.einsum("ab,bc->ac", x, u) + e
    return y, s
)";
  for (const auto& [from, to] : {std::pair<std::string, std::string>("TYPE", type),
                                 {"[A, B]", concat("[", a, ", ", b, "]")},
                                 {"[B, C]", concat("[", b, ", ", c, "]")},
                                 {"[C]", concat("[", c, "]")}}) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from)) text.replace(at, from.size(), to);
  }
  return text;
}

class CpuEpilogues : public testing::TestWithParam<std::pair<StoredType, const char*>> {
 protected:
  void SetUp() override {
    if (!onednn_info().there) GTEST_SKIP() << onednn_info().missing;
    if (onednn_implementation(GetParam().first).empty()) GTEST_SKIP() << "oneDNN lacks the type on this processor";
  }
};

TEST_P(CpuEpilogues, AgreeWithTheReference) {
  EXPECT_EQ(try_epilogues(program(GetParam().second, 9, 17, 12), 60),
            (std::set<Activation>{Activation::none, Activation::relu}));
}

TEST_P(CpuEpilogues, OfLargeProductsAgreeWithProbes) {
  EXPECT_EQ(try_epilogues(program(GetParam().second, 320, 320, 330), 4),
            (std::set<Activation>{Activation::none, Activation::relu}));
}

INSTANTIATE_TEST_SUITE_P(Types, CpuEpilogues,
                         testing::Values(std::pair(StoredType::f32, "float32"), std::pair(StoredType::bf16, "bfloat16"),
                                         std::pair(StoredType::f16, "float16")),
                         [](const auto& suite) { return std::string(suite.param.second); });

// Backward needs a GELU's input, so a product applies a GELU only where no gradient is needed.
TEST(CpuEpilogueFunctions, GelusWithoutGradientsAgreeWithTheReference) {
  if (onednn_implementation(StoredType::bf16).empty()) GTEST_SKIP() << "oneDNN has no bfloat16 on this processor";
  const std::set<Activation> tried = try_epilogues(R"(
def f(x: fixed.bfloat16[9, 16], w: fixed.bfloat16[16, 24], b: fixed.bfloat16[24], u: bfloat16[24, 5]):
    y = gelu(np.einsum("ab,bc->ac", x, w) + b)
    z = gelu_tanh(np.einsum("ab,bc->ac", x, w))
    return np.einsum("ac,cd->ad", y, u), np.einsum("ac,cd->ad", z, u)
)",
                                                   60);
  EXPECT_TRUE(tried.contains(Activation::exact_gelu));
  EXPECT_TRUE(tried.contains(Activation::gelu));
}

}  // namespace
}  // namespace millrace
