#include "measure/explore.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <limits>
#include <optional>
#include <set>

#include "base/clock.h"
#include "measure/background.h"
#include "measure/conversion_trials.h"
#include "measure/measurements_maker.h"
#include "measure/partition_classes.h"
#include "measure/recall.h"
#include "measure/refinements.h"
#include "measure/trial_batch.h"
#include "measure/wanted_trials.h"

namespace millrace {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kConversionShare = 0.2;     // of the budget
constexpr double kSelectEvery = 5;           // seconds
constexpr size_t kConvertedLayouts = 3;      // layouts of the fastest candidates of each writer and reader of a tensor
constexpr size_t kConversionCandidates = 2;  // per pair of layouts, unless exhaustive
constexpr double kBaselineWorth = 1e9;       // more than any trial is worth by its seconds
constexpr double kWantedWorth = 1e8;         // likewise, but less than a baseline
// Batches compiled while one is measured, since each waits for its slowest kernel. An exhaustive run tries everything
// anyway, so it can compile further ahead without worse choices.
constexpr size_t kBatchesAhead = 8, kBatchesAheadOfAll = 64;
constexpr double kFirstKernels = 8;  // in the first batch, before it is known how long one takes to compile

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
        classes_(graph, candidates, settings.timing_class, mode_of(settings)),
        conversions_(graph, candidates, settings.conversions,
                     settings.exhaustive ? std::numeric_limits<size_t>::max() : kConversionCandidates, classes_),
        refinements_(candidates.domains, settings.refinements, mode_of(settings), classes_),
        recall_(database, settings.device, kernels),
        measurements_(graph, candidates, classes_, conversions_),
        background_(settings.compile_ahead ? Background::on_a_thread : Background::when_requested),
        compiler_(classes_, kernels, background_),
        wanted_({graph, candidates, classes_, conversions_, refinements_, measurements_}, settings, background_) {}

  Result<Explored> run() {
    if (Result<Done> known = recall_.conversions(candidates_.domains, conversions_); !known) return known.error();
    if (Result<Done> tried = explore_until(begin_ + settings_.budget_seconds * (1 - kConversionShare)); !tried)
      return tried.error();
    find_conversions();
    if (Result<Done> tried = explore_until(begin_ + settings_.budget_seconds); !tried) return tried.error();
    return Explored{measurements_.measured(), summary()};
  }

 private:
  // Recalls known outcomes, then tries candidates.
  Result<Done> explore_until(double end) {
    if (Result<Done> known = recall_.outcomes(refinements_, classes_); !known) return known;
    if (Result<Done> tried = try_all(settings_.exhaustive ? kInfinite : end); !tried) return tried;
    if (settings_.assume) classes_.assume();
    return Done{};
  }

  Exploration summary() {
    Exploration made;
    made.configurations = classes_.configurations();
    made.conversions = conversions_.configurations();
    made.tried = tried_;
    made.known = recall_.known();
    made.not_needed = classes_.not_needed();
    made.timing_class_spreads = classes_.timing_class_spreads();
    made.outcomes = classes_.outcomes();
    made.first_failure = classes_.first_failure();
    for (size_t number = 0; number < candidates_.partitions.size(); ++number)
      made.partitions.push_back(measurements_.tried(number));
    made.seconds = now() - begin_;
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
      const auto tried = static_cast<double>(candidate_class.rows.size() + pending[k]);
      const double seconds = candidate_class.best == kNotMeasured
                                 ? 1e3
                                 : candidate_class.best * static_cast<double>(candidate_class.partitions);
      const Trial& trial = candidate_class.trials[*next[k]];
      const double worth = trial.baseline ? kBaselineWorth
                           : trial.wanted ? kWantedWorth
                                          : (seconds + mean) / (tried + 1);
      if (worth <= best_worth) continue;
      best_worth = worth;
      best = k;
    }
    return best;
  }

  Result<Done> try_all(double end) {
    if (!settings_.measure) return Done{};
    std::deque<TrialBatch> ahead;
    Result<Done> tried = try_until(end, ahead);
    if (kernels_ != nullptr && !ahead.empty()) kernels_->cancel();
    for (const TrialBatch& batch : ahead) {
      for (const TrialId& chosen : batch.chosen) classes_.leave(chosen);
    }
    return tried;
  }

  Result<Done> try_until(double end, std::deque<TrialBatch>& ahead) {
    while (now() < end || classes_.has_baselines_left()) {
      refinements_.add_for_fastest();
      wanted_.want(end);
      choose_ahead(end, ahead);
      if (ahead.empty() && wanted_.want_last()) continue;
      if (ahead.empty()) return Done{};
      show("compiling");
      TrialBatch batch = take_ready(ahead);
      if (settings_.compile_ahead) choose_ahead(end, ahead);
      if (Result<Done> tried = try_batch(batch, end); !tried) return tried;
    }
    return Done{};
  }

  void choose_ahead(double end, std::deque<TrialBatch>& ahead) {
    const size_t most = settings_.exhaustive ? kBatchesAheadOfAll : kBatchesAhead;
    while (ahead.size() < (settings_.compile_ahead ? most : 1)) {
      TrialBatch next = choose_batch(end, ahead);
      if (next.chosen.empty()) return;
      ahead.push_back(std::move(next));
    }
  }

  // Waits for the first batch whose kernels are compiled: a slow kernel delays only its own batch.
  static TrialBatch take_ready(std::deque<TrialBatch>& ahead) {
    constexpr std::chrono::milliseconds kMoment(2);
    auto ready = ahead.begin();
    while (!is_ready(ready->compiled)) {
      if (++ready != ahead.end()) continue;
      ready = ahead.begin();
      ready->compiled.wait_for(kMoment);
    }
    TrialBatch batch = std::move(*ready);
    ahead.erase(ready);
    return batch;
  }

  // How many kernels there is time to compile before the end.
  double kernels_until(double end) const {
    if (now() >= end) return 0;
    if (kernel_seconds_ > 0) return std::max(1.0, (end - now()) / kernel_seconds_);
    return end == kInfinite ? kInfinite : kFirstKernels;
  }

  TrialBatch choose_batch(double end, const std::deque<TrialBatch>& ahead) {
    TrialBatch batch;
    double most_kernels = kernels_until(end);
    for (const TrialBatch& before : ahead) most_kernels -= before.kernels;
    std::vector<std::optional<size_t>> next;
    for (size_t k = 0; k < classes_.all().size(); ++k) next.push_back(classes_.next_of(k));
    std::vector<size_t> pending(next.size(), 0);
    while (batch.chosen.size() < settings_.batch) {
      const std::optional<size_t> chosen = choose(next, pending);
      if (!chosen) break;
      const TrialId id{*chosen, *next[*chosen]};
      const Trial& trial = classes_.trial(id);
      const bool by_library = std::holds_alternative<GemmConfig>(trial.candidate->config);
      if (!by_library && batch.kernels + 1 > most_kernels && !trial.baseline) break;
      if (!by_library) batch.kernels += 1;
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

  Result<Done> try_batch(TrialBatch& batch, double end) {
    const CompiledBatch compiled = batch.compiled.get();
    if (compiled.kernels > 0) kernel_seconds_ = compiled.seconds / static_cast<double>(compiled.kernels);
    for (size_t k = 0; k < batch.chosen.size(); ++k) {
      const TrialId& id = batch.chosen[k];
      const PartitionClass& its_class = classes_.all()[id.partition_class];
      const Trial& trial = classes_.trial(id);
      if (now() > end && !trial.baseline) {
        classes_.leave(id);
        continue;
      }
      Result<MeasurementRow> row = try_one(its_class, trial, compiled.trials[k]);
      if (!row) return row.error();
      row->key = {settings_.device, its_class.text, compiled.trials[k].name};
      row->when = utc_now();
      row->detail = storable_detail(row->detail);
      if (Result<Done> stored = database_.put(*row); !stored) return stored;
      classes_.note(id, *row);
      tried_ += 1;
      show("measuring");
    }
    return Done{};
  }

  Result<MeasurementRow> try_one(const PartitionClass& its_class, const Trial& trial, const ReadyTrial& ready) {
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
    return worker_.run(request, settings_.hang_seconds);
  }

  // --- Progress ---

  void show(const std::string& doing) {
    if (!settings_.progress) return;
    ExploreProgress progress;
    progress.done = tried_ + recall_.known();
    progress.total = classes_.configurations() + conversions_.configurations() - classes_.not_needed();
    progress.left = settings_.exhaustive ? 0 : std::max(0.0, begin_ + settings_.budget_seconds - now());
    progress.doing = doing;
    for (const ChoicePoint& choice_point : candidates_.choice_points) {
      double best = kNotMeasured;
      for (const std::vector<int>& alternative : choice_point.alternatives) {
        double sum = 0;
        for (const int partition : alternative) sum += classes_.class_of(static_cast<size_t>(partition)).best;
        best = std::min(best, sum);
      }
      if (best < kNotMeasured) progress.bound += best;
    }
    progress.seconds = selected_seconds();
    settings_.progress(progress);
  }

  // Selects anew every few seconds, once every partition has a measured candidate.
  double selected_seconds() {
    if (!settings_.select || classes_.has_baselines_left()) return selected_;
    if (!selecting_.valid() && now() >= select_at_) {
      const double begin = now();
      selecting_ = run_in_background(background_,
                                     [this, so_far = measurements_.measured()] { return settings_.select(so_far); });
      select_at_ = now() + std::max(kSelectEvery, (now() - begin) / kAssemblyShare);
    }
    if (!selecting_.valid() || !is_ready(selecting_)) return selected_;
    selected_ = selecting_.get();
    return selected_;
  }

  const Graph& graph_;
  const Candidates& candidates_;
  const ExploreSettings& settings_;
  const KernelMaker* kernels_;
  Database& database_;
  Worker& worker_;
  const double begin_ = now();
  PartitionClasses classes_;
  ConversionTrials conversions_;
  Refinements refinements_;
  Recall recall_;
  MeasurementsMaker measurements_;
  const Background background_;
  BatchCompiler compiler_;
  WantedTrials wanted_;
  double tried_ = 0;
  double kernel_seconds_ = 0;  // compile time per kernel in the last batch
  double selected_ = 0;        // seconds of the best selection so far
  double select_at_ = 0;       // time of the next selection for the progress
  std::future<double> selecting_;
};

}  // namespace

Result<Explored> explore(const Graph& graph, const Candidates& candidates, const ExploreSettings& settings,
                         const KernelMaker* kernels, Database& database, Worker& worker) {
  return Explorer(graph, candidates, settings, kernels, database, worker).run();
}

}  // namespace millrace
