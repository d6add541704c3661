// Which operands are unfolded into matrices, and how such candidates are written.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/text.h"
#include "candidates/enumerate.h"
#include "fusion/fusion_text.h"

namespace millrace {
namespace {

EnumerateOptions unfolding_options() {
  EnumerateOptions options;
  options.threads = 2;
  options.most = 300;
  options.libraries = {GemmLibrary::openblas, GemmLibrary::onednn};
  return options;
}

// For each partition, the operands that its candidates unfold: "a", "b" or "", and " kernel" if it has a generated one.
std::map<std::string, std::string> unfolded_in(const TrainingGraph& training) {
  Result<Candidates> found = enumerate(training, fuse(training), unfolding_options());
  EXPECT_TRUE(found);
  std::map<std::string, std::string> unfolded;
  for (const PartitionCandidates& entry : found->partitions) {
    if (entry.partition.kind != PartitionKind::contraction) continue;
    std::string& text = unfolded[entry.partition.name];
    bool kernel = false;
    for (const Candidate& candidate : entry.candidates) {
      const auto* const gemm = std::get_if<GemmConfig>(&candidate.config);
      kernel = kernel || gemm == nullptr;
      const char* const operand = gemm == nullptr || gemm->unfolded == kNoIndex ? "" : gemm->unfolded == 0 ? "a" : "b";
      if (text.find(operand) == std::string::npos) text += operand;
      const std::string printed = print_candidate(found->domains, entry.partition, candidate);
      const std::optional<Candidate> parsed = parse_candidate(found->domains, entry.partition, printed);
      EXPECT_TRUE(parsed && parsed->config == candidate.config) << printed;
    }
    if (kernel) text += " kernel";
  }
  return unfolded;
}

std::string convolution(const std::string& call, const std::string& weights, const std::string& image = "B, C, Y, X") {
  return concat("B, C, N, Y, X = 2, 3, 4, 6, 7\n\n\ndef f(x: float32[", image, "], w: float32[", weights,
                "]):\n    y = ", call, "\n    return y\n");
}

TEST(Unfolding, OfConvolutionsAndTheirGradients) {
  using Unfolded = std::map<std::string, std::string>;
  EXPECT_EQ(unfolded_in(training_of(convolution("conv2d(x, w)", "N, C, 3, 2"))),
            (Unfolded{{"y einsum", "a kernel"}, {"y einsum d_w", "b kernel"}, {"y einsum d_x 3", "b kernel"}}));
  EXPECT_EQ(unfolded_in(training_of(convolution("conv1d(x, w, stride=2, padding=1)", "N, C, 3", "B, C, X"))),
            (Unfolded{{"y einsum", "a kernel"}, {"y einsum d_w", "b kernel"}, {"y einsum d_y.1 3", "b kernel"}}));
}

TEST(Unfolding, NotWithoutASecondMatrix) {
  for (const auto& [name, unfolded] : unfolded_in(training_of(convolution("depthwise(x, w)", "C, 3, 2"))))
    EXPECT_TRUE(unfolded.empty() || unfolded == " kernel") << name << ": " << unfolded;
}

// Models without windows have the same candidates as before unfolding was added.
TEST(Unfolding, OnlyOfWindows) {
  std::set<std::string> with_windows;
  for (const std::string& model : all_models()) {
    const TrainingGraph training = training_of_model(model, {"tiny"});
    const Result<Candidates> found = find_partitions(training, fuse(training), unfolding_options());
    ASSERT_TRUE(found);
    for (const PartitionCandidates& entry : found->partitions) {
      if (entry.partition.kind != PartitionKind::contraction) continue;
      for (const size_t operand : {size_t{0}, size_t{1}})
        if (is_window(entry.partition.product, operand)) with_windows.insert(model);
    }
  }
  EXPECT_EQ(with_windows, (std::set<std::string>{"resnet_bottleneck", "vit"}));
}

TEST(Unfolding, IsReadFromTextOnlyIfItFits) {
  const TrainingGraph training = training_of(convolution("conv2d(x, w)", "N, C, 3, 2"));
  Result<Candidates> found = enumerate(training, fuse(training), unfolding_options());
  ASSERT_TRUE(found);
  for (const PartitionCandidates& entry : found->partitions) {
    if (entry.partition.kind != PartitionKind::contraction) continue;
    for (Candidate candidate : entry.candidates) {
      if (!std::holds_alternative<GemmConfig>(candidate.config)) continue;
      EXPECT_TRUE(is_candidate(training.graph, found->domains, entry.partition, candidate));
      std::get<GemmConfig>(candidate.config).unfolded = kNoIndex;
      EXPECT_FALSE(is_candidate(training.graph, found->domains, entry.partition, candidate)) << "windows overlap";
      std::string text = print_candidate(found->domains, entry.partition, candidate);
      EXPECT_FALSE(parse_candidate(found->domains, entry.partition, text + " unfolded c"));
      EXPECT_FALSE(parse_candidate(found->domains, entry.partition, text + " unfolded"));
    }
  }
}

}  // namespace
}  // namespace millrace
