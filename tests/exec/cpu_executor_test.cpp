// Runs plans of whole training steps and compares them with the reference.
#include "exec/cpu_executor.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/sanitized.h"
#include "base/text.h"
#include "candidates/adding_program.h"
#include "candidates/packed_program.h"
#include "candidates/stacked_program.h"
#include "codegen/corner_programs.h"
#include "device/cpu/blas_library.h"
#include "device/cpu/denormals.h"
#include "exec/run_plan.h"
#include "exec/signs_program.h"
#include "fusion/fusion_text.h"
#include "golden/golden.h"
#include "measure/tensor_memory.h"
#include "plan/small_plan.h"
#include "random/generator.h"

namespace millrace {
namespace {

std::string model_text(const std::string& model) {
  return text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", model, ".py"));
}

void expect_agreement(const MadePlan& made, uint64_t seed, const std::string& what) {
  Result<CpuExecutor> executor = executor_of(made);
  ASSERT_TRUE(executor) << what << to_string(executor.error());
  const Values<double> given = drawn_values(made.training, seed);
  const RandomState random{seed, 3};
  EXPECT_EQ(difference_from_reference(made, given, random, run_plan(made, *executor, given, random)), "") << what;
  EXPECT_LE(made.plan.arena_bytes - made.plan.scratch_bytes,
            made.plan.sum_bytes + kArenaAlignment * static_cast<int64_t>(made.plan.buffers.size()));
}

void expect_all_to_agree(const std::vector<MadePlan>& plans) {
  ASSERT_FALSE(testing::Test::HasFailure());
  std::vector<const MadePlan*> all;
  for (const MadePlan& made : plans) all.push_back(&made);
  compile_kernels(all);
  ASSERT_FALSE(testing::Test::HasFailure());
  for (size_t k = 0; k < plans.size(); ++k)
    expect_agreement(plans[k], k + 1, concat("plan ", k, " of\n", plans[k].plan.program.text));
}

void expect_all_to_agree(const std::vector<std::pair<std::string, PlanChoice>>& cases) {
  std::vector<MadePlan> plans;
  plans.reserve(cases.size());
  for (const auto& [text, choice] : cases) plans.push_back(make_plan(text, choice));
  expect_all_to_agree(plans);
}

TEST(CpuExecutor, ModelsAgreeWithTheReference) {
  std::vector<std::pair<std::string, PlanChoice>> cases;
  std::set<std::string> there;
  uint64_t number = 0;
  const auto add = [&](const std::string& model, const char* size, const char* dtype, bool by_chance) {
    PlanChoice choice;
    choice.sizes = {size};
    choice.dtype = dtype;
    if (by_chance) choice.seed = number;
    ++number;
    if (there.insert(model).second || !kSanitized) cases.emplace_back(model_text(model), choice);
  };
  for (const std::string& model : all_models()) {
    add(model, "odd", "float64", true);
    add(model, "odd", "float32", false);
  }
  add("bert_encoder", "tiny", "float64", false);
  add("gpt2_block_unpacked", "tiny", "float32", true);
  add("mha", "tiny", "float64", true);
  expect_all_to_agree(cases);
}

// Kernels take long to compile. MILLRACE_RANDOM_PLANS=300 in the environment runs as many plans, of programs of any
// size.
TEST(CpuExecutor, RandomPlansOfRandomProgramsAgreeWithTheReference) {
  constexpr size_t kOperators = 10;  // of a small program
  const char* const more = std::getenv("MILLRACE_RANDOM_PLANS");
  const size_t count = more == nullptr ? tried_of(30) : std::stoull(more);
  std::vector<MadePlan> plans;
  for (uint64_t seed = 0; plans.size() < count; ++seed) {
    const std::string text = random_programs::random_program(seed);
    if (more == nullptr && training_of(text).graph.operators.size() > kOperators) continue;
    PlanChoice choice;
    choice.seed = seed;
    choice.dtype = "float64";
    choice.most = 50;
    plans.push_back(make_plan(text, choice));
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  expect_all_to_agree(plans);
}

TEST(CpuExecutor, DenormalsAreFlushedUnlessKeptAndTheCallersThreadsKeepThem) {
  MadePlan made = make_plan("N = 100\ndef f(x: float32[N]):\n    return x * x\n", {});
  ASSERT_FALSE(testing::Test::HasFailure());
  for (PlanLaunch& launch : made.plan.launches) launch.predicted_seconds = 1;  // long enough to be worthwhile
  compile_kernels({&made});
  Result<CpuExecutor> executor = executor_of(made);
  ASSERT_TRUE(executor) << to_string(executor.error());
  const Graph& graph = made.training.graph;
  Values<double> given = drawn_values(made.training, 1);
  given[graph.arguments[0].at()].assign(100, 0x1p-70);
  const size_t result = graph.results[0].tensor.at();
  EXPECT_EQ(run_plan(made, *executor, given, {1, 1})[result], std::vector<double>(100, 0));
  EXPECT_EQ(denormals_of_threads(2), std::vector<Denormals>(2, Denormals::keep));
  executor->set_denormals(Denormals::keep);
  EXPECT_EQ(run_plan(made, *executor, given, {1, 1})[result], std::vector<double>(100, 0x1p-140));
}

TEST(CpuExecutor, LayoutsOfTheCallersChoiceAgreeWithTheReference) {
  std::vector<MadePlan> plans;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    choice.layouts = {{"x", "IB"}, {"w", "any"}, {"d_w", "any"}, {"z", seed % 2 == 0 ? "any" : "OB"}};
    plans.push_back(make_plan(kSmallProgram, choice));
  }
  expect_all_to_agree(plans);
}

TEST(CpuExecutor, ChainedConversionsAgreeWithTheReference) {
  std::vector<MadePlan> plans;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    choice.conversions = MadeConversions::chained;
    plans.push_back(make_plan(kThreeAxesProgram, choice));
  }
  expect_all_to_agree(plans);
}

// Plans that need the caller's tensors contiguous.
std::vector<MadePlan> stacked_plans(uint64_t seeds) {
  std::vector<MadePlan> plans;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    choice.layouts = stacked_projections();
    plans.push_back(make_plan(kProjections, choice));
  }
  return plans;
}

TEST(CpuExecutor, StackedTensorsOfTheCallerAgreeWithTheReference) {
  if (!blas_info(GemmLibrary::openblas).there && !blas_info(GemmLibrary::blis).there)
    GTEST_SKIP() << "no library here: nothing is stacked";
  const std::vector<MadePlan> plans = stacked_plans(3);
  expect_all_to_agree(plans);
}

TEST(CpuExecutor, ProductsOfJoinedTensorsAgreeWithTheReference) {
  if (!blas_info(GemmLibrary::openblas).there && !blas_info(GemmLibrary::blis).there)
    GTEST_SKIP() << "no library here: nothing is stacked";
  std::vector<MadePlan> plans;
  for (uint64_t seed = 0; plans.size() < 4 && seed < 60; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    MadePlan made = make_plan(kPacked, choice);
    const auto is_stacked = [](const PlanLaunch& launch) {
      return launch.partition.find("of stacked tensors") != std::string::npos;
    };
    if (std::any_of(made.plan.launches.begin(), made.plan.launches.end(), is_stacked)) plans.push_back(std::move(made));
  }
  EXPECT_EQ(plans.size(), 4U);
  expect_all_to_agree(plans);
}

TEST(CpuExecutor, ProductsThatAddAgreeWithTheReference) {
  if (!blas_info(GemmLibrary::openblas).there && !blas_info(GemmLibrary::blis).there)
    GTEST_SKIP() << "no library here: nothing is added";
  std::set<std::tuple<std::string, Pass, bool>> seen;  // the type, the pass, stacked or not
  std::vector<MadePlan> plans;
  for (const char* const dtype : {"float32", "float64"}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      PlanChoice choice;
      choice.seed = seed;
      choice.dtype = dtype;
      choice.layouts = free_weights();
      MadePlan made = make_plan(kSums, choice);
      const size_t before = seen.size();
      for (const PlanLaunch& launch : made.plan.launches) {
        if (launch.partition.find(" with ") != std::string::npos)
          seen.emplace(dtype, launch.pass, launch.partition.find(" + ") != std::string::npos);
      }
      if (seen.size() > before) plans.push_back(std::move(made));
    }
  }
  EXPECT_EQ(seen.size(), 8U);
  expect_all_to_agree(plans);
}

TEST(CpuExecutor, TensorsThatAreNotContiguousAreRefused) {
  if (!blas_info(GemmLibrary::openblas).there && !blas_info(GemmLibrary::blis).there)
    GTEST_SKIP() << "no library here: nothing is stacked";
  size_t refused = 0;
  for (const MadePlan& made : stacked_plans(12)) {
    // A forward launch of all three.
    const bool uses = std::any_of(made.plan.launches.begin(), made.plan.launches.end(), [](const PlanLaunch& launch) {
      return launch.pass == Pass::forward && std::count(launch.partition.begin(), launch.partition.end(), '+') == 2;
    });
    if (!uses) continue;
    ++refused;
    Result<CpuExecutor> executor = executor_of(made);
    ASSERT_TRUE(executor) << to_string(executor.error());
    std::vector<Memory> memory;
    for (int k = 0; k < 8; ++k) memory.emplace_back(4096);
    std::vector<const void*> arguments;
    for (size_t k = 0; k < 7; ++k) arguments.push_back(memory[k].data());
    std::vector<void*> results = {memory[7].data()};
    const Result<Done> bound = executor->bind({arguments.data(), results.data(), nullptr, nullptr}, 1, 1);
    ASSERT_FALSE(bound);
    EXPECT_EQ(bound.error().kind, ErrorKind::bad_input);
    const std::string text = to_string(bound.error());
    EXPECT_NE(text.find("'wk' does not directly follow 'wq'"), std::string::npos) << text;
    EXPECT_NE(text.find("pass slices of one array, in this order"), std::string::npos) << text;
    // Tensors in the wrong order, or with a gap, are refused as well.
    const int64_t bytes = 4 * 8 * static_cast<int64_t>(sizeof(float));
    const auto put = [&](int64_t q, int64_t k, int64_t v) {
      for (const auto& [position, offset] : {std::pair(1, q), {2, k}, {3, v}})
        arguments[static_cast<size_t>(position)] = memory[1].data() + offset;
      return executor->bind({arguments.data(), results.data(), nullptr, nullptr}, 1, 1);
    };
    EXPECT_FALSE(put(bytes, 0, 2 * bytes));
    EXPECT_FALSE(put(0, bytes, 2 * bytes + 16));
    EXPECT_TRUE(put(0, bytes, 2 * bytes));
  }
  EXPECT_GT(refused, 0U);
}

TEST(CpuExecutor, FixedArgumentsAgreeWithTheReference) {
  constexpr const char* kMasked = R"(
B = 7
I = 13

def masked(x: float32[B, I], mask: fixed.float32[I]):
    return softmax(x + mask)
)";
  expect_all_to_agree(std::vector<std::pair<std::string, PlanChoice>>{{kMasked, {}}});
}

TEST(CpuExecutor, GathersAgreeWithTheReference) {
  std::vector<MadePlan> plans;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    choice.dtype = seed % 2 == 0 ? "float32" : "float64";
    plans.push_back(make_plan(kGathers, choice));
  }
  expect_all_to_agree(plans);
}

// Each sum has the plan's order, whatever threads run it.
TEST(CpuExecutor, GradientsOfATableAreBitwiseReproducible) {
  constexpr const char* kEmbedding = R"(
V = 11
E = 24
B = 5
T = 17

def embedding(table: float32[V, E], scale: float32[T, E], ids: int32[B, T]):
    return table[ids] * scale
)";
  for (uint64_t seed = 0; seed < 4; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    const MadePlan made = make_plan(kEmbedding, choice);
    compile_kernels({&made});
    Result<CpuExecutor> executor = executor_of(made);
    ASSERT_TRUE(executor) << to_string(executor.error());
    const Values<double> given = drawn_values(made.training, seed);
    const Values<double> first = run_plan(made, *executor, given, {});
    EXPECT_EQ(run_plan(made, *executor, given, {}), first);
    const int levels = omp_get_max_active_levels();
    omp_set_max_active_levels(0);  // one thread runs every share
    EXPECT_EQ(run_plan(made, *executor, given, {}), first);
    omp_set_max_active_levels(levels);
    const TensorId gradient = made.training.argument_gradients[0];
    EXPECT_FALSE(first[gradient.at()].empty());
    EXPECT_EQ(difference_from_reference(made, given, {}, first), "");
  }
}

TEST(CpuExecutor, DropoutMasksAreTheReferences) {
  constexpr const char* kDropout = R"(
B = 7
I = 13

def masked(x: float32[B, I]):
    return dropout(x, 0.1)
)";
  std::vector<MadePlan> plans;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    PlanChoice choice;
    choice.seed = seed;
    plans.push_back(make_plan(kDropout, choice));
  }
  expect_all_to_agree(plans);
}

TEST(CpuExecutor, SavedSignsOfZerosInfinitiesAndNaNs) {
  for (const char* const dtype : {"float32", "float16"}) {
    PlanChoice choice;
    choice.dtype = dtype;
    const MadePlan made = make_plan(kSigns, choice);
    compile_kernels({&made});
    Result<CpuExecutor> executor = executor_of(made);
    ASSERT_TRUE(executor) << to_string(executor.error());
    const Values<double> given = values_with_hard_signs(made);
    expect_gradient_of_signs(made, given, {5, 3}, run_plan(made, *executor, given, {5, 3}));
  }
}

TEST(CpuExecutor, ScratchThatIsTooSmallIsRefused) {
  PlanChoice choice;
  choice.dtype = "float32";
  MadePlan made = make_plan(kSmallProgram, choice);
  if (made.plan.scratch_bytes == 0) GTEST_SKIP() << "no launch needs scratch";
  made.plan.scratch_bytes = 0;
  EXPECT_FALSE(executor_of(made));
}

TEST(CpuExecutor, AnArenaThatDoesNotFitIsRefused) {
  MadePlan made = make_plan(kSmallProgram, {});
  made.plan.arena_bytes = int64_t{1} << 60;
  const Result<CpuExecutor> executor = executor_of(made);
  ASSERT_FALSE(executor);
  EXPECT_NE(to_string(executor.error()).find("arena"), std::string::npos);
}

}  // namespace
}  // namespace millrace
