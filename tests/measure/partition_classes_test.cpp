// Trials and conversions of a small program, and the Measurements made from their outcomes. Over 500 lines, because the
// cases share the program.
#include "measure/partition_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "candidates/enumerate.h"
#include "fusion/fusion_text.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "measure/conversion_trials.h"
#include "measure/measurements_json.h"
#include "measure/measurements_maker.h"
#include "measure/unpromising.h"
#include "measure/verify.h"

namespace millrace {
namespace {

// Two equal products of equal tensors, with an operator in between.
constexpr const char* kClassedProgram = R"(
B = 2
J = 3


def layer(x: float32[B, J], w: float32[J, J], v: float32[J, J]):
    y = relu(np.einsum("bj,jk->bk", x, w))
    return np.einsum("bj,jk->bk", y, v)
)";

class PartitionClassesTest : public testing::Test {
 protected:
  void SetUp() override {
    training_ = training_of(kClassedProgram);
    EnumerateOptions options;
    options.libraries = {GemmLibrary::openblas};
    Result<Candidates> found = enumerate(training_, fuse(training_), options);
    ASSERT_TRUE(found);
    candidates_ = std::move(*found);
    classes_.emplace(training_.graph, candidates_);
  }

  TensorId tensor_of(const std::string& name) const {
    for (size_t k = 0; k < training_.graph.tensors.size(); ++k) {
      if (training_.graph.tensors[k].name == name) return TensorId(k);
    }
    ADD_FAILURE() << name;
    return TensorId();
  }

  ConversionTrials conversion_trials(size_t most) {
    const auto configs = [this](TensorId tensor, int from, int to) {
      return conversions(training_.graph, candidates_.domains[tensor.at()], tensor, from, to, 1);
    };
    return {training_.graph, candidates_, configs, most, *classes_};
  }

  static MeasurementRow row_of(Outcome outcome, double seconds, const std::string& detail = "") {
    MeasurementRow row;
    row.outcome = outcome;
    row.seconds = seconds;
    row.detail = detail;
    return row;
  }

  TrainingGraph training_;
  Candidates candidates_;
  std::optional<PartitionClasses> classes_;
};

TEST_F(PartitionClassesTest, EqualPartitionsShareTheirTrials) {
  size_t partitions = 0;
  for (const PartitionClass& each : classes_->all()) partitions += each.partitions;
  EXPECT_EQ(partitions, candidates_.partitions.size());
  EXPECT_LT(classes_->all().size(), partitions) << "the two products are equal";
  for (size_t number = 0; number < candidates_.partitions.size(); ++number) {
    const PartitionCandidates& each = candidates_.partitions[number];
    for (size_t k = 0; k < each.candidates.size(); ++k) {
      const std::string text = print_candidate(candidates_.domains, each.partition, each.candidates[k]);
      EXPECT_EQ(classes_->trial(classes_->trial_of_candidate(number, k)).text, text);
      const std::optional<TrialId> found = classes_->find(number, text);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->number, classes_->trial_of_candidate(number, k).number);
    }
    EXPECT_FALSE(classes_->find(number, "no candidate"));
  }
}

TEST_F(PartitionClassesTest, AMeasurementChangesTheExpectationOfAll) {
  const TrialId id = classes_->trial_of_candidate(0, 0);
  const Trial& trial = classes_->trial(id);
  const PartitionClass& each = classes_->class_of(0);
  const double estimate = trial.candidate->estimate;
  EXPECT_EQ(classes_->expectation(each).seconds(trial.kind, estimate), estimate);
  EXPECT_EQ(each.best, kNotMeasured);
  classes_->note(id, row_of(Outcome::measured, 3 * estimate));
  EXPECT_TRUE(trial.known);
  EXPECT_EQ(each.best, 3 * estimate);
  EXPECT_DOUBLE_EQ(classes_->expectation(each).seconds(trial.kind, estimate), 3 * estimate);
  // Another partition's candidates of this family follow, too, until they have measurements of their own.
  for (const PartitionClass& other : classes_->all()) {
    for (const Trial& one : other.trials) {
      if (one.kind.family != trial.kind.family || &other == &each) continue;
      EXPECT_DOUBLE_EQ(classes_->expectation(other).seconds(one.kind, 1), 3);
    }
  }
}

TEST_F(PartitionClassesTest, AFailureGivesNoTime) {
  const TrialId id = classes_->trial_of_candidate(0, 0);
  classes_->note(id, row_of(Outcome::wrong, 0, "y[0] is 1"));
  classes_->note(classes_->trial_of_candidate(0, 1), row_of(Outcome::crashed, 0, "signal 11"));
  EXPECT_TRUE(classes_->trial(id).known);
  EXPECT_EQ(classes_->class_of(0).best, kNotMeasured);
  EXPECT_TRUE(classes_->class_of(0).ratios.empty());
  EXPECT_EQ(classes_->outcomes(), (std::map<std::string, double>{{"wrong", 1}, {"crashed", 1}}));
  EXPECT_NE(classes_->first_failure().find("y[0] is 1"), std::string::npos) << classes_->first_failure();
}

TEST_F(PartitionClassesTest, EveryPartitionHasBaselinesThatMayBeAssumed) {
  for (const PartitionClass& each : classes_->all()) {
    EXPECT_TRUE(std::any_of(each.trials.begin(), each.trials.end(), [](const Trial& trial) { return trial.baseline; }))
        << each.text;
  }
  EXPECT_TRUE(classes_->has_baselines_left());
  classes_->assume();
  EXPECT_FALSE(classes_->has_baselines_left());
  EXPECT_TRUE(classes_->outcomes().empty()) << "assuming is not an outcome";
  for (const PartitionClass& each : classes_->all()) EXPECT_FALSE(each.rows.empty()) << each.text;
}

TEST_F(PartitionClassesTest, OnePerTimingClassIsTriedUnlessOthersAreWanted) {
  const auto timing_class = [](const Partition&, const Candidate& candidate) {  // by the layout of the first tensor
    return std::to_string(candidate.layouts.empty() ? 0 : candidate.layouts.front());
  };
  const auto tried = [](PartitionClasses& classes) {
    size_t count = 0;
    for (size_t k = 0; k < classes.all().size(); ++k) {
      while (const std::optional<size_t> next = classes.next_of(k)) {
        classes.choose({k, *next});
        ++count;
      }
    }
    return count;
  };
  PartitionClasses all(training_.graph, candidates_, timing_class, SearchMode::within_budget);
  EXPECT_EQ(all.represented(), 0);
  const size_t every = tried(all);
  PartitionClasses classes(training_.graph, candidates_, timing_class, SearchMode::exhaustive);
  const double others = classes.represented();
  EXPECT_GT(others, 0);
  std::set<std::pair<size_t, int>> kinds;
  size_t baselines = 0;  // are tried even if another represents them
  for (size_t k = 0; k < classes.all().size(); ++k) {
    for (const Trial& trial : classes.all()[k].trials) {
      kinds.emplace(k, trial.kind.timing_class);
      baselines += trial.baseline && trial.represented ? 1 : 0;
    }
  }
  EXPECT_EQ(tried(classes), kinds.size() + baselines);
  EXPECT_EQ(every, kinds.size() + static_cast<size_t>(others));

  for (size_t k = 0; k < classes.all().size(); ++k) {
    const std::vector<Trial>& trials = classes.all()[k].trials;
    const auto other =
        std::find_if(trials.begin(), trials.end(), [](const Trial& t) { return t.represented && t.is_open(); });
    if (other == trials.end()) continue;
    const TrialId id{k, static_cast<size_t>(other - trials.begin())};
    EXPECT_TRUE(classes.want(id));
    EXPECT_EQ(classes.next_of(k), id.number);
    // It is expected to take as long as the one that represents it.
    const auto like = std::find_if(trials.begin(), trials.end(), [&](const Trial& t) {
      return t.kind.timing_class == other->kind.timing_class && !t.represented;
    });
    ASSERT_NE(like, trials.end());
    const double estimate = like->candidate->estimate;
    classes.note({k, static_cast<size_t>(like - trials.begin())}, row_of(Outcome::measured, 5 * estimate));
    EXPECT_DOUBLE_EQ(classes.expectation(classes.all()[k]).seconds(other->kind, 1), 5);
    classes.note(id, row_of(Outcome::measured, 1));
    EXPECT_FALSE(classes.want(id)) << "it is known";
    EXPECT_EQ(classes.timing_class_spreads(), std::vector<double>{1 / (5 * estimate)});
    EXPECT_EQ(classes.represented(), others - 1);
    return;
  }
  FAIL() << "no trial is represented";
}

TEST_F(PartitionClassesTest, AfterAFailureAnotherOfItsTimingClassIsTried) {
  PartitionClasses classes(
      training_.graph, candidates_, [](const Partition&, const Candidate&) { return "all"; }, SearchMode::exhaustive);
  const auto largest = std::max_element(
      classes.all().begin(), classes.all().end(),
      [](const PartitionClass& l, const PartitionClass& r) { return l.trials.size() < r.trials.size(); });
  const PartitionClass& each = *largest;
  const auto number = static_cast<size_t>(largest - classes.all().begin());
  ASSERT_GT(each.trials.size(), 3U);
  std::set<size_t> tried;
  for (int turn = 0; turn < 3; ++turn) {
    while (const std::optional<size_t> next = classes.next_of(number)) {
      tried.insert(*next);
      classes.choose({number, *next});
      classes.note({number, *next}, row_of(turn < 2 ? Outcome::wrong : Outcome::measured, 1e-3));
      if (turn < 2) break;
    }
  }
  // Baselines are always tried; of the others, two that failed and one that did not.
  const auto baselines = static_cast<size_t>(
      std::count_if(each.trials.begin(), each.trials.end(), [](const Trial& trial) { return trial.baseline; }));
  EXPECT_GE(tried.size(), 3U);
  EXPECT_LE(tried.size(), 3 + baselines);
  EXPECT_LT(tried.size(), each.trials.size());
  double left = 0;
  for (const PartitionClass& all : classes.all())
    left += static_cast<double>(std::count_if(all.trials.begin(), all.trials.end(),
                                              [](const Trial& trial) { return trial.represented && !trial.known; }));
  EXPECT_EQ(classes.represented(), left);
}

TEST_F(PartitionClassesTest, ALateCandidateIsAddedOnce) {
  const auto product =
      std::find_if(candidates_.partitions.begin(), candidates_.partitions.end(), [](const PartitionCandidates& each) {
        return std::holds_alternative<GemmConfig>(each.candidates.front().config);
      });
  ASSERT_NE(product, candidates_.partitions.end());
  const TrialId id = classes_->trial_of_candidate(static_cast<size_t>(product - candidates_.partitions.begin()), 0);
  const std::vector<Trial>& trials = classes_->all()[id.partition_class].trials;
  const size_t before = trials.size();
  const double configurations = classes_->configurations();
  classes_->add_late(id.partition_class, product->partition, product->candidates.front());
  EXPECT_EQ(trials.size(), before) << "it exists already";
  Candidate other = product->candidates.front();
  std::get<GemmConfig>(other.config).library = GemmLibrary::cublaslt;
  std::get<GemmConfig>(other.config).algorithm.id = 7;
  classes_->add_late(id.partition_class, product->partition, other);
  classes_->add_late(id.partition_class, product->partition, other);
  EXPECT_EQ(trials.size(), before + 1);
  EXPECT_EQ(classes_->configurations(), configurations + 1);
  EXPECT_FALSE(trials.back().baseline);
  while (const std::optional<size_t> next = classes_->next_of(id.partition_class)) {
    if (*next == before) return;
    classes_->choose({id.partition_class, *next});
  }
  FAIL() << "it is never next";
}

// Baselines, then wanted trials, then by expected time; a trial that was left comes again.
TEST_F(PartitionClassesTest, NextDependsOnChosenLeftAndAddedTrials) {
  for (size_t k = 0; k < classes_->all().size(); ++k) {
    const PartitionClass& each = classes_->all()[k];
    std::vector<size_t> order;
    while (const std::optional<size_t> next = classes_->next_of(k)) {
      classes_->choose({k, *next});
      order.push_back(*next);
    }
    EXPECT_EQ(order.size(), each.trials.size());
    EXPECT_TRUE(each.trials[order.front()].baseline);
    for (size_t at = 1; at < order.size(); ++at) {
      const Trial& before = each.trials[order[at - 1]];
      const Trial& trial = each.trials[order[at]];
      EXPECT_LE(trial.baseline, before.baseline);
      if (before.baseline) continue;
      Expectation expectation = classes_->expectation(each);
      EXPECT_LE(expectation.seconds(before.kind, before.candidate->estimate),
                expectation.seconds(trial.kind, trial.candidate->estimate));
    }
    const TrialId last{k, order.back()};
    classes_->leave(last);
    EXPECT_EQ(classes_->next_of(k), last.number);
    if (each.trials.size() < 2 || each.trials[last.number].baseline) continue;
    const auto other = std::find_if(order.begin(), order.end(), [&](size_t n) { return !each.trials[n].baseline; });
    classes_->leave({k, *other});
    classes_->want(last);
    EXPECT_EQ(classes_->next_of(k), last.number) << "it is wanted";
    classes_->note(last, row_of(Outcome::measured, 1e-6));
    if (*other != last.number) {
      EXPECT_EQ(classes_->next_of(k), *other);
    } else {
      EXPECT_FALSE(classes_->next_of(k));
    }
  }
}

TEST_F(PartitionClassesTest, EqualTensorsShareConversions) {
  ConversionTrials conversions = conversion_trials(2);
  const TensorId w = tensor_of("w");
  const TensorId v = tensor_of("v");
  conversions.add(w, 0, 1);
  std::set<TensorId> tensors;
  for (const ConversionTrial& each : conversions.added()) {
    tensors.insert(each.tensor);
    EXPECT_EQ(each.from, 0);
    EXPECT_EQ(each.to, 1);
    EXPECT_TRUE(classes_->trial(each.trial).converted.valid());
  }
  EXPECT_TRUE(tensors.contains(w));
  EXPECT_TRUE(tensors.contains(v));
  EXPECT_LE(conversions.added().size(), 2 * tensors.size());
  EXPECT_GE(conversions.configurations(), static_cast<double>(conversions.added().size()));
  // The same trials, each once.
  const size_t added = conversions.added().size();
  std::set<std::pair<size_t, size_t>> trials;
  for (const ConversionTrial& each : conversions.added()) trials.emplace(each.trial.partition_class, each.trial.number);
  EXPECT_LT(trials.size(), added);
  conversions.add(v, 0, 1);
  EXPECT_EQ(conversions.added().size(), added);
}

TEST_F(PartitionClassesTest, ConversionsIncludePinnedLayouts) {
  const ConversionTrials conversions = conversion_trials(2);
  const TensorId w = tensor_of("w");
  const int pinned = candidates_.domains[w.at()].pinned;
  ASSERT_EQ(pinned, 0);
  using Pairs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(conversions.between(w, {}, {0, 1}), (Pairs{{0, 1}}));
  EXPECT_EQ(conversions.between(w, {1}, {}), (Pairs{{1, 0}}));
  const auto free = std::find_if(candidates_.domains.begin(), candidates_.domains.end(),
                                 [](const TensorDomain& each) { return each.pinned < 0 && each.layouts.size() > 1; });
  ASSERT_NE(free, candidates_.domains.end());
  const TensorId between(static_cast<size_t>(free - candidates_.domains.begin()));
  EXPECT_EQ(conversions.between(between, {0, 1}, {0, 1}), (Pairs{{0, 1}, {1, 0}}));
  EXPECT_TRUE(conversions.between(between, {}, {0, 1}).empty());
}

// A maker caches only what does not change between two calls.
TEST_F(PartitionClassesTest, MeasurementsFromOutcomes) {
  ConversionTrials conversions = conversion_trials(2);
  MeasurementsMaker maker(training_.graph, candidates_, *classes_, conversions);
  classes_->assume();
  const Measurements before = maker.measured();
  EXPECT_TRUE(verify(before));
  EXPECT_TRUE(before.conversions.empty());
  double tried = 1;
  for (size_t number = 0; number < candidates_.partitions.size(); ++number) {
    for (size_t k = 0; k < candidates_.partitions[number].candidates.size(); k += 2) {
      const TrialId id = classes_->trial_of_candidate(number, k);
      if (!classes_->trial(id).known) classes_->note(id, row_of(Outcome::measured, 1e-9 / tried++));
    }
  }
  conversions.add(tensor_of("w"), 0, 1);
  classes_->note(conversions.added().front().trial, row_of(Outcome::measured, 1e-6));
  const std::string after = measurements_json(maker.measured());
  EXPECT_NE(after, measurements_json(before));
  MeasurementsMaker fresh(training_.graph, candidates_, *classes_, conversions);
  EXPECT_EQ(after, measurements_json(fresh.measured()));
  EXPECT_EQ(measurements_json(maker.expected()), measurements_json(fresh.expected()));
}

TEST_F(PartitionClassesTest, ExpectedTimesFillInForUnmeasured) {
  ConversionTrials conversions = conversion_trials(2);
  MeasurementsMaker maker(training_.graph, candidates_, *classes_, conversions);
  classes_->assume();
  const Measurements measured = maker.measured();
  const Measurements expected = maker.expected();
  EXPECT_TRUE(verify(expected));
  EXPECT_GT(expected.conversions.size(), measured.conversions.size());
  for (const MeasuredPartition& partition : measured.partitions) {
    const auto same = std::find_if(expected.partitions.begin(), expected.partitions.end(),
                                   [&](const MeasuredPartition& each) { return each.name == partition.name; });
    ASSERT_NE(same, expected.partitions.end()) << partition.name;
    std::set<std::vector<int>> layouts;
    for (const MeasuredCandidate& config : same->candidates)
      EXPECT_TRUE(layouts.insert(config.layouts).second) << "two candidates: " << partition.name;
    ASSERT_GE(same->candidates.size(), partition.candidates.size());
    for (size_t k = 0; k < partition.candidates.size(); ++k)
      EXPECT_EQ(same->candidates[k].candidate, partition.candidates[k].candidate);
  }
}

// An attention on a GPU: fused, or with its scores in memory.
constexpr const char* kAttention = R"(
B = 2
J = 512
K = 512
P = 64


def layer(q: float16[B, J, P], k: float16[B, K, P], v: float16[B, K, P]):
    weights = softmax(np.einsum("bjp,bkp->bjk", q, k) / np.sqrt(P))
    return np.einsum("bjk,bkp->bjp", weights, v)
)";

class AttentionClasses : public testing::Test {
 protected:
  void SetUp() override {
    const Recomputed made = add_row_statistics(save_predicates(training_of(kAttention), true));
    training_ = made.training;
    EnumerateOptions options;
    options.target = gpu_target();
    options.target.gpu->cudnn = true;
    Result<Candidates> found = enumerate(training_, made.fused, options);
    ASSERT_TRUE(found) << to_string(found.error());
    candidates_ = std::move(*found);
    classes_.emplace(training_.graph, candidates_);
  }

  static bool is_attention(const Trial& trial) { return trial.partition->kind == PartitionKind::attention; }
  static bool uses_wgmma(const Trial& trial) {
    const auto* const config = std::get_if<AttentionConfig>(&trial.candidate->config);
    return config != nullptr && config->wgmma;
  }

  static bool is_by_cudnn(const Trial& trial) { return std::holds_alternative<CudnnConfig>(trial.candidate->config); }

  TrainingGraph training_;
  Candidates candidates_;
  std::optional<PartitionClasses> classes_;
};

TEST_F(AttentionClasses, TheMostPromisingAlternativeComesFirst) {
  size_t first = 0;
  for (const PartitionClass& each : classes_->all()) {
    EXPECT_EQ(each.comes_first, is_attention(each.trials.front())) << each.text;
    first += each.comes_first ? 1 : 0;
  }
  EXPECT_EQ(first, 2U) << "forward and backward";
}

// The model expects the same of both, but wgmma can be twice as fast.
TEST_F(AttentionClasses, WgmmaAndSpecializedWarpsHaveBaselinesOfTheirOwn) {
  for (const PartitionClass& each : classes_->all()) {
    if (!is_attention(each.trials.front())) continue;
    std::multiset<std::string> families;
    for (const Trial& trial : each.trials) {
      if (!trial.baseline || is_by_cudnn(trial)) continue;
      const auto& config = std::get<AttentionConfig>(trial.candidate->config);
      families.insert(config.specialized ? "specialized" : config.wgmma ? "wgmma" : "mma");
    }
    EXPECT_EQ(families, (std::multiset<std::string>{"mma", "specialized", "wgmma"}));
  }
}

// Once an alternative is measured, partitions that only clearly slower alternatives use are unpromising. Deferred
// classes are not tried and have no baselines left, until a selection wants one of their trials, or all deferrals end.
TEST_F(AttentionClasses, ClearlySlowerAlternativesAreUnpromising) {
  EXPECT_TRUE(unpromising_classes(candidates_, *classes_).empty()) << "nothing is measured";
  const auto note_attentions = [&](double seconds) {
    for (size_t k = 0; k < classes_->all().size(); ++k) {
      const PartitionClass& each = classes_->all()[k];
      if (!is_attention(each.trials.front())) continue;
      MeasurementRow row;
      row.outcome = Outcome::measured;
      row.seconds = seconds;
      classes_->note({k, 0}, row);
    }
  };
  note_attentions(1);
  EXPECT_TRUE(unpromising_classes(candidates_, *classes_).empty()) << "the others are estimated to be faster";
  note_attentions(1e-9);
  const std::vector<size_t> found = unpromising_classes(candidates_, *classes_);
  EXPECT_FALSE(found.empty());
  for (const size_t each : found) {
    EXPECT_FALSE(is_attention(classes_->all()[each].trials.front()));
    EXPECT_TRUE(classes_->next_of(each));
    classes_->defer(each);
    EXPECT_FALSE(classes_->next_of(each));
  }
  EXPECT_TRUE(classes_->want({found.front(), 0}));
  EXPECT_TRUE(classes_->next_of(found.front()));
  EXPECT_EQ(unpromising_classes(candidates_, *classes_).size(), found.size() - 1) << "one is wanted";
  EXPECT_TRUE(classes_->resume());
  EXPECT_FALSE(classes_->resume());
  for (const size_t each : found) EXPECT_TRUE(classes_->next_of(each));
}

TEST_F(AttentionClasses, CudnnHasABaselineOfItsOwn) {
  for (const PartitionClass& each : classes_->all()) {
    const auto baselines = std::count_if(each.trials.begin(), each.trials.end(),
                                         [](const Trial& trial) { return trial.baseline && is_by_cudnn(trial); });
    EXPECT_EQ(baselines, is_attention(each.trials.front()) ? 1 : 0) << each.text;
  }
}

TEST_F(AttentionClasses, WgmmaAndCudnnAreNotUsedUnchecked) {
  classes_->assume();
  EXPECT_FALSE(classes_->has_baselines_left());
  for (const PartitionClass& each : classes_->all()) {
    EXPECT_FALSE(each.rows.empty()) << "a plan needs a candidate";
    for (const Trial& trial : each.trials)
      EXPECT_FALSE(trial.known && (uses_wgmma(trial) || is_by_cudnn(trial))) << trial.text;
  }
}

// With 4,096 keys, the reference data of backward took longer than its trial was given, so there was no plan.
TEST_F(AttentionClasses, AnUnfinishedTrialIsUsedIfThereIsNoOther) {
  for (size_t k = 0; k < classes_->all().size(); ++k) {
    const PartitionClass& each = classes_->all()[k];
    if (!is_attention(each.trials.front())) continue;
    const auto baseline = std::find_if(each.trials.begin(), each.trials.end(),
                                       [](const Trial& trial) { return trial.baseline && !uses_wgmma(trial); });
    MeasurementRow row;
    row.outcome = Outcome::hung;
    classes_->note_unfinished({k, static_cast<size_t>(baseline - each.trials.begin())}, row);
    EXPECT_EQ(each.rows.at(baseline->text).outcome, Outcome::hung);
    classes_->assume();
    EXPECT_EQ(each.rows.at(baseline->text).outcome, Outcome::measured);
  }
}

}  // namespace
}  // namespace millrace
