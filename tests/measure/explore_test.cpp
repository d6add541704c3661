// Explorations with scripts as workers and compilers: what is tried, stored and lost. Over 500 lines,
// because the cases share the scripts.
#include "measure/explore.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "base/clock.h"
#include "candidates/candidate_source.h"
#include "candidates/enumerate.h"
#include "device/cpu/kernel_cache.h"
#include "fusion/fusion_text.h"
#include "measure/measurements_json.h"
#include "measure/pretended_worker.h"
#include "measure/verify.h"
#include "select/cost_bounds.h"
#include "select/select.h"

namespace millrace {
namespace {

constexpr const char* kProgram = R"(
B = 2
J = 3


def layer(x: float32[B, J], w: float32[J, J]):
    y = np.einsum("bj,jk->bk", x, w)
    return dropout(softmax(y), p=0.5)
)";

constexpr const char* kLarger = R"(
B = 4
J = 5


def layer(x: float32[B, J], w: float32[J, J]):
    y = np.einsum("bj,jk->bk", x, w)
    return dropout(softmax(y), p=0.5)
)";

class ExploreTest : public WorkerTest {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    training_ = training_of(kProgram);
    enumerate_again();
    settings_.exhaustive = true;
    settings_.device = "a pretended machine";
    settings_.conversions = [this](TensorId tensor, int from, int to) {
      return conversions(training_.graph, candidates_.domains[tensor.at()], tensor, from, to, 1);
    };
    // Nothing loads this compiler's output.
    const std::string file = path("compiler.sh");
    ASSERT_TRUE(write_file(file, "#!/bin/sh\nfor out; do :; done\necho an object >\"$out\"\n"));
    ASSERT_EQ(chmod(file.c_str(), 0755), 0);
    compiler_ = {file, "pretended 1", {"-shared"}};
  }

  void enumerate_again() {
    EnumerateOptions options;
    options.libraries = {GemmLibrary::openblas};
    Result<Candidates> found = enumerate(training_, fuse(training_), options);
    ASSERT_TRUE(found);
    candidates_ = std::move(*found);
  }

  EnumerateOptions enumerate_on_gpu() {
    EnumerateOptions options;
    options.target = gpu_target({2});
    options.libraries = {GemmLibrary::cublaslt};
    Result<Candidates> found = enumerate(training_, fuse(training_), options);
    EXPECT_TRUE(found);
    if (found) candidates_ = std::move(*found);
    settings_.conversions = [this, target = options.target](TensorId tensor, int from, int to) {
      return conversions(training_.graph, candidates_.domains[tensor.at()], tensor, from, to, 1, target);
    };
    return options;
  }

  Result<Explored> explored(const WorkerCommand& command, const std::string& database = "m.db",
                            bool with_compiler = true) {
    Result<Database> opened = Database::open(path(database));
    if (!opened) return opened.error();
    const CpuKernelMaker kernels(KernelCache(path("cache"), compiler_, "", "cpu"), 1);
    Worker worker(command);
    return explore(training_.graph, candidates_, settings_, with_compiler ? &kernels : nullptr, *opened, worker);
  }

  std::vector<MeasurementRow> rows_in(const std::string& database = "m.db") const {
    const Result<Database> opened = Database::open(path(database));
    EXPECT_TRUE(opened);
    const Result<std::vector<MeasurementRow>> rows = opened->all();
    EXPECT_TRUE(rows);
    return *rows;
  }

  TrainingGraph training_;
  Candidates candidates_;
  ExploreSettings settings_;
  Compiler compiler_;
};

TEST_F(ExploreTest, TriesEverythingOnceAndNothingTwice) {
  const WorkerCommand worker = pretended_worker();
  const Result<Explored> first = explored(worker);
  ASSERT_TRUE(first) << to_string(first.error());
  EXPECT_TRUE(verify(first->measurements));
  EXPECT_GT(first->summary.tried, 50);
  EXPECT_EQ(first->summary.known, 0);
  EXPECT_EQ(first->summary.outcomes.at("measured"), first->summary.tried);
  const std::vector<std::string> asked = calls();
  EXPECT_EQ(static_cast<double>(asked.size()), first->summary.tried);
  EXPECT_EQ(std::set<std::string>(asked.begin(), asked.end()).size(), asked.size()) << "something was requested twice";
  EXPECT_EQ(rows_in().size(), asked.size());

  const Result<Explored> again = explored(worker);
  ASSERT_TRUE(again) << to_string(again.error());
  EXPECT_EQ(again->summary.tried, 0);
  EXPECT_EQ(again->summary.known, first->summary.tried);
  EXPECT_EQ(calls().size(), asked.size());
  EXPECT_EQ(measurements_json(again->measurements), measurements_json(first->measurements));

  // The database suffices when nothing is to be measured: no worker is needed.
  settings_.measure = false;
  const Result<Explored> recalled = explored({{"/no/worker"}, "", 0});
  ASSERT_TRUE(recalled) << to_string(recalled.error());
  EXPECT_EQ(measurements_json(recalled->measurements), measurements_json(first->measurements));
}

TEST_F(ExploreTest, ProgressChangesNothing) {
  size_t selections = 0;
  settings_.progress = [](const ExploreProgress&) {};
  settings_.select = [&](const Measurements& so_far, double) {
    EXPECT_TRUE(verify(so_far));
    ++selections;
    return 1.0;
  };
  const Result<Explored> watched = explored(pretended_worker());
  ASSERT_TRUE(watched) << to_string(watched.error());
  EXPECT_GT(selections, 0U);
  EXPECT_EQ(watched->summary.partitions.size(), candidates_.partitions.size());
}

// Compiling ahead changes the order of batches, but loses nothing and tries nothing twice.
TEST_F(ExploreTest, CompilingAheadTriesTheSame) {
  settings_.batch = 4;
  const Result<Explored> one_by_one = explored(pretended_worker(), "one_by_one.db");
  ASSERT_TRUE(one_by_one) << to_string(one_by_one.error());
  std::filesystem::remove(path("calls"));
  settings_.compile_ahead = true;
  settings_.progress = [](const ExploreProgress&) {};
  settings_.select = [](const Measurements& so_far, double) { return verify(so_far) ? 1.0 : 0.0; };
  const Result<Explored> ahead = explored(pretended_worker());
  ASSERT_TRUE(ahead) << to_string(ahead.error());
  EXPECT_EQ(measurements_json(ahead->measurements), measurements_json(one_by_one->measurements));
  const std::vector<std::string> asked = calls();
  EXPECT_EQ(static_cast<double>(asked.size()), one_by_one->summary.tried);
  EXPECT_EQ(std::set<std::string>(asked.begin(), asked.end()).size(), asked.size()) << "something was requested twice";

  // Without time, trials that were chosen ahead are left, and tried when exploration resumes.
  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(0);
  settings_.baseline_grace = 60;
  const Result<Explored> none = explored(pretended_worker(), "short.db");
  ASSERT_TRUE(none) << to_string(none.error());
  EXPECT_LT(none->summary.tried, ahead->summary.tried);
  settings_.exhaustive = true;
  settings_.deadline = Deadline::never();
  const Result<Explored> rest = explored(pretended_worker(), "short.db");
  ASSERT_TRUE(rest) << to_string(rest.error());
  EXPECT_EQ(measurements_json(rest->measurements), measurements_json(one_by_one->measurements));
}

// Compiles like another one, but all batches except the third wait until something is measured.
class QuickOnce : public KernelMaker {
 public:
  QuickOnce(const KernelMaker& others, std::function<bool()> measured)
      : others_(others), measured_(std::move(measured)) {}

  std::string name_of(const Launch& launch) const override { return others_.name_of(launch); }
  std::vector<Result<CompiledFile>> make(const std::vector<Launch>& launches) const override {
    constexpr int kQuick = 2;
    constexpr int kPatience = 500;
    if (calls_++ != kQuick) {
      int turn = 0;
      for (; turn < kPatience && !measured_(); ++turn) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (turn == kPatience) in_vain_ = true;
    }
    return others_.make(launches);
  }
  bool waited_in_vain() const { return in_vain_; }

 private:
  const KernelMaker& others_;
  std::function<bool()> measured_;
  mutable std::atomic<int> calls_ = 0;
  mutable std::atomic<bool> in_vain_ = false;
};

TEST_F(ExploreTest, ASlowKernelDelaysOnlyItsBatch) {
  settings_.batch = 4;
  settings_.compile_ahead = true;
  Result<Database> database = Database::open(path("m.db"));
  ASSERT_TRUE(database);
  const CpuKernelMaker quick(KernelCache(path("cache"), compiler_, "", "cpu"), 1);
  const QuickOnce kernels(quick, [this] { return !calls().empty(); });
  Worker worker(pretended_worker());
  const Result<Explored> made = explore(training_.graph, candidates_, settings_, &kernels, *database, worker);
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_FALSE(kernels.waited_in_vain());
}

TEST_F(ExploreTest, AStoppedRunResumes) {
  const Result<Explored> whole = explored(pretended_worker(), "whole.db");
  ASSERT_TRUE(whole);
  const size_t all = calls().size();
  std::filesystem::remove(path("calls"));
  // A worker that ends after thirty answers and cannot be started again: the exploration ends with an error.
  ASSERT_TRUE(write_file(path("worker.sh"), concat("#!/bin/sh\nread -r greeting\n[ -e '", path("stopped"),
                                                   "' ] && exit 9\necho ready\nn=0\nwhile read -r line; do\n",
                                                   "n=$((n + 1))\nif [ $n -gt 30 ]; then touch '", path("stopped"),
                                                   "'; exit 9; fi\n", "printf '%s\\n' \"$line\" >>'", path("calls"),
                                                   "'\necho '{\"outcome\":\"measured\",\"seconds\":1e-4,\"low\":1e-4,",
                                                   "\"high\":1e-4,\"samples\":6,\"detail\":\"\"}'\ndone\n")));
  const Result<Explored> stopped = explored({{"/bin/sh", path("worker.sh")}, "{}", 0});
  ASSERT_FALSE(stopped);
  EXPECT_EQ(rows_in().size(), 31U) << "thirty measured, and the one that ended the worker";
  const Result<Explored> resumed = explored(pretended_worker());
  ASSERT_TRUE(resumed) << to_string(resumed.error());
  EXPECT_EQ(resumed->summary.known, 31);
  EXPECT_EQ(rows_in().size(), all);
}

TEST_F(ExploreTest, ContinuesWhenCandidatesFail) {
  const Result<Explored> made = explored(pretended_worker(R"(
  *'block 0'*) kill -SEGV $$ ;;
  *'flat loops 1.0'*) echo nonsense ;;
  *'rows loops 0.1'*) echo '{"outcome":"wrong","seconds":0,"low":0,"high":0,"samples":0,"detail":"y[0] is 1"}' ;;
)"));
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_TRUE(verify(made->measurements));
  const std::map<std::string, double>& outcomes = made->summary.outcomes;
  EXPECT_GT(outcomes.at("measured"), 0);
  EXPECT_GT(outcomes.at("crashed"), 0);
  EXPECT_GT(outcomes.at("wrong"), 0);
  EXPECT_FALSE(made->summary.first_failure.empty());
  double sum = 0;
  for (const auto& [name, count] : outcomes) sum += count;
  EXPECT_EQ(static_cast<double>(rows_in().size()), sum);
  // None of them is a measured candidate.
  for (const MeasuredPartition& partition : made->measurements.partitions) {
    for (const MeasuredCandidate& config : partition.candidates) {
      EXPECT_EQ(config.candidate.find("rows loops 0.1"), std::string::npos) << config.candidate;
      EXPECT_EQ(config.candidate.find("block 0"), std::string::npos) << config.candidate;
    }
  }
}

TEST_F(ExploreTest, WithoutACompilerOnlyLibrariesAreTried) {
  const Result<Explored> made = explored(pretended_worker(), "m.db", false);
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_GT(made->summary.outcomes.at("failed"), 0);
  EXPECT_GT(made->summary.outcomes.at("measured"), 0);
  EXPECT_NE(made->summary.first_failure.find("there is no compiler on this machine"), std::string::npos);
}

TEST_F(ExploreTest, ACompilerErrorFailsItsKernels) {
  ASSERT_TRUE(write_file(path("compiler.sh"), "#!/bin/sh\necho 'internal compiler error' >&2\nexit 1\n"));
  ASSERT_EQ(chmod(path("compiler.sh").c_str(), 0755), 0);
  const Result<Explored> made = explored(pretended_worker());
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_GT(made->summary.outcomes.at("failed"), 0);
  EXPECT_NE(made->summary.first_failure.find("internal compiler error"), std::string::npos)
      << made->summary.first_failure;
}

// An error of the machine is not an outcome: otherwise the next exploration would never try again.
TEST_F(ExploreTest, AMachineErrorEndsTheRunAndIsNotStored) {
  const Compiler there = compiler_;
  compiler_.path = path("no such compiler");
  const Result<Explored> gone = explored(pretended_worker());
  ASSERT_FALSE(gone);
  EXPECT_NE(to_string(gone.error()).find("no such compiler"), std::string::npos) << to_string(gone.error());
  for (const MeasurementRow& row : rows_in()) EXPECT_EQ(row.outcome, Outcome::measured) << row.detail;
  compiler_ = there;
  const Result<Explored> after = explored(pretended_worker());
  ASSERT_TRUE(after) << to_string(after.error());
  EXPECT_EQ(after->summary.outcomes.size(), 1U) << after->summary.first_failure;
}

TEST_F(ExploreTest, TwoAtOnceShareADatabase) {
  const WorkerCommand command = pretended_worker();
  std::vector<pid_t> children;
  for (int k = 0; k < 2; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      const Result<Explored> made = explored(command);
      if (!made) fprintf(stderr, "%s\n", to_string(made.error()).c_str());
      _exit(made ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const size_t rows = rows_in().size();
  const Result<Explored> after = explored(command);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->summary.tried, 0);
  EXPECT_EQ(after->summary.known, static_cast<double>(rows));
}

TEST_F(ExploreTest, BaselinesAreMeasuredWithoutABudget) {
  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(0);
  settings_.baseline_grace = 60;
  const Result<Explored> made = explored(pretended_worker());
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_GT(made->summary.tried, 0);
  for (const MeasuredPartition& partition : made->measurements.partitions)
    EXPECT_FALSE(partition.candidates.empty()) << partition.name;
  // Compiles only what it tries, except for a few chosen before the compile time was known.
  const auto files = std::filesystem::directory_iterator(path("cache"));
  EXPECT_LT(std::distance(begin(files), end(files)), 2 * made->summary.tried + 2);
}

// On a GPU a product's batch has one stride. If the program's tensors would need two, some candidate is tried all the
// same, and the conversions to it.
TEST_F(ExploreTest, APartitionThatNeedsOtherLayoutsIsMeasuredWithoutABudget) {
  training_ = training_of(R"(
B = 2
H = 2
J = 3
K = 3
P = 4


def heads(x: float32[B, J, H, P], b: float32[H, P], y: float32[B, K, H, P], c: float32[H, P]):
    q = x + b
    k = y + c
    return softmax(np.einsum("bjhp,bkhp->bhjk", q, k))
)");
  enumerate_on_gpu();
  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(0);
  settings_.baseline_grace = 60;
  const Result<Explored> made = explored(pretended_worker());
  ASSERT_TRUE(made) << to_string(made.error());
  const Result<Selection> selection = select(made->measurements, SelectMethod::exact);
  EXPECT_TRUE(selection) << to_string(selection.error());
  EXPECT_FALSE(made->measurements.conversions.empty());

  // The same holds with the model's estimates only.
  settings_.measure = false;
  settings_.assume = true;
  const Result<Explored> assumed = explored({{"/no/worker"}, "", 0}, "empty.db");
  ASSERT_TRUE(assumed) << to_string(assumed.error());
  const Result<Selection> presumed = select(assumed->measurements, SelectMethod::exact);
  EXPECT_TRUE(presumed) << to_string(presumed.error());
}

// Partitions by themselves would try their fastest candidates first; what a selection uses comes before them.
TEST_F(ExploreTest, WantedCandidatesAreTriedNext) {
  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(600);
  settings_.batch = 1;
  size_t asked_before = 0;
  std::optional<Wanted> asked;
  settings_.wanted = [&](const Measurements& expected, double) {
    EXPECT_TRUE(verify(expected));
    Wanted wanted;
    if (asked) return wanted;
    // Each partition's last candidate, which has none of the layouts that are tried early, and a conversion.
    for (const MeasuredPartition& partition : expected.partitions)
      wanted.candidates.push_back({partition.name, partition.candidates.back().candidate});
    const auto conversion = std::find_if(expected.conversions.begin(), expected.conversions.end(),
                                         [](const MeasuredConversion& c) { return c.candidate.empty(); });
    EXPECT_NE(conversion, expected.conversions.end());
    const MeasuredTensor& tensor = expected.tensors[static_cast<size_t>(conversion->tensor)];
    wanted.conversions.push_back({tensor.name, conversion->from, conversion->to});
    asked_before = calls().size();
    asked = wanted;
    return wanted;
  };
  const Result<Explored> made = explored(pretended_worker());
  ASSERT_TRUE(made) << to_string(made.error());
  ASSERT_TRUE(asked);
  std::vector<std::string> next = calls();
  next.erase(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(asked_before));
  next.resize(std::min<size_t>(next.size(), 2 * asked->candidates.size() + 3));
  for (const Wanted::Candidate& config : asked->candidates) {
    const auto tells = [&](const std::string& call) { return call.find(config.candidate) != std::string::npos; };
    const std::vector<std::string> all = calls();
    const bool was_known = std::any_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(asked_before), tells);
    EXPECT_TRUE(was_known || std::any_of(next.begin(), next.end(), tells))
        << config.partition << ": " << config.candidate;
  }
  const auto converts = [](const std::string& call) { return call.find("\"conversion\":true") != std::string::npos; };
  EXPECT_TRUE(std::any_of(next.begin(), next.end(), converts));
}

// The best step of what is measured, and a lower bound of the step, with everything untried at its own lower bound.
StepProof proof_of(const Measurements& measured, const BoundedMeasurements& bounded, double) {
  StepProof proof;
  const Result<Selection> best = select(measured, SelectMethod::exact);
  const Result<Selection> fastest = select(bounded.measurements, SelectMethod::exact);
  if (!best || !fastest || !bounded.every_layout) return proof;
  proof.step = best->cost;
  proof.lower_bound = fastest->lower_bound;
  proof.with = cost_bounds(bounded.measurements, 1).with;
  for (const SelectedPartition& selected : fastest->partitions) {
    const MeasuredPartition& partition = bounded.measurements.partitions[static_cast<size_t>(selected.partition)];
    proof.wanted.candidates.push_back(
        {partition.name, partition.candidates[static_cast<size_t>(selected.candidate)].candidate});
  }
  for (const SelectedConversion& conversion : fastest->conversions) {
    for (const auto& [from, to] : conversion.chain())
      proof.wanted.conversions.push_back(
          {bounded.measurements.tensors[static_cast<size_t>(conversion.tensor)].name, from, to});
  }
  return proof;
}

// An exploration that leaves out what cannot be part of a faster step ends with the best of all steps.
TEST_F(ExploreTest, WhatCannotBeFasterIsNotTried) {
  const Result<Explored> all = explored(pretended_worker(), "all.db");
  ASSERT_TRUE(all) << to_string(all.error());
  const Result<Selection> best = select(all->measurements, SelectMethod::exact);
  ASSERT_TRUE(best);
  ASSERT_FALSE(all->summary.certificate);

  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(600);
  settings_.batch = 4;
  settings_.prove = proof_of;
  settings_.ceilings.cache_bytes = 1e6;  // every candidate takes 0.1 ms or more, and moves some hundred bytes
  const Result<Explored> made = explored(pretended_worker(), "some.db");
  ASSERT_TRUE(made) << to_string(made.error());
  ASSERT_TRUE(made->summary.certificate);
  EXPECT_TRUE(made->summary.certificate->is_certified());
  EXPECT_NEAR(made->summary.certificate->step, best->cost, Certificate::kFaster * best->cost);
  EXPECT_LT(made->summary.tried, all->summary.tried);
  EXPECT_TRUE(made->summary.is_complete());
}

// Without ceilings, everything could be faster until it is tried.
TEST_F(ExploreTest, WithoutCeilingsTheCertificateNeedsEveryCandidate) {
  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(600);
  settings_.prove = proof_of;
  const Result<Explored> made = explored(pretended_worker());
  ASSERT_TRUE(made) << to_string(made.error());
  ASSERT_TRUE(made->summary.certificate);
  EXPECT_TRUE(made->summary.certificate->is_certified());
  EXPECT_GE(made->summary.tried + made->summary.not_needed, made->summary.configurations);
}

TEST_F(ExploreTest, AnAssumedStepIsNotCertified) {
  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(0);
  settings_.prove = proof_of;
  const Result<Explored> made = explored(pretended_worker());
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_FALSE(made->summary.certificate && made->summary.certificate->is_certified());
}

// However little time there is, there is a plan: what was not tried has its expected time.
TEST_F(ExploreTest, ReturnsByTheDeadlineWithoutMeasurements) {
  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(0);
  const Result<Explored> made = explored(pretended_worker());
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_EQ(made->summary.tried, 0);
  EXPECT_GT(made->summary.assumed, 0);
  EXPECT_TRUE(calls().empty());
  EXPECT_TRUE(select(made->measurements, SelectMethod::exact));
  EXPECT_TRUE(rows_in().empty()) << "an assumption is no measurement";
  EXPECT_EQ(made->summary.points.size(), 1U);
}

// Kernels that hang cost a share of the time, and are tried again by a run that has more.
TEST_F(ExploreTest, KernelsThatHangCostAShareOfTheTime) {
  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(8);
  const double begin = now();
  const Result<Explored> made = explored(pretended_worker("  *'01 01 01 01; rows loops'*) sleep 600 ;;\n"));
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_LT(now() - begin, 10);
  EXPECT_GT(made->summary.outcomes.at("hung"), 0);
  EXPECT_GT(made->summary.outcomes.at("measured"), 0);
  for (const MeasurementRow& row : rows_in()) EXPECT_NE(row.outcome, Outcome::hung);
  const Result<Selection> selection = select(made->measurements, SelectMethod::exact);
  EXPECT_TRUE(selection) << to_string(selection.error());
}

// Another run may have more memory.
TEST_F(ExploreTest, WhatRanOutOfMemoryIsTriedAgain) {
  const Result<Explored> first = explored(pretended_worker("  *'rows loops'*) kill -KILL $$ ;;\n"));
  ASSERT_TRUE(first) << to_string(first.error());
  const double lost = first->summary.outcomes.at("out_of_memory");
  ASSERT_GT(lost, 0);
  const Result<Explored> again = explored(pretended_worker());
  ASSERT_TRUE(again) << to_string(again.error());
  EXPECT_EQ(again->summary.tried, lost);
  for (const MeasurementRow& row : rows_in()) EXPECT_EQ(row.outcome, Outcome::measured);
  EXPECT_EQ(explored(pretended_worker())->summary.tried, 0);
}

TEST_F(ExploreTest, TheCurveEndsWithTheBestStep) {
  settings_.select = [](const Measurements& so_far, double) {
    const Result<Selection> selection = select(so_far, SelectMethod::exact);
    return selection ? selection->cost : 0;
  };
  std::vector<ExploreProgress> told;
  settings_.progress = [&](const ExploreProgress& progress) { told.push_back(progress); };
  const Result<Explored> made = explored(pretended_worker());
  ASSERT_TRUE(made) << to_string(made.error());
  ASSERT_GT(made->summary.points.size(), 1U);
  for (size_t k = 1; k < made->summary.points.size(); ++k) {
    EXPECT_GE(made->summary.points[k].seconds, made->summary.points[k - 1].seconds);
    EXPECT_GE(made->summary.points[k].tried, made->summary.points[k - 1].tried);
  }
  const ExplorationPoint& last = made->summary.points.back();
  EXPECT_EQ(last.tried, made->summary.tried);
  EXPECT_GT(last.step, 0);
  EXPECT_LE(last.bound, last.step);
  EXPECT_EQ(told.back().tried, made->summary.tried);
  EXPECT_GT(told.back().passed, 0);
}

// Before anything of a program is measured, its expected times follow those of another size.
TEST_F(ExploreTest, MeasurementsOfAnotherSizeCorrectTheExpectedTimes) {
  const auto assumed_step = [&] {
    settings_.measure = false;
    settings_.assume = true;
    const Result<Explored> made = explored({{"/no/worker"}, "", 0});
    EXPECT_TRUE(made) << to_string(made.error());
    const Result<Selection> selection = select(made->measurements, SelectMethod::exact);
    EXPECT_TRUE(selection) << to_string(selection.error());
    return selection->cost / static_cast<double>(selection->partitions.size());
  };
  const TrainingGraph small = training_;
  training_ = training_of(kLarger);
  enumerate_again();
  EXPECT_LT(assumed_step(), 1e-5) << "by the model";

  training_ = small;
  enumerate_again();
  settings_.measure = true;
  settings_.assume = false;
  ASSERT_TRUE(explored(pretended_worker())) << "each takes 100 to 1000 microseconds";

  training_ = training_of(kLarger);
  enumerate_again();
  const double step = assumed_step();
  EXPECT_GT(step, 1e-4);
  EXPECT_LT(step, 1e-2);
}

// A larger program may find its tensors in other caches. What a smaller one measured is better than the model, until
// the larger one has measured something itself.
TEST_F(ExploreTest, MeasurementsFromOtherCachesCorrectTheExpectedTimes) {
  settings_.device = "a pretended machine; from cache";
  ASSERT_TRUE(explored(pretended_worker())) << "each takes 100 to 1000 microseconds";
  settings_.device = "a pretended machine; from memory";
  settings_.measure = false;
  settings_.assume = true;
  const auto assumed_step = [&] {
    const Result<Explored> made = explored({{"/no/worker"}, "", 0});
    EXPECT_TRUE(made) << to_string(made.error());
    const Result<Selection> selection = select(made->measurements, SelectMethod::exact);
    EXPECT_TRUE(selection) << to_string(selection.error());
    return selection->cost / static_cast<double>(selection->partitions.size());
  };
  EXPECT_LT(assumed_step(), 1e-5) << "by the model";
  settings_.similar_devices = {"a pretended machine; from memory", "a pretended machine; from cache"};
  const double similar = assumed_step();
  EXPECT_GT(similar, 1e-4);
  // The device's own measurements replace them.
  std::vector<MeasurementRow> rows = rows_in();
  for (MeasurementRow& row : rows) {
    row.key.device = settings_.device;
    row.key.partition += " of another program";
    for (double* seconds : {&row.seconds, &row.low, &row.high}) *seconds *= 100;
  }
  Result<Database> database = Database::open(path("m.db"));
  ASSERT_TRUE(database);
  ASSERT_TRUE(database->put(rows));
  EXPECT_GT(assumed_step(), 10 * similar);
}

// Candidates that are not listed at first are tried too, and a later run recalls them.
TEST_F(ExploreTest, CandidatesThatAreNotListedAreTriedAndRecalled) {
  const Result<Explored> all = explored(pretended_worker(), "all.db");
  ASSERT_TRUE(all) << to_string(all.error());
  EnumerateOptions lazy;
  lazy.libraries = {GemmLibrary::openblas};
  lazy.most = 10;
  lazy.most_combinations = 5;
  Result<Candidates> some = enumerate(training_, fuse(training_), lazy);
  ASSERT_TRUE(some);
  candidates_ = std::move(*some);
  CandidateSources sources(training_.graph, candidates_, lazy);
  settings_.more = [&](size_t partition, size_t most) { return sources.next(partition, most); };
  settings_.configs_under = [&](const Partition& partition, const std::vector<int>& layouts) {
    return configs_under(training_.graph, candidates_.domains, lazy, partition, layouts);
  };
  const Result<Explored> lazily = explored(pretended_worker());
  ASSERT_TRUE(lazily) << to_string(lazily.error());
  EXPECT_EQ(lazily->summary.tried, all->summary.tried);
  EXPECT_FALSE(lazily->summary.estimated);
  EXPECT_EQ(measurements_json(lazily->measurements), measurements_json(all->measurements));

  settings_.measure = false;
  settings_.more = nullptr;
  const Result<Explored> recalled = explored({{"/no/worker"}, "", 0});
  ASSERT_TRUE(recalled) << to_string(recalled.error());
  EXPECT_EQ(measurements_json(recalled->measurements), measurements_json(all->measurements));
}

// Every candidate is counted exactly once.
void expect_whole(const Exploration& whole) {
  EXPECT_EQ(whole.tried + whole.known + whole.not_needed, whole.configurations + whole.conversions);
  EXPECT_TRUE(whole.is_whole());
}

// One candidate per timing class is tried, and then others that a selection uses, until it uses only tried ones.
TEST_F(ExploreTest, OnePerTimingClassIsTriedAndWhatASelectionUses) {
  const Result<Explored> all = explored(pretended_worker(), "all.db");
  ASSERT_TRUE(all) << to_string(all.error());
  settings_.timing_class = [](const Partition&, const Candidate& candidate) {
    return std::to_string(candidate.layouts.empty() ? 0 : candidate.layouts.back());
  };
  const Result<Explored> some = explored(pretended_worker(), "some.db");
  ASSERT_TRUE(some) << to_string(some.error());
  EXPECT_GT(some->summary.not_needed, 0);
  EXPECT_LT(some->summary.tried, all->summary.tried);
  EXPECT_GT(all->summary.not_needed, 0) << "partitions are equal";
  expect_whole(all->summary);
  expect_whole(some->summary);

  size_t selections = 0;
  settings_.wanted = [&](const Measurements& expected, double) {
    ++selections;
    Wanted wanted;
    for (const MeasuredPartition& partition : expected.partitions)
      wanted.candidates.push_back({partition.name, partition.candidates.back().candidate});
    return wanted;
  };
  const Result<Explored> more = explored(pretended_worker(), "some.db");
  ASSERT_TRUE(more) << to_string(more.error());
  EXPECT_GT(selections, 1U) << "a last selection after the last trial";
  EXPECT_GT(more->summary.tried, 0);
  EXPECT_EQ(more->summary.known, some->summary.tried);
  EXPECT_EQ(more->summary.not_needed, some->summary.not_needed - more->summary.tried);
  const Result<Explored> again = explored(pretended_worker(), "some.db");
  ASSERT_TRUE(again) << to_string(again.error());
  EXPECT_EQ(again->summary.tried, 0);
  expect_whole(more->summary);
  expect_whole(again->summary);
}

// A GPU's shapes are candidates only on demand. A second run recalls them and the conversions.
TEST_F(ExploreTest, WantedCandidatesAreRecalled) {
  const EnumerateOptions options = enumerate_on_gpu();
  settings_.exhaustive = false;
  settings_.deadline = Deadline::after(600);
  settings_.refinements = [&](const Partition& partition, const Candidate& candidate) {
    if (std::holds_alternative<KernelConfig>(candidate.config))
      return configs_under(training_.graph, candidates_.domains, options, partition, candidate.layouts);
    Candidate other = candidate;
    std::get<GemmConfig>(other.config).algorithm.id = 7;
    return std::vector<Candidate>{other};
  };
  settings_.wanted = [](const Measurements& expected, double) {
    Wanted wanted;
    const Result<Selection> selection = select(expected, SelectMethod::exact);
    EXPECT_TRUE(selection);
    for (const SelectedPartition& selected : selection->partitions) {
      const MeasuredPartition& partition = expected.partitions[static_cast<size_t>(selected.partition)];
      wanted.candidates.push_back(
          {partition.name, partition.candidates[static_cast<size_t>(selected.candidate)].candidate});
    }
    for (const MeasuredConversion& conversion : expected.conversions)
      wanted.conversions.push_back(
          {expected.tensors[static_cast<size_t>(conversion.tensor)].name, conversion.from, conversion.to});
    return wanted;
  };
  const Result<Explored> first = explored(pretended_worker());
  ASSERT_TRUE(first) << to_string(first.error());
  EXPECT_GT(first->summary.tried, 0);
  settings_.measure = false;
  const Result<Explored> again = explored({{"/no/worker"}, "", 0});
  ASSERT_TRUE(again) << to_string(again.error());
  EXPECT_EQ(again->summary.known, static_cast<double>(rows_in().size()));
  EXPECT_EQ(measurements_json(again->measurements), measurements_json(first->measurements));
}

// The last line of a worker's standard error says why it ended.
TEST_F(ExploreTest, ACrashReportsTheWorkersLastLine) {
  const Result<Explored> made = explored(pretended_worker("  *) echo 'the GPU is gone' >&2; exit 70 ;;\n"));
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_NE(made->summary.first_failure.find("exited with code 70: the GPU is gone"), std::string::npos)
      << made->summary.first_failure;
}

}  // namespace
}  // namespace millrace
