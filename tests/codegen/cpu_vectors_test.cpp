// The compiler vectorizes the most expensive kernels, without calls in their loops.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/process.h"
#include "base/text.h"
#include "codegen/lower.h"
#include "codegen/trials_of_programs.h"
#include "golden/golden.h"

namespace millrace {
namespace {

// The instructions of a kernel and its helper functions, from objdump.
std::string disassembly(const std::string& path) {
  const std::optional<std::string> objdump = find_program("objdump");
  if (!objdump) return "";
  const Result<Finished> ran = run_process({*objdump, "-d", "--no-show-raw-insn", path}, {});
  EXPECT_TRUE(ran);
  return ran ? ran->output : "";
}

size_t count_of(const std::string& text, const std::vector<std::string>& words) {
  size_t count = 0;
  for (const std::string& word : words) {
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  }
  return count;
}

TEST(CpuVectors, HotKernelsAreVectorized) {
  const TriedProgram program =
      tried_program("bert_encoder", text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/bert_encoder.py")),
                    {"tiny", "J=64", "P=16", "W=16"}, "float32");
  const Graph& graph = program.training.graph;
  size_t looked_at = 0;
  for (const OperatorKind kind : {OperatorKind::softmax, OperatorKind::relu, OperatorKind::layernorm}) {
    const auto has = [&](const PartitionCandidates& entry) {
      return entry.partition.members.size() > 1 &&
             std::any_of(entry.partition.members.begin(), entry.partition.members.end(),
                         [&](OperatorId op) { return graph.operators[op.at()].kind == kind; });
    };
    const auto found = std::find_if(program.candidates.partitions.begin(), program.candidates.partitions.end(), has);
    ASSERT_NE(found, program.candidates.partitions.end());
    const Candidate& best = found->candidates.front();
    const Launch launch =
        lower(graph, found->partition, layouts_of(program.candidates.domains, found->partition, best), best.config);
    const Result<KernelCache> cache = kernel_cache_of_tests(1);
    ASSERT_TRUE(cache);
    const auto compiled = cache->get({{launch.kernel}}, 1);
    ASSERT_TRUE(compiled[0]) << to_string(compiled[0].error());
    const std::string text = disassembly(compiled[0]->path);
    if (text.empty()) GTEST_SKIP() << "no objdump";
    // aarch64: fmla v0.4s; x86-64: packed single precision.
    const size_t vectors = count_of(text, {".4s", "addps", "mulps", "maxps", "ps "});
    // A vector is one register with AVX-512, and four on aarch64.
    EXPECT_GT(vectors, 50U) << found->partition.name << "\n" << launch.kernel;
    EXPECT_EQ(count_of(text, {"<expf", "<tanhf", "<erff", "<exp@", "<logf", "<powf"}), 0U) << found->partition.name;
    ++looked_at;
  }
  EXPECT_EQ(looked_at, 3U);
}

}  // namespace
}  // namespace millrace
