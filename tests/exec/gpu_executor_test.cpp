// Runs plans of whole training steps on an emulated GPU and compares them with the reference; records and replays them.
#include "exec/gpu_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "candidates/adding_program.h"
#include "candidates/gelu_program.h"
#include "candidates/stacked_program.h"
#include "device/emulated/emulated_gpu.h"
#include "exec/gpu_plan_test_case.h"
#include "exec/signs_program.h"
#include "golden/golden.h"
#include "ir/attention_program.h"
#include "plan/launched_partition.h"

namespace millrace {
namespace {

constexpr const char* kProgram = R"(
B = 3
I = 8
O = 5

def layer(x: float32[B, I], w: float32[I, O], scale: float32):
    y = einsum("bi,io->bo", x, w)
    return dropout(softmax(y * scale), 0.5)
)";

class EmulatedExecutor : public GpuPlanTest {
 protected:
  EmulatedExecutor() {
    gpu_ = emulated::make_gpu();
    compiler_ = emulated::make_compiler();
  }

  // Plans with fused attention are closer to the exact values than the program itself, whose scores are rounded.
  void expect_no_worse_than_rounded(const MadePlan& made, const std::string& what) {
    ASSERT_FALSE(HasFailure());
    const Values<double> given = drawn_values(made.training, 5);
    const Values<double> found = made_by_a_step(made, given);
    const Graph& graph = made.training.graph;
    Values<double> exact = given;
    Values<double> rounded = given;
    expect_done(interpret(graph, exact, {5, 3}));
    expect_done(interpret_rounded(graph, rounded, {5, 3}));
    std::vector<TensorId> outputs = made.training.argument_gradients;
    outputs.push_back(graph.results[0].tensor);
    for (const TensorId output : outputs) {
      const size_t k = output.at();
      double difference = 0;
      double allowed = 0;
      for (size_t e = 0; e < exact[k].size(); ++e) {
        const double unfused = rounded[k][e] - exact[k][e];
        const double storage = storage_error(graph.tensors[k].dtype, exact[k][e]);
        difference += (found[k][e] - exact[k][e]) * (found[k][e] - exact[k][e]);
        allowed += unfused * unfused + storage * storage;
      }
      EXPECT_LE(difference, 4 * allowed) << graph.tensors[k].name << " " << what;
      EXPECT_GT(difference, 0) << graph.tensors[k].name;
    }
  }
};

TEST_F(EmulatedExecutor, RandomPlansAgreeWithTheReference) {
  const std::string mha = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/mha.py"));
  for (const auto& [text, size, dtype, seed] : {std::tuple(kProgram, "", "float32", 1),
                                                {kProgram, "", "float64", 2},
                                                {kProgram, "", "float32", 3},
                                                {mha.c_str(), "odd", "float32", 4}}) {
    PlanChoice choice;
    choice.seed = static_cast<uint64_t>(seed);
    choice.dtype = dtype;
    if (*size != '\0') choice.sizes = {size};
    expect_one_step(text, choice);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_F(EmulatedExecutor, SavedSignsOfZerosInfinitiesAndNaNs) {
  PlanChoice choice;
  choice.dtype = "float16";
  const MadePlan made = plan_of(kSigns, choice);
  ASSERT_FALSE(HasFailure());
  const Values<double> given = values_with_hard_signs(made);
  expect_gradient_of_signs(made, given, {5, 3}, made_by_a_step(made, given));
}

// Plans with one product for all three projections and their biases, or for the gradients of both.
TEST_F(EmulatedExecutor, StackedTensorsOfTheCallerAgreeWithTheReference) {
  std::set<Pass> seen;
  PlanChoice choice;
  choice.layouts = stacked_projections();
  choice.gpu = gpu_.get();
  for (uint64_t seed = 0; seed < 100 && seen.size() < 2; ++seed) {
    choice.seed = seed;
    const MadePlan sketch = make_plan(kProjections, choice);
    const size_t before = seen.size();
    for (const PlanLaunch& launch : sketch.plan.launches) {
      const bool of_three = std::count(launch.partition.begin(), launch.partition.end(), '+') == 2;
      if (of_three && launch.partition.find(" with ") != std::string::npos) seen.insert(launch.pass);
    }
    if (seen.size() == before) continue;
    expect_one_step(kProjections, choice);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(seen.size(), 2U);
}

// Plans whose products add to a sum, separate and stacked, forward and backward.
TEST_F(EmulatedExecutor, ProductsThatAddAgreeWithTheReference) {
  std::set<std::pair<Pass, bool>> seen;
  PlanChoice choice;
  choice.layouts = free_weights();
  choice.gpu = gpu_.get();
  for (uint64_t seed = 0; seed < 200 && seen.size() < 4; ++seed) {
    choice.seed = seed;
    const MadePlan sketch = make_plan(kSums, choice);
    const size_t before = seen.size();
    for (const PlanLaunch& launch : sketch.plan.launches) {
      if (launch.partition.find(" with ") != std::string::npos)
        seen.emplace(launch.pass, launch.partition.find(" + ") != std::string::npos);
    }
    if (seen.size() == before) continue;
    expect_one_step(kSums, choice);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(seen.size(), 4U);
}

// Only plans with fused attention compute the row statistics.
TEST_F(EmulatedExecutor, FusedAttentionsAgreeWithTheReference) {
  AttentionProgram program;
  std::string text = program.text();
  for (const auto& [from, to] : {std::pair("J = 5", "J = 16"), std::pair("K = 7", "K = 24"),
                                 std::pair("P = 4", "P = 16"), std::pair("W = 6", "W = 16")})
    text.replace(text.find(from), std::string(from).size(), to);
  std::set<bool> seen;
  PlanChoice choice;
  choice.gpu = gpu_.get();
  for (uint64_t seed = 0; seed < 100 && seen.size() < 2; ++seed) {
    choice.seed = seed;
    const MadePlan sketch = make_plan(text, choice);
    const std::vector<PlanLaunch>& launches = sketch.plan.launches;
    const bool fused = std::any_of(launches.begin(), launches.end(), [](const PlanLaunch& launch) {
      return launch.partition.starts_with("attention (");
    });
    if (!seen.insert(fused).second) continue;
    expect_no_worse_than_rounded(plan_of(text, choice), fused ? "fused" : "");
  }
  EXPECT_EQ(seen.size(), 2U);
}

// Our kernels or cuDNN's compute each pass, in any combination, since what forward saves means the same in both.
TEST_F(EmulatedExecutor, AttentionsByCudnnAgreeWithTheReference) {
  AttentionProgram program;
  program.weights = "softmax(causal_mask(s))";
  program.q = "bhgjp";
  program.scores = "bhgjk";
  program.o = "bhgjw";
  std::string text = program.text();
  for (const auto& [from, to] : {std::pair("J = 5", "J = 16"), std::pair("K = 7", "K = 24"),
                                 std::pair("P = 4", "P = 16"), std::pair("W = 6", "W = 16")})
    text.replace(text.find(from), std::string(from).size(), to);
  constexpr const char* kOurs = "stages 2";
  constexpr const char* kCudnns = "; cudnn";
  for (const auto& passes : {std::pair(kCudnns, kCudnns), std::pair(kCudnns, kOurs), std::pair(kOurs, kCudnns)}) {
    PlanChoice choice;
    choice.gpu = gpu_.get();
    choice.candidates = {{"attention (", passes.first}, {"attention_dx (", passes.second}};
    const auto is_fused = [&] {
      const std::vector<PlanLaunch> launches = make_plan(text, choice).plan.launches;
      return std::any_of(launches.begin(), launches.end(), [&](const PlanLaunch& launch) {
        return launch.partition.starts_with("attention (") && launch.candidate.ends_with(passes.first);
      });
    };
    for (choice.seed = 0; !is_fused() && *choice.seed < 50; ++*choice.seed) {
    }
    ASSERT_LT(*choice.seed, 50U);
    expect_no_worse_than_rounded(plan_of(text, choice), concat(passes.first, passes.second));
  }
}

// Plans whose products apply a GELU and also write its argument, which products of backward read.
TEST_F(EmulatedExecutor, ProductsWithGelusAgreeWithTheReference) {
  std::set<std::string> seen;
  PlanChoice choice;
  choice.gpu = gpu_.get();
  for (uint64_t seed = 0; seed < 200 && seen.size() < 4; ++seed) {
    choice.seed = seed;
    const MadePlan sketch = make_plan(kGelus, choice);
    const size_t before = seen.size();
    for (const PlanLaunch& launch : sketch.plan.launches) {
      const Result<LaunchedPartition> each = launched_partition(sketch.training.graph, sketch.candidates, launch);
      ASSERT_TRUE(each) << to_string(each.error());
      if (each->partition.product.auxiliary.valid()) seen.insert(launch.partition);
    }
    if (seen.size() == before) continue;
    expect_one_step(kGelus, choice);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST_F(EmulatedExecutor, EveryStepDrawsItsOwnMasksAlsoWhenItIsReplayed) {
  const MadePlan made = plan_of(kProgram, {});
  GpuExecutor executor = executor_of(made);
  const Values<double> given = drawn_values(made.training, 5);
  OnDevice tensors(*gpu_, made, given);
  expect_done(executor.bind(tensors.pointers(), 9, 100));
  for (uint32_t step = 100; step < 105; ++step) {  // launched, recorded, replayed
    expect_done(executor.step());
    expect_step(made, given, {9, step}, tensors);
  }
  // The same seed and step again: the same masks.
  expect_done(executor.bind(tensors.pointers(), 9, 101));
  expect_done(executor.step());
  expect_step(made, given, {9, 101}, tensors);
  // Binding what the device already holds changes nothing; binding another seed does.
  expect_done(executor.bind(tensors.pointers(), 9, 102));
  expect_done(executor.step());
  expect_step(made, given, {9, 102}, tensors);
  expect_done(executor.bind(tensors.pointers(), 10, 103));
  expect_done(executor.step());
  expect_step(made, given, {10, 103}, tensors);
}

TEST_F(EmulatedExecutor, ForwardThenBackwardIsAStep) {
  const MadePlan made = plan_of(kProgram, {});
  GpuExecutor executor = executor_of(made);
  const Values<double> given = drawn_values(made.training, 6);
  OnDevice tensors(*gpu_, made, given);
  for (const uint32_t step : {7U, 7U, 8U, 8U, 9U}) {
    expect_done(executor.bind(tensors.forward_only(), 1, step));
    expect_done(executor.forward());
    expect_done(executor.bind(tensors.pointers(), 1, step));
    expect_done(executor.backward());
    expect_step(made, given, {1, step}, tensors);
  }
  // Separate passes do not change the step number.
  for (int turn = 0; turn < 3; ++turn) {
    expect_done(executor.forward());
    expect_done(executor.backward());
    expect_step(made, given, {1, 9}, tensors);
  }
  expect_done(executor.step());
  expect_step(made, given, {1, 9}, tensors);
  expect_done(executor.step());
  expect_step(made, given, {1, 10}, tensors);
}

TEST_F(EmulatedExecutor, ARecordingIsNotReplayedOnOtherAddresses) {
  const MadePlan made = plan_of(kProgram, {});
  GpuExecutor executor = executor_of(made);
  const Values<double> given = drawn_values(made.training, 6);
  const Values<double> others = drawn_values(made.training, 7);
  OnDevice first(*gpu_, made, given);
  {
    OnDevice second(*gpu_, made, others);
    for (const uint32_t step : {1U, 2U, 3U}) {
      expect_done(executor.bind(first.pointers(), 1, step));
      expect_done(executor.step());
      expect_step(made, given, {1, step}, first);
    }
    for (const uint32_t step : {3U, 4U, 5U}) {
      expect_done(executor.bind(second.pointers(), 1, step));
      expect_done(executor.step());
      expect_step(made, others, {1, step}, second);
    }
  }
  expect_done(executor.bind(first.pointers(), 1, 6));
  expect_done(executor.step());
  expect_step(made, given, {1, 6}, first);
}

// An allocator returns the same few addresses again and again, in turns.
TEST_F(EmulatedExecutor, AddressesThatComeBackAreReplayed) {
  const MadePlan made = plan_of(kProgram, {});
  GpuExecutor executor = executor_of(made);
  std::vector<Values<double>> given;
  std::vector<std::unique_ptr<OnDevice>> locations;
  for (const uint64_t seed : {8U, 9U, 10U}) {
    given.push_back(drawn_values(made.training, seed));
    locations.push_back(std::make_unique<OnDevice>(*gpu_, made, given.back()));
  }
  for (uint32_t step = 1; step <= 12; ++step) {
    const size_t location = (step * step) % locations.size();  // 1, 1, 0, 1, 1, 0, …
    const size_t taken = step > 6 ? step % locations.size() : location;
    expect_done(executor.bind(locations[taken]->pointers(), 1, step));
    expect_done(executor.forward());
    expect_done(executor.backward());
    expect_step(made, given[taken], {1, step}, *locations[taken]);
  }
}

TEST_F(EmulatedExecutor, AChangedScalarTakesEffect) {
  const MadePlan made = plan_of(kProgram, {});
  GpuExecutor executor = executor_of(made);
  Values<double> given = drawn_values(made.training, 6);
  OnDevice tensors(*gpu_, made, given);
  const TensorId scale = made.training.graph.arguments[2];
  ASSERT_EQ(made.training.graph.tensor(scale).role, TensorRole::scalar);
  for (const uint32_t step : {1U, 2U, 3U, 4U, 5U, 6U}) {
    given[scale.at()][0] = step < 4 ? 0.5 : -1.5;
    expect_done(executor.bind(tensors.pointers(), 1, step));
    expect_done(executor.step());
    expect_step(made, given, {1, step}, tensors);
  }
}

TEST_F(EmulatedExecutor, SeedAndStepMayBeTheCallers) {
  const MadePlan made = plan_of(kProgram, {});
  GpuExecutor executor = executor_of(made);
  const Values<double> given = drawn_values(made.training, 6);
  OnDevice tensors(*gpu_, made, given);
  Result<GpuMemory> random = GpuMemory::allocate(*gpu_, sizeof(GpuState));
  ASSERT_TRUE(random);
  CallersTensors pointers = tensors.pointers();
  pointers.random = random->data();
  for (const uint32_t step : {40U, 41U, 43U, 50U}) {
    const GpuState state{77, step, 0};
    expect_done(gpu_->copy_in(random->data(), &state, sizeof(state)));
    expect_done(executor.bind(pointers, 0, 0));
    expect_done(executor.step());
    expect_step(made, given, {77, step}, tensors);
  }
  // Then again in the executor's own memory.
  for (const uint32_t step : {1U, 2U, 3U}) {
    expect_done(executor.bind(tensors.pointers(), 5, step));
    expect_done(executor.step());
    expect_step(made, given, {5, step}, tensors);
  }
}

TEST_F(EmulatedExecutor, WorksInTheCallersMemoryAlone) {
  const MadePlan made = plan_of(kProgram, {});
  GpuExecutor executor = executor_of(made, ExecutorMemory::callers);
  const Values<double> given = drawn_values(made.training, 6);
  OnDevice tensors(*gpu_, made, given);
  const StepPlan& plan = made.plan;
  Result<GpuMemory> saved = GpuMemory::allocate(*gpu_, plan.saved_bytes);
  for (const uint32_t step : {1U, 2U, 3U}) {
    // Every pass gets another workspace, which is freed between forward and backward.
    CallersTensors pointers = tensors.pointers();
    pointers.saved = saved->data();
    {
      Result<GpuMemory> workspace = GpuMemory::allocate(*gpu_, plan.arena_bytes - plan.saved_bytes);
      pointers.workspace = workspace->data();
      expect_done(executor.bind(pointers, 1, step));
      expect_done(executor.forward());
    }
    Result<GpuMemory> workspace = GpuMemory::allocate(*gpu_, plan.arena_bytes - plan.saved_bytes);
    pointers.workspace = workspace->data();
    expect_done(executor.bind(pointers, 1, step));
    expect_done(executor.backward());
    expect_step(made, given, {1, step}, tensors);
  }
}

TEST_F(EmulatedExecutor, CallersTensorsAreRecordedAfterManyCalls) {
  const MadePlan made = plan_of(kProgram, {});
  GpuExecutor executor = executor_of(made, ExecutorMemory::callers);
  const Values<double> given = drawn_values(made.training, 6);
  OnDevice tensors(*gpu_, made, given);
  Result<GpuMemory> saved = GpuMemory::allocate(*gpu_, made.plan.saved_bytes);
  Result<GpuMemory> workspace = GpuMemory::allocate(*gpu_, made.plan.arena_bytes - made.plan.saved_bytes);
  CallersTensors pointers = tensors.pointers();
  pointers.saved = saved->data();
  pointers.workspace = workspace->data();
  const int before = emulated::recordings();
  for (uint32_t step = 1; step <= 40; ++step) {
    expect_done(executor.bind(pointers, 1, step));
    expect_done(executor.forward());
    expect_done(executor.backward());
    if (step == 2) {
      EXPECT_EQ(emulated::recordings(), before) << "its tensors may have other addresses next time";
    }
    if (step % 10 == 0) expect_step(made, given, {1, step}, tensors);
  }
  EXPECT_EQ(emulated::recordings(), before + 2) << "one for each pass";
}

TEST_F(EmulatedExecutor, AnArenaThatDoesNotFitIsRefused) {
  MadePlan made = plan_of(kProgram, {});
  made.plan.arena_bytes = int64_t{1} << 60;
  const Result<std::vector<Launch>> launches = lower_plan(made.plan, made.training, made.candidates);
  const Result<GpuExecutor> executor = GpuExecutor::load(gpu_, made.plan, *launches, cubins());
  ASSERT_FALSE(executor);
  EXPECT_NE(to_string(executor.error()).find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos);
}

}  // namespace
}  // namespace millrace
