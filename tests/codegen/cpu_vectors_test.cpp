// The compiler vectorizes the most expensive kernels, without calls in their loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/process.h"
#include "base/text.h"
#include "codegen/lower.h"
#include "codegen/trials_of_programs.h"
#include "golden/golden.h"

namespace millrace {
namespace {

// The fewest vector instructions of a kernel on vectors of 16 floats, which are one register with AVX-512 and four on
// aarch64.
constexpr size_t kEnough = 50;

// The instructions of a kernel, as objdump prints them; its helpers among them, as all are in one object. Empty where
// there is no objdump.
std::string instructions_of(const std::string& kernel) {
  const std::optional<std::string> objdump = find_program("objdump");
  if (!objdump) return "";
  const Result<KernelCache> cache = kernel_cache_of_tests(1);
  if (!cache) ADD_FAILURE() << to_string(cache.error());
  if (!cache) return "";
  const auto compiled = cache->get({{kernel}}, 1);
  EXPECT_TRUE(compiled[0]) << to_string(compiled[0].error());
  if (!compiled[0]) return "";
  const Result<Finished> ran = run_process({*objdump, "-d", "--no-show-raw-insn", compiled[0]->path}, {});
  EXPECT_TRUE(ran);
  return ran ? ran->output : "";
}

size_t occurrences(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

// Registers of four floats that arithmetic names: on aarch64 v0.4s, on x86-64 those of packed single precision, where
// one register holds as many as four of them.
size_t vectors_in(const std::string& text) {
  constexpr std::array kArithmetic = {"addps", "subps",  "mulps", "divps", "maxps",
                                      "minps", "sqrtps", "fmadd", "fnmadd"};
  size_t count = occurrences(text, ".4s");
  for (const std::string& line : split(text, '\n')) {
    const bool packed = line.find("ps ") != std::string::npos;
    if (!packed || std::none_of(kArithmetic.begin(), kArithmetic.end(),
                                [&](const char* name) { return line.find(name) != std::string::npos; }))
      continue;
    count += occurrences(line, "%xmm") + 2 * occurrences(line, "%ymm") + 4 * occurrences(line, "%zmm");
  }
  return count;
}

size_t calls_in(const std::string& text) {
  size_t count = 0;
  for (const char* const name : {"<expf", "<tanhf", "<erff", "<exp@", "<logf", "<powf"})
    count += occurrences(text, name);
  return count;
}

TEST(CpuVectors, HotKernelsAreVectorsThroughout) {
  const TriedProgram program =
      tried_program("bert_encoder", text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/bert_encoder.py")),
                    {"tiny", "J=64", "P=16", "W=16"}, "float32");
  const Graph& graph = program.training.graph;
  for (const OperatorKind kind : {OperatorKind::softmax, OperatorKind::relu, OperatorKind::layernorm}) {
    const auto has = [&](const PartitionCandidates& entry) {
      return entry.partition.members.size() > 1 &&
             std::any_of(entry.partition.members.begin(), entry.partition.members.end(),
                         [&](OperatorId op) { return graph.operators[op.at()].kind == kind; });
    };
    const auto entry = std::find_if(program.candidates.partitions.begin(), program.candidates.partitions.end(), has);
    ASSERT_NE(entry, program.candidates.partitions.end());
    const Candidate& best = entry->candidates.front();
    const std::vector<Layout> layouts = layouts_of(program.candidates.domains, entry->partition, best);
    const std::string text = instructions_of(lower(graph, entry->partition, layouts, best.config).kernel);
    if (text.empty()) GTEST_SKIP() << "no objdump";
    EXPECT_GT(vectors_in(text), kEnough) << entry->partition.name << "\n" << text;
    EXPECT_EQ(calls_in(text), 0U) << entry->partition.name;
  }
}

TEST(CpuVectors, ALoopOfCallsHasNone) {
  const std::string text = instructions_of(R"(
extern "C" __attribute__((visibility("default"))) void MILLRACE_KERNEL(const mr::Arguments* args) {
  float x = float(args->values[0]);
  for (long k = 0; k < 1000; ++k) x = __builtin_expf(0.5f * x + 1);
  *static_cast<float*>(args->tensors[0]) = x;
}
)");
  if (text.empty()) GTEST_SKIP() << "no objdump";
  EXPECT_LE(vectors_in(text), kEnough / 5);
  EXPECT_GT(calls_in(text), 0U);
}

}  // namespace
}  // namespace millrace
