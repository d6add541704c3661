#include "measure/explore.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <type_traits>

#include "base/clock.h"
#include "measure/conversion_trials.h"
#include "measure/measurements_maker.h"
#include "measure/partition_classes.h"
#include "measure/recall.h"
#include "measure/refinements.h"

namespace millrace {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kConversionShare = 0.2;  // of the budget
constexpr double kSelectEvery = 5;        // seconds
constexpr size_t kConvertedLayouts = 3;   // layouts of the fastest candidates of each writer and reader of a tensor
constexpr size_t kWantedCandidates = 12;  // with the layouts of a candidate that a selection uses
constexpr double kWantedShare = 0.25;     // largest share of the time for selections during which nothing is measured
constexpr double kAssemblyShare = 0.02;   // share of the time for assembling the measurements so far
constexpr size_t kConversionCandidates = 2;  // per pair of layouts, unless exhaustive
constexpr double kBaselineWorth =
    1e9;  // more than any trial is worth by its seconds; what a selection wants comes next
constexpr double kWantedWorth = 1e8;
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
        measurements_(graph, candidates, classes_, conversions_) {}

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

  // A chosen trial, ready to run.
  struct Ready {
    std::string name;  // in the database
    bool by_kernel = false;
    std::optional<Result<CompiledFile>> kernel;  // nothing without a kernel or without a compiler
  };

  struct Compiled {
    std::vector<Ready> ready;  // one per trial
    size_t kernels = 0;
    double seconds = 0;  // compile time
  };

  // Trials chosen together. Their kernels are being compiled.
  struct Batch {
    std::vector<TrialId> chosen;
    double kernels = 0;
    std::future<Compiled> compiled;
  };

  Result<Done> try_all(double end) {
    if (!settings_.measure) return Done{};
    std::deque<Batch> ahead;
    Result<Done> tried = try_until(end, ahead);
    if (kernels_ != nullptr && !ahead.empty()) kernels_->cancel();
    for (const Batch& batch : ahead) {
      for (const TrialId& chosen : batch.chosen) classes_.leave(chosen);
    }
    return tried;
  }

  Result<Done> try_until(double end, std::deque<Batch>& ahead) {
    while (now() < end || classes_.has_baselines_left()) {
      refinements_.add_for_fastest();
      want(end);
      choose_ahead(end, ahead);
      if (ahead.empty() && want_last()) continue;
      if (ahead.empty()) return Done{};
      show("compiling");
      Batch batch = take_ready(ahead);
      if (settings_.compile_ahead) choose_ahead(end, ahead);
      if (Result<Done> tried = try_batch(batch, end); !tried) return tried;
    }
    return Done{};
  }

  void choose_ahead(double end, std::deque<Batch>& ahead) {
    const size_t most = settings_.exhaustive ? kBatchesAheadOfAll : kBatchesAhead;
    while (ahead.size() < (settings_.compile_ahead ? most : 1)) {
      Batch next = choose_batch(end, ahead);
      if (next.chosen.empty()) return;
      ahead.push_back(std::move(next));
    }
  }

  // Waits for the first batch whose kernels are compiled: a slow kernel delays only its own batch.
  static Batch take_ready(std::deque<Batch>& ahead) {
    constexpr std::chrono::milliseconds kMoment(2);
    auto ready = ahead.begin();
    while (!is_ready(ready->compiled)) {
      if (++ready != ahead.end()) continue;
      ready = ahead.begin();
      ready->compiled.wait_for(kMoment);
    }
    Batch batch = std::move(*ready);
    ahead.erase(ready);
    return batch;
  }

  // How many kernels there is time to compile before the end.
  double kernels_until(double end) const {
    if (now() >= end) return 0;
    if (kernel_seconds_ > 0) return std::max(1.0, (end - now()) / kernel_seconds_);
    return end == kInfinite ? kInfinite : kFirstKernels;
  }

  Batch choose_batch(double end, const std::deque<Batch>& ahead) {
    Batch batch;
    double most_kernels = kernels_until(end);
    for (const Batch& before : ahead) most_kernels -= before.kernels;
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
    // Copies, since trials may be added while these compile.
    std::vector<Trial> trials;
    for (const TrialId& chosen : batch.chosen) trials.push_back(classes_.trial(chosen));
    batch.compiled = in_background([this, trials = std::move(trials)] { return compiled(trials); });
    return batch;
  }

  Compiled compiled(const std::vector<Trial>& trials) {
    Compiled made;
    std::vector<Launch> with_kernels;
    for (const Trial& trial : trials) {
      Launch launch = classes_.launch_of(trial);
      made.ready.push_back({stored_name(kernels_, trial, launch), !launch.kernel.empty(), std::nullopt});
      if (made.ready.back().by_kernel) with_kernels.push_back(std::move(launch));
    }
    if (kernels_ == nullptr || with_kernels.empty()) return made;
    const double begin = now();
    std::vector<Result<CompiledFile>> kernels = kernels_->make(with_kernels);
    {
      // Batches compile in request order: this one waited until the previous one was done.
      const std::lock_guard lock(compiled_mutex_);
      made.seconds = now() - std::max(begin, compiled_at_);
      compiled_at_ = now();
    }
    made.kernels = kernels.size();
    size_t next = 0;
    for (Ready& ready : made.ready) {
      if (ready.by_kernel) ready.kernel = std::move(kernels[next++]);
    }
    return made;
  }

  Result<Done> try_batch(Batch& batch, double end) {
    const Compiled compiled = batch.compiled.get();
    if (compiled.kernels > 0) kernel_seconds_ = compiled.seconds / static_cast<double>(compiled.kernels);
    for (size_t k = 0; k < batch.chosen.size(); ++k) {
      const TrialId& id = batch.chosen[k];
      const PartitionClass& its_class = classes_.all()[id.partition_class];
      const Trial& trial = classes_.trial(id);
      if (now() > end && !trial.baseline) {
        classes_.leave(id);
        continue;
      }
      Result<MeasurementRow> row = try_one(its_class, trial, compiled.ready[k]);
      if (!row) return row.error();
      row->key = {settings_.device, its_class.text, compiled.ready[k].name};
      row->when = utc_now();
      row->detail = storable_detail(row->detail);
      if (Result<Done> stored = database_.put(*row); !stored) return stored;
      classes_.note(id, *row);
      tried_ += 1;
      show("measuring");
    }
    return Done{};
  }

  Result<MeasurementRow> try_one(const PartitionClass& its_class, const Trial& trial, const Ready& ready) {
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

  // --- Candidates that a selection wants ---

  // The fastest candidates of two partitions may need different layouts. So from time to time this makes a selection in
  // which every untried candidate and conversion is as fast as expected, and tries next what that selection uses. If
  // compilers do not disturb the measurement, selecting in the background does not either.
  void want(double end) {
    if (!settings_.wanted || classes_.has_baselines_left()) return;
    if (!wanting_.valid()) {
      if (now() + wanting_seconds_ >= end || (settings_.exhaustive && now() < look_at_)) return;
      if (!settings_.compile_ahead && wanting_seconds_ > kWantedShare * (now() - wanted_at_)) return;
      wanted_at_ = now();
      wanting_ = in_background([this, expecting = measurements_.expected()] { return settings_.wanted(expecting); });
      look_at_ = now() + (now() - wanted_at_) / kAssemblyShare;
    }
    if (!is_ready(wanting_)) return;
    const Wanted wanted = wanting_.get();
    wanting_seconds_ = now() - wanted_at_;
    wanted_at_ = now();
    take(wanted);
  }

  // When only candidates represented by another of their timing class are left: whether a selection uses one of them.
  bool want_last() {
    if (!settings_.wanted || !settings_.exhaustive || classes_.has_baselines_left()) return false;
    if (wanting_.valid()) wanting_.wait();
    wanting_ = {};
    return take(settings_.wanted(measurements_.expected()));
  }

  // Returns whether any of it is still to be tried.
  bool take(const Wanted& wanted) {
    bool open = false;
    for (const Wanted::Candidate& candidate : wanted.candidates) open |= want_candidate(candidate);
    for (const Wanted::Conversion& conversion : wanted.conversions) open |= want_conversion(conversion);
    return open;
  }

  // Wants the candidate itself and, once that is measured, others with its layouts.
  bool want_candidate(const Wanted::Candidate& wanted) {
    const auto number =
        std::find_if(candidates_.partitions.begin(), candidates_.partitions.end(),
                     [&](const PartitionCandidates& each) { return each.partition.name == wanted.partition; });
    if (number == candidates_.partitions.end()) return false;
    const std::optional<TrialId> taken =
        classes_.find(static_cast<size_t>(number - candidates_.partitions.begin()), wanted.candidate);
    if (!taken) return false;
    bool open = false;
    if (!classes_.trial(*taken).known) {
      open = classes_.want(*taken);
      if (std::holds_alternative<GemmConfig>(classes_.trial(*taken).candidate->config)) return open;
    }
    return settings_.refinements ? want_others_under(*taken) || open : open;
  }

  bool want_others_under(const TrialId& taken) {
    refinements_.add_for(taken);
    const PartitionClass& its_class = classes_.all()[taken.partition_class];
    const std::vector<int>& layouts = its_class.trials[taken.number].candidate->layouts;
    Expectation expectation = classes_.expectation(its_class);
    std::vector<std::pair<double, size_t>> under;
    for (size_t k = 0; k < its_class.trials.size(); ++k) {
      const Trial& trial = its_class.trials[k];
      if (trial.candidate->layouts != layouts) continue;
      under.emplace_back(expectation.seconds(trial.kind, trial.candidate->estimate), k);
    }
    std::sort(under.begin(), under.end());
    if (under.size() > kWantedCandidates) under.resize(kWantedCandidates);
    bool open = false;
    for (const auto& [seconds, k] : under) open |= classes_.want({taken.partition_class, k});
    return open;
  }

  bool want_conversion(const Wanted::Conversion& wanted) {
    bool open = false;
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      if (graph_.tensors[k].name != wanted.tensor) continue;
      conversions_.add(TensorId(k), wanted.from, wanted.to);
      for (const ConversionTrial& conversion : conversions_.added()) {
        if (conversion.tensor == TensorId(k) && conversion.from == wanted.from && conversion.to == wanted.to)
          open |= classes_.want(conversion.trial);
      }
    }
    return open;
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
      selecting_ = in_background([this, so_far = measurements_.measured()] { return settings_.select(so_far); });
      select_at_ = now() + std::max(kSelectEvery, (now() - begin) / kAssemblyShare);
    }
    if (!selecting_.valid() || !is_ready(selecting_)) return selected_;
    selected_ = selecting_.get();
    return selected_;
  }

  // --- Background work ---

  // Runs work on another thread or, if that would disturb the measurement, when its result is requested.
  template <class Work>
  std::future<std::invoke_result_t<Work>> in_background(Work work) const {
    if (settings_.compile_ahead) {
      try {
        return std::async(std::launch::async, work);
      } catch (const std::system_error&) {
        // No thread is available: run it when its result is requested.
      }
    }
    return std::async(std::launch::deferred, std::move(work));
  }

  // Whether get() returns without waiting for another thread.
  template <class T>
  static bool is_ready(const std::future<T>& work) {
    return work.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
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
  double tried_ = 0;
  double kernel_seconds_ = 0;  // compile time per kernel in the last batch
  std::mutex compiled_mutex_;
  double compiled_at_ = 0;  // when the last batch was compiled
  double selected_ = 0;     // seconds of the best selection so far
  double select_at_ = 0;    // time of the next selection for the progress
  double look_at_ = 0;      // earliest time of the next selection for `wanted`
  std::future<double> selecting_;
  std::future<Wanted> wanting_;
  double wanted_at_ = 0;
  double wanting_seconds_ = 0;  // duration of the last selection
};

}  // namespace

Result<Explored> explore(const Graph& graph, const Candidates& candidates, const ExploreSettings& settings,
                         const KernelMaker* kernels, Database& database, Worker& worker) {
  return Explorer(graph, candidates, settings, kernels, database, worker).run();
}

}  // namespace millrace
