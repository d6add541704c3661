// Generated kernels and lowered products of random candidates against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/long_run.h"
#include "base/sanitized.h"
#include "base/text.h"
#include "codegen/corner_programs.h"
#include "codegen/lower.h"
#include "codegen/trials_of_programs.h"
#include "device/cpu/blas_library.h"
#include "fusion/fusion_text.h"
#include "golden/golden.h"
#include "measure/reference_data.h"
#include "random/generator.h"

namespace millrace {
namespace {

const std::vector<std::string>& dtypes() {
  static const std::vector<std::string> names = {"float32", "float64", "bfloat16", "float16"};
  return names;
}

void draw_in_all_types(TrialsOfPrograms& trials, const std::string& name, const std::string& text,
                       const std::vector<std::string>& sizes, size_t count, TriedOn device = TriedOn::cpu) {
  const TriedProgram first = tried_program(name, text, sizes, dtypes().front(), nullptr, device);
  ASSERT_FALSE(testing::Test::HasFailure());
  for (const std::string& dtype : dtypes())
    trials.draw(tried_program(name, text, sizes, dtype, &first.candidates), drawn_of(count), true);
}

void draw_models_and_random_programs(TrialsOfPrograms& trials) {
  for (const std::string& model : models()) {
    const std::string text = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py"));
    draw_in_all_types(trials, model, text, {"odd"}, 1);
    if (model != "llama_block_without_rope")
      draw_in_all_types(trials, model, text, {"tiny"}, 1);  // six axes: long to enumerate
  }
  for (uint64_t seed = 1001; seed <= 1040; ++seed) {
    const std::string text = random_programs::random_program(seed);
    trials.draw(tried_program(concat("random ", seed), text, {}, dtypes()[seed % dtypes().size()]), 2, true);
  }
}

// One test, so that no kernel is compiled for features that another program has covered. Models and random programs run
// in the long suite. The short suite, and a sanitizer, which does not check kernels, run the programs written for the
// generators.
TEST(CpuKernel, CandidatesAgreeWithTheReference) {
  TrialsOfPrograms trials(1);
  draw_in_all_types(trials, "contractions", kContractions, {}, 6);
  draw_in_all_types(trials, "contractions as kernels", kContractions, {}, 1, TriedOn::cpu_without_libraries);
  draw_in_all_types(trials, "corners", kCorners, {}, 3);
  draw_in_all_types(trials, "predicates", kPredicates, {}, 6);
  draw_in_all_types(trials, "functions", kFunctions, {}, 2);
  draw_in_all_types(trials, "gathers", kGathers, {}, 4);
  draw_in_all_types(trials, "parts", kParts, {}, 4);
  const bool whole = is_long_run() && !kSanitized;
  if (whole) draw_models_and_random_programs(trials);
  ASSERT_FALSE(testing::Test::HasFailure());
  trials.run();
  EXPECT_GT(trials.kernels(), 0U);
  if (!whole) return;
  for (const char* const wanted : {"softmax_dx & rows",
                                   "softmax_dx & rows in lanes",
                                   "softmax recomputed & rows",
                                   "softmax recomputed & rows in lanes",
                                   "causal_mask recomputed & rows",
                                   "layernorm_dw & flat",
                                   "rmsnorm & rows in lanes",
                                   "causal_mask & rows",
                                   "causal_mask_dx & rows in lanes",
                                   "dropout_dx & flat",
                                   "conversion & flat in blocks",
                                   "conversion & flat",
                                   "where & flat",
                                   "extremum_dx & rows in lanes",
                                   "embed_diagonal & flat",
                                   "max & rows",
                                   "min & rows in lanes",
                                   "less & flat",
                                   "gather & flat",
                                   "gather & rows",
                                   "scatter_add & rows",
                                   "scatter_add & rows in lanes",
                                   "silu_dx in float64",
                                   "gelu_dx in float32",
                                   "power_dx in float32",
                                   "contraction in float64",
                                   "flat in blocks & threads",
                                   "rows in lanes & bfloat16",
                                   "rows & float16",
                                   "a mask written as bits & float16",
                                   "a regenerated mask read & bfloat16",
                                   "rows in lanes & a regenerated mask read",
                                   "flat & booleans written as bits",
                                   "flat & booleans read as bits",
                                   "rows & booleans written as bits",
                                   "rows & booleans read as bits",
                                   "less than a vector & booleans written as bits",
                                   "less than a vector & booleans read as bits",
                                   "vectors and a rest & booleans read as bits",
                                   "booleans written as bits & float64",
                                   "booleans read as bits & float16",
                                   "rows & vectors and a rest",
                                   "rows & whole vectors",
                                   "rows in lanes & vectors and a rest"})
    EXPECT_TRUE(trials.features().contains(wanted)) << wanted;
  if (blas_info(GemmLibrary::openblas).there || blas_info(GemmLibrary::blis).there) {
    EXPECT_GT(trials.products(), 500U);
  } else {
    GTEST_SKIP() << "no BLAS library: only kernels were compared";
  }
  RecordProperty("kernels", static_cast<int>(trials.kernels()));
  RecordProperty("products", static_cast<int>(trials.products()));
}

TEST(CpuKernel, ManyRandomProgramsIfRequested) { try_random_programs(dtypes(), TriedOn::cpu); }

// Partitions that differ only in a number take equally long, but need expected values of their own.
TEST(CpuKernel, PartitionsWithDifferentNumbersHaveTheirOwnReferenceData) {
  const TriedProgram program = tried_program("two factors", kTwoFactors, {}, "float32");
  std::map<std::string, std::set<std::string>> names;
  for (const PartitionCandidates& entry : program.candidates.partitions) {
    const Graph& graph = program.training.graph;
    names[print_partition(graph, entry.partition)].insert(
        reference_data_name(graph, draw_rules(graph), entry.partition));
  }
  EXPECT_TRUE(std::any_of(names.begin(), names.end(), [](const auto& entry) { return entry.second.size() == 2; }));
}

// What was measured for one partition is used for all with the same text, also of other programs: a number is not part
// of the text, since it is not part of the kernel either.
TEST(CpuKernel, PartitionsWithEqualTextsHaveEqualKernels) {
  std::map<std::string, std::string> kernels;  // by partition and candidate
  size_t equal = 0;
  for (const char* const results :
       {"x * 2, x - 2", "x * 3, x - 3", "np.maximum(x, 2)", "np.maximum(x, 3)", "np.einsum('iiii->', y)",
        "np.einsum('iijj->', y)", "dropout(x, 0.1), x ** 1.5", "dropout(x, 0.2), x ** 2.5"}) {
    const std::string text =
        concat("A = 5\nB = 6\n\n\ndef f(x: float32[A, B], y: float32[A, A, A, A]):\n    return ", results, "\n");
    const TriedProgram program = tried_program(results, text, {}, "float32");
    for (const PartitionCandidates& entry : program.candidates.partitions) {
      for (const Candidate& candidate : entry.candidates) {
        const std::vector<TensorDomain>& domains = program.candidates.domains;
        const Launch launch = lower(program.training.graph, entry.partition,
                                    layouts_of(domains, entry.partition, candidate), candidate.config);
        const auto [known, fresh] =
            kernels.try_emplace(concat(print_partition(program.training.graph, entry.partition), " | ",
                                       print_candidate(domains, entry.partition, candidate)),
                                launch.kernel);
        equal += fresh ? 0 : 1;
        ASSERT_EQ(known->second, launch.kernel) << results << "\n" << known->first;
      }
    }
  }
  EXPECT_GT(equal, 20U);
}

// The mask of one of two equal partitions says nothing about that of the other.
TEST(CpuKernel, EqualPartitionsWithDifferentSubsequencesAgreeWithTheReference) {
  TrialsOfPrograms trials(1);
  trials.draw(tried_program("two dropouts", kTwoDropouts, {}, "float32"), 2, false);
  trials.run();
}

}  // namespace
}  // namespace millrace
