// Altered plans whose hash was computed anew, next to a library that must not be executed: each is refused, or computes
// what the program in it says. Most are checked in memory: the steps that read_plan takes with a text, without
// preparing the same program again and again. Those that pass, and a share of the others, are read from files.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/sha256.h"
#include "base/temporary_directory.h"
#include "base/text.h"
#include "campaigns/checks/alter.h"
#include "campaigns/checks/slice.h"
#include "device/cpu/compile.h"
#include "driver/file_kind.h"
#include "driver/plan_folder.h"
#include "driver/tuning.h"
#include "exec/run_plan.h"
#include "frontend/frontend.h"
#include "plan/launched_partition.h"
#include "plan/plan_json.h"
#include "plan/random_plan.h"
#include "plan/small_plan.h"
#include "plan/verify.h"
#include "random/generator.h"

namespace millrace::campaigns {
namespace {

constexpr uint64_t kAlterationsOfAPlan = 1000;
// Smaller programs have all parts of a plan too, and take less time.
constexpr size_t kOperators = 6;
constexpr size_t kLaunches = 12;
constexpr uint64_t kFromFiles = 64;  // one of this many refused plans is also read from its files

class AlteredPlans {
 public:
  explicit AlteredPlans(TemporaryDirectory folder) : folder_(std::move(folder)) {}

  void check(uint64_t seed, Report& report) {
    if (base_.empty() || seed / kAlterationsOfAPlan != number_) make_base(seed / kAlterationsOfAPlan);
    std::mt19937_64 random(seed);
    Json altered = Json::parse(base_);
    alter(altered, "schema_version", random);
    if (altered.is_object() && random() % 32 != 0) seal(altered);
    const std::string text = altered.dump(-1, ' ', false, Json::error_handler_t::replace);
    const Result<Done> accepted = read_text(text);
    report.count("plans");
    std::string wrong;
    if (!accepted) wrong = refused("refused", accepted.error(), report);
    if (accepted || random() % kFromFiles == 0) wrong += outcome(seed, text, bool(accepted), report);
    if (!wrong.empty()) report.fail(seed, wrong);
  }

 private:
  std::string path(const std::string& name) const { return concat(folder_.path(), "/", name); }
  std::string marker() const { return path("executed"); }

  void put(const std::string& name, const std::string& bytes) const {
    ASSERT_TRUE(write_file(path(name), bytes));
    ASSERT_EQ(chmod(path(name).c_str(), 0600), 0);
  }

  // Writes the hash as plan_json.cpp computes it.
  static void seal(Json& plan) {
    plan.erase("sha256");
    plan["sha256"] = sha256(plan.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  // A plan with the hash of a library that leaves a mark when it is loaded.
  void make_base(uint64_t number) {
    number_ = number;
    MadePlan made = number == 0 ? small_plan() : made_of(number);
    const Result<std::vector<Launch>> launches = lower_plan(made.plan, made.training, made.candidates);
    ASSERT_TRUE(launches);
    ASSERT_TRUE(cache_) << to_string(cache_.error());
    ASSERT_TRUE(write_plan(made.plan, *launches, *cache_, folder_.path()));
    put("kernels.so", hostile_library());
    made.plan.kernels.sha256 = sha256(hostile_library());
    base_ = plan_json(made.plan);
    program_ = greeting(tune_program(made.plan));
    Stages stages;
    Result<Prepared> prepared = prepare(stages, tune_program(made.plan));
    ASSERT_TRUE(prepared);
    prepared_ = std::move(*prepared);
  }

  static MadePlan made_of(uint64_t number) {
    PlanChoice choice;
    choice.seed = number;
    choice.dtype = "float64";
    choice.most = 20;
    for (uint64_t seed = number * kAlterationsOfAPlan;; ++seed) {
      const std::string text = millrace::random_programs::random_program(seed);
      const Result<Graph> graph = parse_program(text, ProgramOptions{});
      if (!graph || graph->operators.size() > kOperators) continue;
      MadePlan made = make_plan(text, choice);
      if (made.plan.launches.size() <= kLaunches) return made;
    }
  }

  const std::string& hostile_library() {
    if (!library_.empty()) return library_;
    const Result<Compiler> compiler = find_compiler();
    const std::string text = concat("#include <fcntl.h>\n__attribute__((constructor)) void mark() { open(\"", marker(),
                                    "\", O_CREAT | O_WRONLY, 0600); }\n");
    const CompileOutcome made = compile(*compiler, {{text, {}}}, folder_.path(), 60);
    if (made.object) library_ = made.object->bytes;
    return library_;
  }

  // Whether read_plan would accept it.
  Result<Done> read_text(const std::string& text) const {
    if (Result<Done> right = check_kind("plan.json", text, FileKind::plan); !right) return right;
    const Result<StepPlan> plan = parse_plan(text, "plan.json");
    if (!plan) return plan.error();
    const TuneProgram program = tune_program(*plan);
    if (greeting(program) == program_) return verify(*plan, prepared_.training, prepared_.candidates);
    Stages stages;
    const Result<Prepared> prepared = prepare(stages, program);
    if (!prepared) return prepared.error();
    return verify(*plan, prepared->training, prepared->candidates);
  }

  // What is wrong with a plan that is read from its folder, or "".
  std::string outcome(uint64_t seed, const std::string& text, bool accepted, Report& report) const {
    put("plan.json", text);
    const Result<LoadedPlan> loaded = read_plan(folder_.path());
    if (bool(loaded) != accepted) return "a plan is accepted as a text or as a file, but not as both";
    if (!loaded) return "";
    Result<CpuExecutor> executor = load_executor(*loaded, [&] { return cache_; });
    if (std::filesystem::exists(marker())) return "the library next to the plan was executed";
    if (!executor) return refused("refused when loaded", executor.error(), report);
    const MadePlan made{loaded->training, loaded->candidates, {}, {}, loaded->plan};
    const Values<double> given = drawn_values(made.training, seed);
    const RandomState random{seed, 1};
    report.count("accepted and right");
    return difference_from_reference(made, given, random, run_plan(made, *executor, given, random));
  }

  static std::string refused(const std::string& how, const Error& error, Report& report) {
    report.count(how);
    return to_string(error).empty() ? "an error without a message" : "";
  }

  TemporaryDirectory folder_;
  Result<KernelCache> cache_ = user_kernel_cache();
  uint64_t number_ = 0;
  std::string base_;     // plan.json
  std::string program_;  // its program, as a text
  Prepared prepared_;
  std::string library_;
};

}  // namespace

Check altered_plans() {
  Result<TemporaryDirectory> folder = TemporaryDirectory::make();
  const auto state = std::make_shared<AlteredPlans>(std::move(*folder));
  return [state](uint64_t seed, Report& report) { state->check(seed, report); };
}

}  // namespace millrace::campaigns
