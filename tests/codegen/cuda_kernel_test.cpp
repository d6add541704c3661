// Generated CUDA kernels of random candidates against the reference, emulated on a CPU: no GPU is needed.
#include <gtest/gtest.h>

#include "base/long_run.h"
#include "base/text.h"
#include "codegen/corner_programs.h"
#include "codegen/trials_of_programs.h"
#include "fusion/fusion_text.h"
#include "golden/golden.h"
#include "random/generator.h"

namespace millrace {
namespace {

const std::vector<std::string>& gpu_dtypes() {
  static const std::vector<std::string> names = {"float16", "float32", "bfloat16", "float64"};
  return names;
}

// Unlike a CPU's, the configs of a GPU depend on the type: on how many elements fit into 16 bytes. Both half types have
// the same.
void draw_on_gpu_in_all_types(TrialsOfPrograms& trials, const std::string& name, const std::string& text,
                              const std::vector<std::string>& sizes, size_t count) {
  TriedProgram halves = tried_program(name, text, sizes, "float16", nullptr, TriedOn::gpu);
  trials.draw(tried_program(name, text, sizes, "bfloat16", &halves.candidates, TriedOn::gpu), drawn_of(count), true);
  trials.draw(std::move(halves), drawn_of(count), true);
  for (const char* const dtype : {"float32", "float64"})
    trials.draw(tried_program(name, text, sizes, dtype, nullptr, TriedOn::gpu), drawn_of(count), true);
}

void draw_models_and_random_programs_on_gpu(TrialsOfPrograms& trials) {
  for (const std::string& model : models()) {
    const std::string text = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py"));
    if (model == "llama_block_without_rope") continue;  // six axes: long to enumerate
    draw_on_gpu_in_all_types(trials, model, text, {"odd"}, 1);
    trials.draw(tried_program(model, text, {"tiny"}, "float16", nullptr, TriedOn::gpu), 3, true);
  }
  for (uint64_t seed = 1001; seed <= 1020; ++seed) {
    const std::string text = random_programs::random_program(seed);
    trials.draw(tried_program(concat("random ", seed), text, {}, gpu_dtypes()[seed % gpu_dtypes().size()], nullptr,
                              TriedOn::gpu),
                2, true);
  }
}

TEST(CudaKernel, CandidatesAgreeWithTheReference) {
  TrialsOfPrograms trials(1, TriedOn::gpu);
  draw_on_gpu_in_all_types(trials, "contractions as kernels", kContractions, {}, 1);
  draw_on_gpu_in_all_types(trials, "corners", kCorners, {}, 3);
  draw_on_gpu_in_all_types(trials, "predicates", kPredicates, {}, 6);
  draw_on_gpu_in_all_types(trials, "functions", kFunctions, {}, 2);
  draw_on_gpu_in_all_types(trials, "gathers", kGathers, {}, 4);
  draw_on_gpu_in_all_types(trials, "parts", kParts, {}, 8);
  trials.draw(tried_program("predicates", kPredicates, {}, "float16", nullptr, TriedOn::gpu), drawn_of(12), true);
  if (is_long_run()) draw_models_and_random_programs_on_gpu(trials);
  ASSERT_FALSE(testing::Test::HasFailure());
  trials.run();
  EXPECT_GT(trials.kernels(), 0U);
  if (!is_long_run()) return;
  for (const char* const wanted : {"softmax_dx & rows",
                                   "softmax_dx & rows in lanes",
                                   "softmax recomputed & rows",
                                   "softmax recomputed & rows in lanes",
                                   "causal_mask recomputed & rows",
                                   "layernorm_dw & flat",
                                   "layernorm_dw & rows",
                                   "causal_mask & rows",
                                   "causal_mask_dx & rows in lanes",
                                   "dropout_dx & flat",
                                   "conversion & flat",
                                   "conversion & flat in tiles",
                                   "where & flat",
                                   "extremum_dx & rows in lanes",
                                   "embed_diagonal & flat",
                                   "max & rows",
                                   "rows & rows of several warps",
                                   "rows & rows in a warp",
                                   "rows in lanes & rows in a warp",
                                   "rows & across rows",
                                   "rows & across rows, the next one ahead",
                                   "flat & across rows",
                                   "width 8 & float16",
                                   "rows & width 8",
                                   "rows in lanes & width 8",
                                   "no width & float16",
                                   "a mask written as bits & float16",
                                   "a regenerated mask read & bfloat16",
                                   "rows in lanes & a regenerated mask read",
                                   "flat & booleans written as bits",
                                   "rows & booleans written as bits",
                                   "rows in lanes & booleans written as bits",
                                   "width 8 & booleans written as bits",
                                   "flat & booleans read as bits",
                                   "rows & booleans read as bits",
                                   "rows in lanes & booleans read as bits",
                                   "no width & booleans read as bits",
                                   "booleans read as bits & bfloat16",
                                   "booleans read as bits & float32"})
    EXPECT_TRUE(trials.features().contains(wanted)) << wanted;
  RecordProperty("kernels", static_cast<int>(trials.kernels()));
}

TEST(CudaKernel, ManyRandomProgramsIfRequested) { try_random_programs(gpu_dtypes(), TriedOn::gpu); }

}  // namespace
}  // namespace millrace
