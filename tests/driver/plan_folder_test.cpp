// Plans on disk: written, loaded, damaged, or another user's; and the public class that runs them.
#include "driver/plan_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/safetensors.h"
#include "base/scratch.h"
#include "base/sha256.h"
#include "base/text.h"
#include "exec/run_plan.h"
#include "millrace/millrace.h"
#include "millrace/plan.h"
#include "plan/launched_partition.h"
#include "plan/plan_json.h"
#include "plan/small_plan.h"

namespace millrace {
namespace {

class PlanFolder : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    set_variable("MILLRACE_CACHE_DIR", path("cache"));
    plan_ = small_plan().plan;
    const Result<std::vector<Launch>> launches = lower_plan(plan_, small_plan().training, small_plan().candidates);
    ASSERT_TRUE(launches);
    const Result<KernelCache> cache = test_kernel_cache();
    ASSERT_TRUE(cache) << to_string(cache.error());
    const Result<Done> written = write_plan(plan_, *launches, *cache, path("plan"));
    ASSERT_TRUE(written) << to_string(written.error());
  }

  void without_compiler() {
    for (const char* name : {"MILLRACE_CXX", "CXX"}) set_variable(name, std::nullopt);
    set_variable("PATH", "/nonexistent");
  }

  void damage(const std::string& name) {
    std::string bytes = *read_file(path(name), 1 << 24);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    ASSERT_TRUE(write_file(path(name), bytes));
    ASSERT_EQ(chmod(path(name).c_str(), 0600), 0);
  }

  // Files of compiled kernels in the user's cache.
  size_t cached_objects() const {
    size_t count = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path("cache"), none))
      count += entry.path().extension() == ".so" ? 1 : 0;
    return count;
  }

  // Puts a library next to the plan that leaves a file where it is executed. Returns its hash.
  Result<std::string> plant_kernels() const {
    const std::string text = concat(
        "#include <fcntl.h>\n#include <unistd.h>\n__attribute__((constructor)) static void run() { close(open(\"",
        path("executed"), "\", O_CREAT | O_WRONLY, 0600)); }\nextern \"C\" void MILLRACE_KERNEL() {}\n");
    const Result<Compiler> compiler = find_compiler();
    if (!compiler) return compiler.error();
    return KernelCache(path("attacker"), *compiler, "", "machine").compile_together({{text}}, path("plan/kernels.so"));
  }

  StepPlan plan_;
};

// The text of a plan with a hash that fits.
std::string resealed(nlohmann::ordered_json plan) {
  plan.erase("sha256");
  plan["sha256"] = sha256(plan.dump());
  return plan.dump();
}

// Memory for the small plan, whose tensors are float64 in the program's layouts.
struct SmallTensors {
  Values<double> given;
  Values<double> found;
  std::vector<const void*> arguments;
  std::vector<void*> results;
  std::vector<const void*> result_gradients;
  std::vector<void*> argument_gradients;

  explicit SmallTensors(uint64_t seed = 5) : given(drawn_values(small_plan().training, seed)) {
    const TrainingGraph& training = small_plan().training;
    found.resize(training.graph.tensors.size());
    const auto output = [&](TensorId tensor) -> void* {
      if (!tensor.valid()) return nullptr;
      found[tensor.at()].assign(static_cast<size_t>(elements_of(training.graph, tensor)), -1);
      return found[tensor.at()].data();
    };
    for (const TensorId tensor : training.graph.arguments) arguments.push_back(given[tensor.at()].data());
    for (const Output& result : training.graph.results) results.push_back(output(result.tensor));
    for (const TensorId tensor : training.result_gradients) result_gradients.push_back(given[tensor.at()].data());
    for (const TensorId tensor : training.argument_gradients) argument_gradients.push_back(output(tensor));
  }

  void forget_gradients() {
    for (const TensorId tensor : small_plan().training.argument_gradients) {
      if (tensor.valid()) std::fill(found[tensor.at()].begin(), found[tensor.at()].end(), -1);
    }
  }

  Tensors tensors() const { return {arguments, results, result_gradients, argument_gradients}; }
  std::string difference() const { return difference_from_reference(small_plan(), given, {9, 2}, found); }
};

std::string load_and_run(const std::string& path) {
  Result<Plan> plan = Plan::load(path);
  if (!plan) return to_string(plan.error());
  SmallTensors tensors;
  const Result<Done> ran = plan->step(tensors.tensors(), 9, 2);
  return ran ? tensors.difference() : to_string(ran.error());
}

TEST_F(PlanFolder, RunsAsItWasWritten) {
  struct stat found {};
  ASSERT_EQ(stat(path("plan").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777U, 0700U);
  without_compiler();
  EXPECT_EQ(load_and_run(path("plan")), "");
  EXPECT_EQ(load_and_run(path("plan/plan.json")), "");
  EXPECT_EQ(cached_objects(), 0U);
}

// Whoever made the plan chose its kernels and wrote their hash into it, so neither says that they may be executed.
TEST_F(PlanFolder, KernelsOfAPlanFromElsewhereAreCompiledAgain) {
  const Result<std::string> planted = plant_kernels();
  ASSERT_TRUE(planted) << to_string(planted.error());
  plan_.kernels.sha256 = *planted;
  ASSERT_TRUE(write_file(path("plan/plan.json"), plan_json(plan_)));
  EXPECT_EQ(load_and_run(path("plan")), "");
  EXPECT_FALSE(std::filesystem::exists(path("executed")));
  EXPECT_GT(cached_objects(), 0U);
}

// A plan that was copied to another user or machine, or whose user emptied the cache.
TEST_F(PlanFolder, KernelsThatTheCacheDoesNotKnowAreCompiledAgain) {
  std::filesystem::remove_all(path("cache"));
  EXPECT_EQ(load_and_run(path("plan")), "");
  EXPECT_GT(cached_objects(), 0U);
  std::filesystem::remove_all(path("cache"));
  without_compiler();
  EXPECT_NE(load_and_run(path("plan")).find("compiled by another user"), std::string::npos);
}

TEST_F(PlanFolder, ExchangedFunctionsChangeNoResult) {
  std::vector<size_t> kernels;
  for (size_t k = 0; k < plan_.launches.size(); ++k) {
    if (!plan_.launches[k].function.empty()) kernels.push_back(k);
  }
  ASSERT_GT(kernels.size(), 1U);
  for (const size_t other : kernels) {
    StepPlan plan = plan_;
    std::swap(plan.launches[kernels.front()].function, plan.launches[other].function);
    ASSERT_TRUE(write_file(path("plan/plan.json"), plan_json(plan)));
    EXPECT_EQ(load_and_run(path("plan")), "");
  }
  StepPlan plan = plan_;
  for (PlanLaunch& launch : plan.launches) launch.function = "malloc";
  ASSERT_TRUE(write_file(path("plan/plan.json"), plan_json(plan)));
  EXPECT_EQ(load_and_run(path("plan")), "");
}

// Others could exchange the files at any time.
TEST_F(PlanFolder, AFolderThatOthersMayWriteExecutesNothingOfTheirs) {
  ASSERT_EQ(chmod(path("plan").c_str(), 0777), 0);
  EXPECT_EQ(load_and_run(path("plan")), "");
  ASSERT_TRUE(plant_kernels());
  EXPECT_EQ(load_and_run(path("plan")), "");
  EXPECT_FALSE(std::filesystem::exists(path("executed")));
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(path("plan").c_str(), 12345, 12345), 0);
  EXPECT_EQ(load_and_run(path("plan")), "");
  EXPECT_FALSE(std::filesystem::exists(path("executed")));
}

// Opening a pipe without a writer would wait for ever.
TEST_F(PlanFolder, APipeInPlaceOfThePlanIsRefused) {
  std::filesystem::remove(path("plan/plan.json"));
  ASSERT_EQ(mkfifo(path("plan/plan.json").c_str(), 0600), 0);
  EXPECT_NE(load_and_run(path("plan")).find("not a regular file"), std::string::npos);
}

// Every number of a plan, replaced by extreme ones in a file whose hash is right.
TEST_F(PlanFolder, ExtremeNumbersAreRefusedOrChangeNothing) {
  without_compiler();
  const nlohmann::ordered_json original = nlohmann::ordered_json::parse(plan_json(plan_));
  const nlohmann::ordered_json flat = original.flatten();
  size_t changed = 0;
  for (const auto& [pointer, value] : flat.items()) {
    if (!value.is_number() || pointer == "/schema_version") continue;
    for (const nlohmann::ordered_json& extreme : std::vector<nlohmann::ordered_json>{
             INT64_MIN, -1, 0, 1, 256, INT32_MAX, INT64_MAX / 256 * 256, INT64_MAX, UINT64_MAX, 1e300, -1e300}) {
      nlohmann::ordered_json plan = original;
      plan[nlohmann::ordered_json::json_pointer(pointer)] = extreme;
      ASSERT_TRUE(write_file(path("plan/plan.json"), resealed(std::move(plan))));
      const std::string found = load_and_run(path("plan"));
      EXPECT_TRUE(found.empty() || found.find("plan.json") != std::string::npos ||
                  found.find("scratch_bytes") != std::string::npos)
          << pointer << " = " << extreme << ": " << found;
      ++changed;
    }
  }
  EXPECT_GT(changed, 100U);
}

TEST_F(PlanFolder, UnusableKernelsAreRecompiled) {
  damage("plan/kernels.so");
  EXPECT_EQ(load_and_run(path("plan")), "");
  std::filesystem::remove(path("plan/kernels.so"));
  EXPECT_EQ(load_and_run(path("plan")), "");
  ASSERT_TRUE(write_file(path("plan/kernels.so"), "not a shared object"));
  EXPECT_EQ(load_and_run(path("plan")), "");
}

TEST_F(PlanFolder, WithoutACompilerDamagedKernelsAreUnavailable) {
  damage("plan/kernels.so");
  without_compiler();
  const Result<Plan> plan = Plan::load(path("plan"));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().kind, ErrorKind::unavailable);
  EXPECT_NE(to_string(plan.error()).find("cannot be recompiled"), std::string::npos) << to_string(plan.error());
  EXPECT_FALSE(plan.error().diagnostics.front().remedy.empty());
}

TEST_F(PlanFolder, AnotherUsersKernelsAreNotLoaded) {
  without_compiler();
  ASSERT_EQ(chmod(path("plan/kernels.so").c_str(), 0666), 0);  // anybody could have written it
  EXPECT_FALSE(Plan::load(path("plan")));
  ASSERT_EQ(chmod(path("plan/kernels.so").c_str(), 0600), 0);
  EXPECT_TRUE(Plan::load(path("plan")));
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(path("plan/kernels.so").c_str(), 12345, 12345), 0);
  EXPECT_FALSE(Plan::load(path("plan")));
  // Nor is a plan written into another user's folder.
  ASSERT_EQ(chown(path("plan").c_str(), 12345, 12345), 0);
  const Result<std::vector<Launch>> launches = lower_plan(plan_, small_plan().training, small_plan().candidates);
  EXPECT_FALSE(write_plan(plan_, *launches, *test_kernel_cache(), path("plan")));
}

TEST_F(PlanFolder, KernelsOfAnotherMachineOrVersionAreNotUsed) {
  for (std::string PlanKernels::*field : {&PlanKernels::machine, &PlanKernels::sources}) {
    StepPlan plan = plan_;
    plan.kernels.*field = "another";
    ASSERT_TRUE(write_file(path("plan/plan.json"), plan_json(plan)));
    EXPECT_EQ(load_and_run(path("plan")), "");
  }
  without_compiler();
  EXPECT_FALSE(Plan::load(path("plan")));
}

TEST_F(PlanFolder, KernelsMustBeNextToThePlan) {
  StepPlan plan = plan_;
  plan.kernels.file = "../plan/kernels.so";
  ASSERT_TRUE(write_file(path("plan/plan.json"), plan_json(plan)));
  const Result<Plan> loaded = Plan::load(path("plan"));
  ASSERT_FALSE(loaded);
  EXPECT_NE(to_string(loaded.error()).find("kernels.file"), std::string::npos);
}

TEST_F(PlanFolder, AChangedPlanIsRefused) {
  damage("plan/plan.json");
  EXPECT_FALSE(Plan::load(path("plan")));
  StepPlan plan = plan_;
  plan.scratch_bytes = 0;
  plan.arena_bytes = plan.scratch_offset;
  ASSERT_TRUE(write_file(path("plan/plan.json"), plan_json(plan)));
  EXPECT_EQ(static_cast<bool>(Plan::load(path("plan"))), plan_.scratch_bytes == 0);
  plan = plan_;
  plan.program.sizes = {"B=4"};
  ASSERT_TRUE(write_file(path("plan/plan.json"), plan_json(plan)));
  const Result<Plan> loaded = Plan::load(path("plan"));
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().kind, ErrorKind::bad_input);
  EXPECT_NE(to_string(loaded.error()).find("plan.json"), std::string::npos) << to_string(loaded.error());
  EXPECT_FALSE(Plan::load(path("nowhere")));
}

TEST_F(PlanFolder, ThePublicClassDescribesItsTensors) {
  Result<Plan> plan = Plan::load(path("plan"));
  ASSERT_TRUE(plan) << to_string(plan.error());
  ASSERT_EQ(plan->arguments().size(), 4U);
  EXPECT_EQ(plan->arguments()[1].name, "w");
  EXPECT_EQ(plan->arguments()[1].shape, (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(plan->arguments()[1].strides, (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(plan->arguments()[1].order, (std::vector<int>{0, 1}));
  EXPECT_EQ(plan->arguments()[1].dtype, "float64");
  EXPECT_EQ(plan->arguments()[1].bytes, 160);
  EXPECT_TRUE(plan->arguments()[3].scalar);
  EXPECT_EQ(plan->argument_gradients()[2].name, "d_b");
  EXPECT_EQ(plan->argument_gradients()[3].bytes, 0);
  EXPECT_EQ(plan->result_gradients().size(), 1U);
  EXPECT_GT(plan->predicted_seconds(), 0);
  EXPECT_EQ(plan->arena_bytes(), plan_.arena_bytes);
}

TEST_F(PlanFolder, ThePublicClassChecksItsPointers) {
  Result<Plan> plan = Plan::load(path("plan"));
  ASSERT_TRUE(plan) << to_string(plan.error());
  const auto complaint = [&](auto change) {
    SmallTensors tensors;
    change(tensors);
    const Result<Done> ran = plan->step(tensors.tensors(), 9, 2);
    return ran ? "" : to_string(ran.error());
  };
  EXPECT_NE(complaint([](SmallTensors& t) { t.arguments.pop_back(); }).find("3 arguments where the plan has 4"),
            std::string::npos);
  EXPECT_NE(complaint([](SmallTensors& t) { t.results.push_back(nullptr); }).find("2 results"), std::string::npos);
  EXPECT_NE(complaint([](SmallTensors& t) { t.arguments[1] = nullptr; }).find("'w' is a null pointer"),
            std::string::npos);
  EXPECT_NE(complaint([](SmallTensors& t) { t.result_gradients[0] = nullptr; }).find("null"), std::string::npos);
  EXPECT_NE(complaint([](SmallTensors& t) {
              t.arguments[0] = static_cast<const char*>(t.arguments[0]) + 4;
            }).find("'x' is misaligned"),
            std::string::npos);
  EXPECT_EQ(complaint([](SmallTensors&) {}), "");
}

TEST_F(PlanFolder, BackwardFollowsItsForward) {
  Result<Plan> plan = Plan::load(path("plan"));
  ASSERT_TRUE(plan) << to_string(plan.error());
  SmallTensors tensors;
  EXPECT_FALSE(plan->backward(tensors.tensors(), 9, 2));
  Tensors forward = tensors.tensors();
  forward.result_gradients = {};
  forward.argument_gradients = {};
  EXPECT_TRUE(plan->forward(forward, 9, 2));
  EXPECT_FALSE(plan->backward(forward, 9, 2));
  for (int repeated = 0; repeated < 2; ++repeated) {
    tensors.forget_gradients();
    EXPECT_TRUE(plan->backward(tensors.tensors(), 9, 2));
    EXPECT_EQ(tensors.difference(), "");
  }
}

struct alignas(kPlanMemoryAlignment) Line {
  std::array<char, kPlanMemoryAlignment> bytes;
};

std::vector<Line> memory_of(int64_t bytes) {
  return std::vector<Line>(static_cast<size_t>(bytes / kPlanMemoryAlignment + 1));
}

TEST_F(PlanFolder, SeveralForwardsMayBeInFlightInTheCallersMemory) {
  Result<Plan> plan = Plan::load(path("plan"), PlanMemory::callers);
  ASSERT_TRUE(plan) << to_string(plan.error());
  ASSERT_GT(plan->saved_bytes(), 0);
  EXPECT_EQ(plan->saved_bytes(), plan_.saved_bytes);
  EXPECT_EQ(plan->saved_bytes() + plan->workspace_bytes(), plan->arena_bytes());
  constexpr size_t kCalls = 3;
  std::vector<SmallTensors> calls;
  std::vector<std::vector<Line>> saved;
  for (size_t k = 0; k < kCalls; ++k) {
    calls.emplace_back(k + 5);
    saved.push_back(memory_of(plan->saved_bytes()));
  }
  const auto run = [&](size_t k, bool forward) {
    std::vector<Line> workspace = memory_of(plan->workspace_bytes());  // a new one for every pass
    std::memset(workspace.data(), 0xff, workspace.size() * sizeof(Line));
    Tensors tensors = calls[k].tensors();
    tensors.saved = saved[k].data();
    tensors.workspace = workspace.data();
    const Result<Done> ran = forward ? plan->forward(tensors, 9, 2) : plan->backward(tensors, 9, 2);
    return ran ? "" : to_string(ran.error());
  };
  for (size_t k = 0; k < kCalls; ++k) EXPECT_EQ(run(k, true), "");
  const std::vector<Line> first = saved[0];
  std::memset(saved[0].data(), 0x5a, saved[0].size() * sizeof(Line));
  EXPECT_EQ(run(0, true), "");
  EXPECT_EQ(std::memcmp(saved[0].data(), first.data(), static_cast<size_t>(plan->saved_bytes())), 0);
  for (const size_t k : {1U, 2U, 0U, 1U}) {
    calls[k].forget_gradients();
    EXPECT_EQ(run(k, false), "");
    EXPECT_EQ(calls[k].difference(), "") << k;
  }
}

TEST_F(PlanFolder, TheCallersMemoryIsChecked) {
  Result<Plan> plan = Plan::load(path("plan"), PlanMemory::callers);
  ASSERT_TRUE(plan) << to_string(plan.error());
  std::vector<Line> saved = memory_of(plan->saved_bytes());
  std::vector<Line> workspace = memory_of(plan->workspace_bytes());
  const auto complaint = [&](void* in_saved, void* in_workspace) {
    const SmallTensors small;
    Tensors tensors = small.tensors();
    tensors.saved = in_saved;
    tensors.workspace = in_workspace;
    const Result<Done> ran = plan->step(tensors, 9, 2);
    return ran ? "" : to_string(ran.error());
  };
  EXPECT_NE(complaint(nullptr, workspace.data()).find("'saved' is a null pointer"), std::string::npos);
  EXPECT_NE(complaint(saved.data(), nullptr).find("'workspace' is a null pointer"), std::string::npos);
  EXPECT_NE(complaint(&saved[0].bytes[8], workspace.data()).find("'saved' is misaligned"), std::string::npos);
  EXPECT_EQ(complaint(saved.data(), workspace.data()), "");
}

TEST_F(PlanFolder, WhatBackwardDoesNotReadMayBeNull) {
  Result<Plan> plan = Plan::load(path("plan"));
  ASSERT_TRUE(plan) << to_string(plan.error());
  SmallTensors tensors;
  ASSERT_TRUE(plan->forward(tensors.tensors(), 9, 2));
  size_t unread = 0;
  for (size_t k = 0; k < tensors.arguments.size(); ++k) {
    if (plan->arguments()[k].read_by_backward) continue;
    tensors.arguments[k] = nullptr;
    ++unread;
  }
  EXPECT_EQ(unread, 1U);  // the bias
  EXPECT_TRUE(plan->arguments()[3].read_by_backward);
  EXPECT_TRUE(plan->backward(tensors.tensors(), 9, 2));
  EXPECT_EQ(tensors.difference(), "");
  tensors.arguments[0] = nullptr;
  EXPECT_FALSE(plan->backward(tensors.tensors(), 9, 2));
}

// What `millrace run` writes, by name.
std::map<std::string, std::vector<double>> outputs(RunOptions options, const std::string& out) {
  options.out = out;
  options.seed = 3;
  const Result<std::string> ran = run_program(options);
  EXPECT_TRUE(ran) << to_string(ran.error());
  std::map<std::string, std::vector<double>> found;
  if (!ran) return found;
  const Result<std::vector<StoredTensor>> stored = read_safetensors(out);
  EXPECT_TRUE(stored);
  for (const StoredTensor& tensor : *stored) found[tensor.name] = tensor.values;
  return found;
}

TEST_F(PlanFolder, RunTakesAPlanLikeItsProgram) {
  ASSERT_TRUE(write_file(path("program.py"), kSmallProgram));
  RunOptions options;
  options.program.path = path("program.py");
  const auto expected = outputs(options, path("a.safetensors"));
  options.program.path = path("plan");
  const auto found = outputs(options, path("b.safetensors"));
  options.device = "reference";
  EXPECT_EQ(outputs(options, path("c.safetensors")), expected);
  ASSERT_EQ(found.size(), 4U);
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(found.at(name).size(), values.size());
    for (size_t k = 0; k < values.size(); ++k) EXPECT_NEAR(found.at(name)[k], values[k], 1e-12) << name;
  }
  options.program.sizes = {"B=4"};
  EXPECT_FALSE(run_program(options));
  options = {};
  options.program.path = path("program.py");
  options.device = "cpu";
  EXPECT_FALSE(run_program(options));
}

TEST_F(PlanFolder, BenchTimesEveryLaunch) {
  BenchOptions options;
  options.path = path("plan");
  options.seconds = 0.01;
  const Result<std::string> text = bench_plan(options);
  ASSERT_TRUE(text) << to_string(text.error());
  for (const PlanLaunch& launch : plan_.launches) EXPECT_NE(text->find(name_of(launch)), std::string::npos) << *text;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U);
  options.format = Format::json;
  const nlohmann::json json = nlohmann::json::parse(*bench_plan(options));
  EXPECT_EQ(json["schema_version"], 2);
  EXPECT_EQ(json["launches"].size(), plan_.launches.size());
  EXPECT_GT(json["step_seconds"]["low"].get<double>(), 0);
  EXPECT_LE(json["step_seconds"]["low"], json["step_seconds"]["median"]);
  EXPECT_LE(json["step_seconds"]["median"], json["step_seconds"]["high"]);
  EXPECT_EQ(json["arena_bytes"], plan_.arena_bytes);
  options.path = path("nowhere");
  EXPECT_FALSE(bench_plan(options));
}

TEST_F(PlanFolder, ThreadsAreThoseThatThePlanWasMadeFor) {
  StepPlan plan;
  EXPECT_EQ(threads_of(plan), 0);
  plan.device = "cpu A Processor @ 2.50GHz 0f49, 12 threads of 16 cores; g++ 12";
  EXPECT_EQ(threads_of(plan), 12);
  for (const char* other : {"gpu NVIDIA H200, sm_90", " threads of ", "x threads of y", "99999999999 threads of 1"}) {
    plan.device = other;
    EXPECT_EQ(threads_of(plan), 0) << other;
  }
}

}  // namespace
}  // namespace millrace
