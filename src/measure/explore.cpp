#include "measure/explore.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "measure/background.h"
#include "measure/certifier.h"
#include "measure/compile_cost.h"
#include "measure/conversion_trials.h"
#include "measure/measurements_maker.h"
#include "measure/partition_classes.h"
#include "measure/recall.h"
#include "measure/refinements.h"
#include "measure/step_watch.h"
#include "measure/trial_batch.h"
#include "measure/trial_log.h"
#include "measure/trial_times.h"
#include "measure/unpromising.h"
#include "measure/wanted_trials.h"

namespace millrace {
namespace {

constexpr double kConversionShare = 0.2;     // of the time until the deadline
constexpr size_t kConvertedLayouts = 3;      // layouts of the fastest candidates of each writer and reader of a tensor
constexpr size_t kConversionCandidates = 2;  // per pair of layouts, unless exhaustive
// The worth of a trial is in seconds. The following kinds come first, in this order, whatever the others are worth.
constexpr double kPromisingBaselineWorth = 1e32;  // the first of a partition in a most promising alternative
constexpr double kFirstBaselineWorth = 1e24;      // the first of another partition
constexpr double kBaselineWorth = 1e16;
constexpr double kWantedWorth = 1e8;
constexpr int kMostHangs = 2;  // trials of a class that did not end, before the class is given up
// Batches compiled while one is measured, since each waits for its slowest kernel. An exhaustive run tries everything
// anyway, so it can compile further ahead without worse choices.
constexpr size_t kBatchesAhead = 8, kBatchesAheadOfAll = 64;

SearchMode mode_of(const ExploreSettings& settings) {
  return settings.exhaustive ? SearchMode::exhaustive : SearchMode::within_budget;
}

class Explorer {
 public:
  Explorer(const Graph& graph, const Candidates& candidates, const ExploreSettings& settings,
           const KernelMaker* kernels, Database& database, Worker& worker)
      : graph_(graph),
        candidates_(candidates),
        settings_(settings),
        kernels_(kernels),
        database_(database),
        worker_(worker),
        classes_(graph, candidates, settings.timing_class, mode_of(settings), settings.more),
        conversions_(graph, candidates, settings.conversions,
                     settings.exhaustive ? std::numeric_limits<size_t>::max() : kConversionCandidates, classes_),
        refinements_(candidates.domains, settings.refinements, mode_of(settings), classes_),
        recall_(database, {settings.device, settings.similar_devices}, kernels, settings.configs_under),
        measurements_(graph, candidates, classes_, conversions_),
        background_(settings.compile_ahead ? Background::on_a_thread : Background::when_requested),
        compiler_(classes_, kernels),
        wanted_({graph, candidates, classes_, conversions_, refinements_, measurements_}, settings, background_),
        certifier_({graph, candidates, classes_, conversions_, refinements_, measurements_}, settings),
        watch_(candidates, settings, classes_, measurements_, background_),
        times_(settings.hang_seconds, settings.compilers),
        last_(settings.deadline.later_by(settings.baseline_grace)) {}

  Result<Explored> run() {
    if (settings_.measure) (void)worker_.start();  // reads the program meanwhile; an error shows when it is needed
    if (Result<Done> learnt = recall_.lessons(classes_); !learnt) return learnt.error();
    if (Result<Done> known = recall_.conversions(candidates_.domains, conversions_); !known) return known.error();
    if (Result<Done> tried = explore_until(settings_.deadline.share(1 - kConversionShare)); !tried)
      return tried.error();
    find_conversions();
    is_last_ = true;
    if (Result<Done> tried = explore_until(settings_.deadline); !tried) return tried.error();
    return Explored{measurements_.measured(), summary()};
  }

 private:
  // Recalls known outcomes, then tries candidates.
  Result<Done> explore_until(const Deadline& end) {
    if (Result<Done> known = recall_.outcomes(candidates_.domains, refinements_, classes_); !known) return known;
    if (Result<Done> tried = try_all(end); !tried) return tried;
    if (settings_.assume || settings_.measure) classes_.assume();
    return Done{};
  }

  Exploration summary() {
    Exploration made;
    made.configurations = classes_.configurations();
    made.estimated = classes_.is_estimated();
    made.conversions = conversions_.configurations();
    made.tried = tried_;
    made.known = recall_.known();
    made.not_needed = classes_.not_needed();
    made.timing_class_spreads = classes_.timing_class_spreads();
    made.outcomes = classes_.outcomes();
    made.first_failure = classes_.first_failure();
    for (size_t number = 0; number < candidates_.partitions.size(); ++number)
      made.partitions.push_back(measurements_.tried(number));
    made.seconds = watch_.seconds();
    made.assumed = classes_.assumed();
    made.points = watch_.finish(tried_);
    made.certificate = certifier_.certificate(watch_.best());
    return made;
  }

  // --- Conversions, between the layouts that fast candidates write and read ---

  enum class Use { read, written };

  // The layouts in which the fastest candidates write a tensor, or read it.
  std::set<int> promising(TensorId tensor, Use use) {
    const bool written = use == Use::written;
    std::set<int> layouts;
    for (size_t number = 0; number < candidates_.partitions.size(); ++number) {
      const Partition& partition = candidates_.partitions[number].partition;
      const std::vector<TensorId>& list = written ? partition.writes : partition.reads;
      const auto at = std::find(list.begin(), list.end(), tensor);
      if (at == list.end()) continue;
      const auto position = static_cast<size_t>(at - list.begin()) + (written ? partition.reads.size() : 0);
      std::vector<std::pair<double, int>> fastest;
      for (const MeasuredCandidate& candidate : measurements_.fastest_candidates(number))
        fastest.emplace_back(candidate.seconds, candidate.layouts[position]);
      std::sort(fastest.begin(), fastest.end());
      std::set<int> taken;
      for (const auto& [seconds, layout] : fastest) {
        if (taken.size() >= kConvertedLayouts && !settings_.exhaustive) break;
        taken.insert(layout);
      }
      layouts.merge(taken);
    }
    return layouts;
  }

  void find_conversions() {
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      if (candidates_.domains[k].layouts.size() < 2) continue;
      const TensorId tensor(k);
      for (const auto& [from, to] :
           conversions_.between(tensor, promising(tensor, Use::written), promising(tensor, Use::read)))
        conversions_.add(tensor, from, to);
    }
  }

  // --- Trying ---

  // The class to try next: expensive in a step and rarely tried so far. Adding the mean gives cheap classes a turn too.
  std::optional<size_t> choose(const std::vector<std::optional<size_t>>& next,
                               const std::vector<size_t>& pending) const {
    const std::deque<PartitionClass>& classes = classes_.all();
    double mean = 0;
    for (const PartitionClass& each : classes) {
      if (each.best < kNotMeasured) mean += each.best / static_cast<double>(classes.size());
    }
    std::optional<size_t> best;
    double best_worth = -1;
    for (size_t k = 0; k < classes.size(); ++k) {
      if (!next[k]) continue;
      const PartitionClass& candidate_class = classes[k];
      const size_t tried = candidate_class.rows.size() + pending[k];
      const Trial& trial = candidate_class.trials[*next[k]];
      const double worth = kind_worth(candidate_class, trial, tried) *
                           (expected_seconds(candidate_class, trial) + mean) / (static_cast<double>(tried) + 1);
      if (worth <= best_worth) continue;
      best_worth = worth;
      best = k;
    }
    return best;
  }

  // How many trials of its class come before this one.
  static bool comes_first(const PartitionClass& its_class, const Trial& trial, size_t tried) {
    return trial.baseline && tried == 0 && its_class.comes_first;
  }

  static double kind_worth(const PartitionClass& its_class, const Trial& trial, size_t tried) {
    if (comes_first(its_class, trial, tried)) return kPromisingBaselineWorth;
    if (trial.baseline) return tried == 0 ? kFirstBaselineWorth : kBaselineWorth;
    return trial.wanted ? kWantedWorth : 1;
  }

  // The expected seconds of all equal partitions in a step.
  double expected_seconds(const PartitionClass& its_class, const Trial& trial) const {
    const double seconds = its_class.best < kNotMeasured
                               ? its_class.best
                               : classes_.expectation(its_class).seconds(trial.kind, trial.candidate->estimate);
    return seconds * static_cast<double>(std::max<size_t>(its_class.partitions, 1));
  }

  Result<Done> try_all(const Deadline& end) {
    if (!settings_.measure) return Done{};
    std::deque<TrialBatch> ahead;
    Result<Done> tried = try_until(end, ahead);
    if (kernels_ != nullptr && !ahead.empty()) kernels_->cancel();
    for (const TrialBatch& batch : ahead) {
      for (const TrialId& chosen : batch.chosen) classes_.leave(chosen);
    }
    return tried;
  }

  // When trials end: later if baselines are left, without which there is no measured plan.
  Deadline limit(const Deadline& end) const { return classes_.has_baselines_left() ? last_ : end; }

  Result<Done> try_until(const Deadline& end, std::deque<TrialBatch>& ahead) {
    while (!limit(end).passed() && !out_of_time_) {
      const double begin = now();
      refinements_.add_for_fastest();
      choose_ahead(end, ahead);
      wanted_.want(end);  // while kernels compile
      certifier_.look(end);
      defer_unpromising();
      if (ahead.empty()) choose_ahead(end, ahead);
      log_trial(now() - begin, "choose", "");
      if (ahead.empty() && (wanted_.want_last() || (is_last_ && certifier_.want_last(end)))) continue;
      if (ahead.empty() && is_last_ && resume()) continue;
      if (ahead.empty()) return Done{};
      tell("compiling");
      const double chosen = now();
      std::optional<TrialBatch> batch = fill_in(end, ahead);
      if (!batch) batch = take_ready(limit(end), ahead);
      log_trial(now() - chosen, "compile", "");
      if (!batch) return Done{};
      if (settings_.compile_ahead) choose_ahead(end, ahead);
      const double before = tried_ + deferred_;
      if (Result<Done> tried = try_batch(*batch, end); !tried) return tried;
      if (tried_ + deferred_ == before) return Done{};  // there is no time for another trial
    }
    return Done{};
  }

  // With ceilings the certifier decides what is tried, by bounds.
  void defer_unpromising() {
    if (resumed_ || settings_.exhaustive || settings_.ceilings.cache_bytes > 0) return;
    for (const size_t each : unpromising_classes(candidates_, classes_)) classes_.defer(each);
  }
  bool resume() {
    resumed_ = true;
    return classes_.resume();
  }

  void choose_ahead(const Deadline& end, std::deque<TrialBatch>& ahead) {
    const size_t most = settings_.exhaustive ? kBatchesAheadOfAll : kBatchesAhead;
    while (ahead.size() < (settings_.compile_ahead ? most : 1)) {
      TrialBatch next = choose_batch(end, ahead, {settings_.batch, Chosen::any});
      if (next.chosen.empty()) return;
      ahead.push_back(std::move(next));
    }
  }

  // While all batches wait for their kernels: a few trials that need no compiler.
  std::optional<TrialBatch> fill_in(const Deadline& end, const std::deque<TrialBatch>& ahead) {
    constexpr size_t kFew = 8;
    const bool waits =
        std::none_of(ahead.begin(), ahead.end(), [](const TrialBatch& b) { return is_ready(b.compiled); });
    if (!settings_.compile_ahead || !waits) return std::nullopt;
    TrialBatch batch = choose_batch(end, ahead, {kFew, Chosen::by_library});
    if (batch.chosen.empty()) return std::nullopt;
    return batch;
  }

  // Waits for the first batch whose kernels are compiled: a slow kernel delays only its own batch. Nothing if none is
  // compiled in time.
  static std::optional<TrialBatch> take_ready(const Deadline& end, std::deque<TrialBatch>& ahead) {
    constexpr std::chrono::milliseconds kMoment(2);
    auto ready = ahead.begin();
    while (!is_ready(ready->compiled)) {
      if (++ready != ahead.end()) continue;
      if (end.passed()) return std::nullopt;
      ready = ahead.begin();
      ready->compiled.wait_for(kMoment);
    }
    TrialBatch batch = std::move(*ready);
    ahead.erase(ready);
    return batch;
  }

  enum class Chosen { any, by_library };
  struct BatchLimits {
    size_t most;
    Chosen chosen;
  };

  // Trials that come first are not in a batch with others, which could take all of the time.
  TrialBatch choose_batch(const Deadline& end, const std::deque<TrialBatch>& ahead, const BatchLimits& limits) {
    TrialBatch batch;
    bool only_first = false;
    double chosen_kernels = 0;
    for (const TrialBatch& before : ahead) chosen_kernels += before.kernels;
    std::vector<std::optional<size_t>> next;
    for (size_t k = 0; k < classes_.all().size(); ++k) next.push_back(classes_.next_of(k));
    std::vector<size_t> pending(next.size(), 0);
    while (batch.chosen.size() < limits.most) {
      if (limits.chosen == Chosen::by_library) drop_kernels(next);
      const std::optional<size_t> chosen = choose(next, pending);
      if (!chosen) break;
      const TrialId id{*chosen, *next[*chosen]};
      const Trial& trial = classes_.trial(id);
      const PartitionClass& its_class = classes_.all()[*chosen];
      const bool first = comes_first(its_class, trial, its_class.rows.size() + pending[*chosen]);
      only_first = batch.chosen.empty() ? first : only_first;
      if (only_first && !first) break;
      if (settings_.mine && !settings_.mine(its_class.text, trial.text)) {
        classes_.choose(id);
        next[*chosen] = classes_.next_of(*chosen);
        continue;
      }
      const double kernels = kernels_of(trial);
      const Deadline until = trial.baseline ? last_ : end;
      if (kernels > 1 && !times_.has_time_for(kernels, until)) {  // there may be time for others
        next[*chosen].reset();
        continue;
      }
      const bool first_and_long = kernels > 1 && batch.chosen.empty();
      const bool fits = chosen_kernels + batch.kernels + kernels <= times_.kernels_until(until);
      if (kernels > 0 && !first_and_long && !fits) break;
      batch.kernels += kernels;
      classes_.choose(id);
      batch.chosen.push_back(id);
      ++pending[*chosen];
      next[*chosen] = classes_.next_of(*chosen);
    }
    // Keep the candidates of one partition together, so that its reference data is computed once.
    std::stable_sort(batch.chosen.begin(), batch.chosen.end(),
                     [](const TrialId& l, const TrialId& r) { return l.partition_class < r.partition_class; });
    compiler_.start(batch);
    return batch;
  }

  static bool is_by_library(const Trial& trial) { return std::holds_alternative<GemmConfig>(trial.candidate->config); }

  // How many small kernels take as long to compile as the trial's; 0: it needs none.
  static double kernels_of(const Trial& trial) {
    if (is_by_library(trial)) return 0;
    return trial.converted.valid() ? 1 : kernels_worth(*trial.partition);
  }

  // Leaves only trials of products that a library computes.
  void drop_kernels(std::vector<std::optional<size_t>>& next) const {
    for (size_t k = 0; k < next.size(); ++k) {
      if (next[k] && !is_by_library(classes_.all()[k].trials[*next[k]])) next[k].reset();
    }
  }

  Result<Done> try_batch(TrialBatch& batch, const Deadline& end) {
    const CompiledBatch compiled = batch.compiled.get();
    times_.note_compiled(compiled.kernels > 0 ? batch.kernels : 0, compiled.seconds);
    for (size_t k = 0; k < batch.chosen.size(); ++k) {
      const TrialId& id = batch.chosen[k];
      const Deadline until = classes_.trial(id).baseline ? last_ : end;
      if (Result<Done> tried = try_until(until, id, compiled.trials[k]); !tried) return tried;
      tell("measuring");
    }
    return Done{};
  }

  // Leaves the trial if there is no time for it.
  Result<Done> try_until(const Deadline& until, const TrialId& id, const ReadyTrial& ready) {
    if (!is_worthwhile(id, until)) return leave(id);
    if (classes_.all()[id.partition_class].deferred) {
      deferred_ += 1;
      return leave(id);
    }
    const Result<bool> started = needs_worker(ready) ? worker_.is_ready(until.left()) : Result<bool>(true);
    if (!started) return started.error();
    out_of_time_ = out_of_time_ || (!*started && last_.passed());
    if (!*started) return leave(id);
    const double timeout = times_.timeout(id.partition_class, until);
    const double begin = now();
    Result<MeasurementRow> row = try_one(id, ready, timeout);
    if (!row) return row.error();
    if (row->outcome == Outcome::hung && until.passed()) return leave(id);
    times_.note_tried(id.partition_class, now() - begin);
    log_trial(now() - begin, "trial", "");
    tried_ += 1;
    return note(id, ready, timeout, std::move(*row));
  }

  bool is_worthwhile(const TrialId& id, const Deadline& until) const {
    return !out_of_time_ && !classes_.is_given_up(id.partition_class) && !until.passed() &&
           (classes_.trial(id).baseline || times_.fits(until));
  }

  Result<Done> leave(const TrialId& id) {
    classes_.leave(id);
    return Done{};
  }

  // Stores the outcome, unless the trial might have ended with more time.
  Result<Done> note(const TrialId& id, const ReadyTrial& ready, double timeout, MeasurementRow row) {
    row.key = {settings_.device, classes_.all()[id.partition_class].text, ready.name};
    row.when = utc_now();
    row.detail = row.outcome == Outcome::measured ? print_lesson(lesson_of(*classes_.trial(id).candidate))
                                                  : storable_detail(row.detail);
    const bool hung = row.outcome == Outcome::hung;
    if (hung && !times_.is_surely_hung(timeout)) {
      classes_.note_unfinished(id, row);
    } else {
      if (Result<Done> stored = database_.put(row); !stored) return stored;
      classes_.note(id, row);
    }
    if (hung && ++hangs_[id.partition_class] >= kMostHangs && !settings_.deadline.is_never())
      classes_.give_up(id.partition_class);
    return Done{};
  }

  static bool needs_worker(const ReadyTrial& ready) { return !ready.by_kernel || (ready.kernel && *ready.kernel); }

  Result<MeasurementRow> try_one(const TrialId& id, const ReadyTrial& ready, double timeout) {
    const PartitionClass& its_class = classes_.all()[id.partition_class];
    const Trial& trial = classes_.trial(id);
    MeasurementRow failed;
    const Result<CompiledFile>* const kernel = ready.kernel ? &*ready.kernel : nullptr;
    if (ready.by_kernel && kernel == nullptr) {
      failed.detail = "there is no compiler on this machine";
      return failed;
    }
    // An error of the machine, such as a full disk, is not an outcome of the candidate.
    if (kernel != nullptr && !*kernel && kernel->error().kind != ErrorKind::bad_input) return kernel->error();
    if (kernel != nullptr && !*kernel) {
      failed.detail = to_string(kernel->error());
      return failed;
    }
    TrialRequest request;
    request.conversion = trial.converted.valid();
    request.partition = request.conversion ? graph_.tensor(trial.converted).name : trial.partition->name;
    request.candidate = trial.text;
    if (kernel != nullptr) {
      request.function = (*kernel)->name;
      request.path = (*kernel)->path;
      request.sha256 = (*kernel)->sha256;
    }
    request.settings = settings_.trial;
    request.settings.best_seconds = its_class.best == kNotMeasured ? 0 : its_class.best;
    return worker_.run(request, timeout);
  }

  void tell(const std::string& doing) {
    ExploreProgress progress;
    progress.done = tried_ + recall_.known();
    progress.tried = tried_;
    progress.total = classes_.configurations() + conversions_.configurations() - classes_.not_needed();
    progress.doing = doing;
    const double begin = now();
    watch_.tell(std::move(progress));
    log_trial(now() - begin, "select", "");
  }

  const Graph& graph_;
  const Candidates& candidates_;
  const ExploreSettings& settings_;
  const KernelMaker* kernels_;
  Database& database_;
  Worker& worker_;
  PartitionClasses classes_;
  ConversionTrials conversions_;
  Refinements refinements_;
  Recall recall_;
  MeasurementsMaker measurements_;
  const Background background_;
  BatchCompiler compiler_;
  WantedTrials wanted_;
  Certifier certifier_;
  StepWatch watch_;
  TrialTimes times_;
  const Deadline last_;  // of baselines
  double tried_ = 0;
  double deferred_ = 0;          // trials that were chosen before their class was deferred
  std::map<size_t, int> hangs_;  // by class
  bool out_of_time_ = false;     // the worker did not start in time
  bool is_last_ = false;         // after this, nothing is added to what is explored
  bool resumed_ = false;         // what was deferred is tried
};

}  // namespace

Result<Explored> explore(const Graph& graph, const Candidates& candidates, const ExploreSettings& settings,
                         const KernelMaker* kernels, Database& database, Worker& worker) {
  return Explorer(graph, candidates, settings, kernels, database, worker).run();
}

}  // namespace millrace
