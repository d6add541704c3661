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
constexpr double kForConversions = 0.2;   // of the budget
constexpr double kSelectEvery = 5;        // seconds
constexpr size_t kConvertedLayouts = 3;   // of the fastest ways of a tensor's writer, and of each of its readers
constexpr size_t kWantedConfigs = 12;     // under the layouts that a selection takes, beside the one that it takes
constexpr double kForWanted = 0.25;       // of the time, at most, where nothing is measured meanwhile
constexpr double kForLooking = 0.02;      // of the time, for putting together what is known so far
constexpr size_t kConversionConfigs = 2;  // of a pair of layouts, unless all are asked for
constexpr double kMustBe = 1e9;           // more than any trial is worth by its seconds
constexpr double kWorthMost = 1e8;
// Batches that are compiled while one is measured: each waits for its slowest kernel. Where all are tried, what is
// learnt meanwhile changes no choice, and no compiler need wait.
constexpr size_t kBatchesAhead = 8, kBatchesAheadOfAll = 64;
constexpr double kFirstKernels = 8;  // of a batch, when it is not known yet how long one takes to compile

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
        classes_(graph, candidates, settings.timing_class, settings.exhaustive),
        conversions_(graph, candidates, settings.conversions,
                     settings.exhaustive ? std::numeric_limits<size_t>::max() : kConversionConfigs, classes_),
        refinements_(candidates.domains, settings.refinements, settings.exhaustive, classes_),
        recall_(database, settings.device, kernels),
        measurements_(graph, candidates, classes_, conversions_) {}

  Result<Explored> run() {
    if (Result<Done> known = recall_.conversions(candidates_.domains, conversions_); !known) return known.error();
    if (Result<Done> tried = explore_until(begin_ + settings_.budget_seconds * (1 - kForConversions)); !tried)
      return tried.error();
    find_conversions();
    if (Result<Done> tried = explore_until(begin_ + settings_.budget_seconds); !tried) return tried.error();
    return Explored{measurements_.measured(), summary()};
  }

 private:
  // By what is known and what is tried.
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

  // --- Conversions, between the layouts that fast ways write and read ---

  std::set<int> promising(TensorId tensor, bool written) {
    std::set<int> layouts;
    for (size_t number = 0; number < candidates_.partitions.size(); ++number) {
      const Partition& partition = candidates_.partitions[number].partition;
      const std::vector<TensorId>& list = written ? partition.writes : partition.reads;
      const auto at = std::find(list.begin(), list.end(), tensor);
      if (at == list.end()) continue;
      const auto place = static_cast<size_t>(at - list.begin()) + (written ? partition.reads.size() : 0);
      std::vector<std::pair<double, int>> fastest;
      for (const MeasuredCandidate& config : measurements_.fastest_configs(number))
        fastest.emplace_back(config.seconds, config.layouts[place]);
      std::sort(fastest.begin(), fastest.end());
      std::set<int> of_partition;
      for (const auto& [seconds, layout] : fastest) {
        if (of_partition.size() >= kConvertedLayouts && !settings_.exhaustive) break;
        of_partition.insert(layout);
      }
      layouts.merge(of_partition);
    }
    return layouts;
  }

  void find_conversions() {
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      if (candidates_.domains[k].layouts.size() < 2) continue;
      const TensorId tensor(k);
      for (const auto& [from, to] : conversions_.between(tensor, promising(tensor, true), promising(tensor, false)))
        conversions_.add(tensor, from, to);
    }
  }

  // --- Trying ---

  // The class that is worth the next trial: by what it costs in a step and how often it was tried; cheap ones too.
  std::optional<size_t> choose(const std::vector<std::optional<size_t>>& next,
                               const std::vector<size_t>& pending) const {
    const std::deque<PartitionClass>& classes = classes_.all();
    double mean = 0;
    for (const PartitionClass& of : classes) {
      if (of.best < kNotMeasured) mean += of.best / static_cast<double>(classes.size());
    }
    std::optional<size_t> best;
    double best_worth = -1;
    for (size_t k = 0; k < classes.size(); ++k) {
      if (!next[k]) continue;
      const PartitionClass& of = classes[k];
      const auto tried = static_cast<double>(of.rows.size() + pending[k]);
      const double seconds = of.best == kNotMeasured ? 1e3 : of.best * static_cast<double>(of.partitions);
      const Trial& trial = of.trials[*next[k]];
      const double worth = trial.first ? kMustBe : trial.wanted ? kWorthMost : (seconds + mean) / (tried + 1);
      if (worth <= best_worth) continue;
      best_worth = worth;
      best = k;
    }
    return best;
  }

  // A trial that was chosen, ready to be tried.
  struct Ready {
    std::string name;  // in the database
    bool by_kernel = false;
    std::optional<Result<MadeKernel>> kernel;  // of one that has a kernel, where there is a compiler
  };

  struct Compiled {
    std::vector<Ready> ready;  // one a trial
    size_t kernels = 0;
    double seconds = 0;  // that compiling them took
  };

  // Candidates that were chosen together, and their kernels on the way.
  struct Batch {
    std::vector<TrialId> chosen;
    double kernels = 0;
    std::future<Compiled> compiled;
  };

  Result<Done> try_all(double end) {
    if (!settings_.measure) return Done{};
    std::deque<Batch> ahead;
    Result<Done> tried = try_until(end, ahead);
    if (kernels_ != nullptr && !ahead.empty()) kernels_->forget();
    for (const Batch& batch : ahead) {
      for (const TrialId& chosen : batch.chosen) classes_.leave(chosen);
    }
    return tried;
  }

  Result<Done> try_until(double end, std::deque<Batch>& ahead) {
    while (now() < end || classes_.has_baselines_left()) {
      refinements_.add_of_fastest();
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

  // The first one whose kernels are compiled, as soon as there is one: what takes seconds holds up its own batch and no
  // other.
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

  // How many kernels there is time for. A batch of more would be compiled past the end, for nothing.
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
      if (!by_library && batch.kernels + 1 > most_kernels && !trial.first) break;
      if (!by_library) batch.kernels += 1;
      classes_.choose(id);
      batch.chosen.push_back(id);
      ++pending[*chosen];
      next[*chosen] = classes_.next_of(*chosen);
    }
    // Candidates of one partition together: its truth is worked out once.
    std::stable_sort(batch.chosen.begin(), batch.chosen.end(),
                     [](const TrialId& l, const TrialId& r) { return l.partition_class < r.partition_class; });
    // Trials may be added meanwhile: these are its own.
    std::vector<Trial> trials;
    for (const TrialId& chosen : batch.chosen) trials.push_back(classes_.trial(chosen));
    batch.compiled = beside([this, trials = std::move(trials)] { return compiled(trials); });
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
    std::vector<Result<MadeKernel>> kernels = kernels_->make(with_kernels);
    {
      // They come in the order in which they were asked for: until the one before was done, this one waited.
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
      const PartitionClass& of = classes_.all()[id.partition_class];
      const Trial& trial = classes_.trial(id);
      if (now() > end && !trial.first) {
        classes_.leave(id);
        continue;
      }
      Result<MeasurementRow> row = try_one(of, trial, compiled.ready[k]);
      if (!row) return row.error();
      row->key = {settings_.device, of.text, compiled.ready[k].name};
      row->when = utc_now();
      row->detail = storable_detail(row->detail);
      if (Result<Done> stored = database_.put(*row); !stored) return stored;
      classes_.note(id, *row);
      tried_ += 1;
      show("measuring");
    }
    return Done{};
  }

  Result<MeasurementRow> try_one(const PartitionClass& of, const Trial& trial, const Ready& ready) {
    MeasurementRow failed;
    const Result<MadeKernel>* const kernel = ready.kernel ? &*ready.kernel : nullptr;
    if (ready.by_kernel && kernel == nullptr) {
      failed.detail = "no compiler on this machine";
      return failed;
    }
    // What the machine could not do it may do tomorrow: that is no outcome of a candidate.
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
    request.settings.best_seconds = of.best == kNotMeasured ? 0 : of.best;
    return worker_.run(request, settings_.hang_seconds);
  }

  // --- What a selection wants ---

  // Partitions are not free of each other: the fastest ways of two need not go together. So every now and then a
  // selection is made in which ways and conversions that were not tried are as fast as expected; what it takes is tried
  // next. Where compilers do not disturb the measuring, selecting does not either.
  void want(double end) {
    if (!settings_.wanted || classes_.has_baselines_left()) return;
    if (!wanting_.valid()) {
      if (now() + wanting_seconds_ >= end || (settings_.exhaustive && now() < look_at_)) return;
      if (!settings_.compile_ahead && wanting_seconds_ > kForWanted * (now() - wanted_at_)) return;
      wanted_at_ = now();
      wanting_ = beside([this, expecting = measurements_.expected()] { return settings_.wanted(expecting); });
      look_at_ = now() + (now() - wanted_at_) / kForLooking;
    }
    if (!is_ready(wanting_)) return;
    const Wanted wanted = wanting_.get();
    wanting_seconds_ = now() - wanted_at_;
    wanted_at_ = now();
    take(wanted);
  }

  // Where nothing is left to try but what is like something else: whether a selection takes any of that.
  bool want_last() {
    if (!settings_.wanted || !settings_.exhaustive || classes_.has_baselines_left()) return false;
    if (wanting_.valid()) wanting_.wait();
    wanting_ = {};
    return take(settings_.wanted(measurements_.expected()));
  }

  // Whether anything of it is still to be tried.
  bool take(const Wanted& wanted) {
    bool open = false;
    for (const Wanted::Candidate& config : wanted.candidates) open |= want_config(config);
    for (const Wanted::Conversion& conversion : wanted.conversions) open |= want_conversion(conversion);
    return open;
  }

  // The way itself, and when that has been measured, others under its layouts.
  bool want_config(const Wanted::Candidate& config) {
    const auto number =
        std::find_if(candidates_.partitions.begin(), candidates_.partitions.end(),
                     [&](const PartitionCandidates& of) { return of.partition.name == config.partition; });
    if (number == candidates_.partitions.end()) return false;
    const std::optional<TrialId> taken =
        classes_.find(static_cast<size_t>(number - candidates_.partitions.begin()), config.candidate);
    if (!taken) return false;
    bool open = false;
    if (!classes_.trial(*taken).known) {
      open = classes_.want(*taken);
      if (std::holds_alternative<GemmConfig>(classes_.trial(*taken).candidate->config)) return open;
    }
    return settings_.refinements ? want_others_under(*taken) || open : open;
  }

  bool want_others_under(const TrialId& taken) {
    refinements_.add_of(taken);
    const PartitionClass& of = classes_.all()[taken.partition_class];
    const std::vector<int>& layouts = of.trials[taken.number].candidate->layouts;
    Expectation expectation = classes_.expectation(of);
    std::vector<std::pair<double, size_t>> under;
    for (size_t k = 0; k < of.trials.size(); ++k) {
      const Trial& trial = of.trials[k];
      if (trial.candidate->layouts != layouts) continue;
      under.emplace_back(expectation.seconds(trial.kind, trial.candidate->estimate), k);
    }
    std::sort(under.begin(), under.end());
    if (under.size() > kWantedConfigs) under.resize(kWantedConfigs);
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

  // --- How far it is ---

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

  // Worked out anew every few seconds, once every partition has a way.
  double selected_seconds() {
    if (!settings_.select || classes_.has_baselines_left()) return selected_;
    if (!selecting_.valid() && now() >= select_at_) {
      const double begin = now();
      selecting_ = beside([this, so_far = measurements_.measured()] { return settings_.select(so_far); });
      select_at_ = now() + std::max(kSelectEvery, (now() - begin) / kForLooking);
    }
    if (!selecting_.valid() || !is_ready(selecting_)) return selected_;
    selected_ = selecting_.get();
    return selected_;
  }

  // --- What is done while candidates are measured ---

  // On a thread of its own, or where that would disturb the measuring, when it is asked for.
  template <class Work>
  std::future<std::invoke_result_t<Work>> beside(Work work) const {
    if (settings_.compile_ahead) {
      try {
        return std::async(std::launch::async, work);
      } catch (const std::system_error&) {
        // No thread to be had: when it is asked for, then.
      }
    }
    return std::async(std::launch::deferred, std::move(work));
  }

  // Whether it need not be waited for.
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
  double kernel_seconds_ = 0;  // that one took to compile, in the last batch
  std::mutex compiled_mutex_;
  double compiled_at_ = 0;  // when the last batch was
  double selected_ = 0;     // seconds of the best selection so far
  double select_at_ = 0;    // when it is to be worked out again
  double look_at_ = 0;      // when a selection may be asked again what it wants
  std::future<double> selecting_;
  std::future<Wanted> wanting_;
  double wanted_at_ = 0;
  double wanting_seconds_ = 0;  // that the last selection took
};

}  // namespace

Result<Explored> explore(const Graph& graph, const Candidates& candidates, const ExploreSettings& settings,
                         const KernelMaker* kernels, Database& database, Worker& worker) {
  return Explorer(graph, candidates, settings, kernels, database, worker).run();
}

}  // namespace millrace
