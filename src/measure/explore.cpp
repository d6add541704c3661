#include "measure/explore.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <future>
#include <limits>
#include <memory>
#include <set>

#include "base/clock.h"
#include "base/text.h"
#include "codegen/lower.h"

namespace millrace {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kForConversions = 0.2;  // of the budget
constexpr double kSelectEvery = 5;       // seconds
constexpr size_t kConvertedLayouts = 3;  // of the fastest ways of a tensor's writer, and of each of its readers
constexpr double kRefined = 1.1;         // of the best: products that are as fast are tried by every algorithm
constexpr size_t kRefinedLayouts = 4;    // of a part, unless all are asked for
constexpr size_t kWantedWays = 12;       // under the layouts that a selection takes, beside the one that it takes
constexpr double kForWanted = 0.25;      // of the time, at most, where nothing is measured meanwhile
constexpr size_t kConversionWays = 2;    // of a pair of layouts, unless all are asked for
constexpr double kMustBe = 1e9;          // more than any trial is worth by its seconds
constexpr double kWorthMost = 1e8;
constexpr double kFirstKernels = 8;  // of a batch, when it is not known yet how long one takes to compile

// A candidate to try, by whichever of the equal parts has it.
struct Trial {
  const Part* part = nullptr;
  const Candidate* candidate = nullptr;
  TensorId converted;  // valid: a conversion of this tensor
  std::string text;
  int family = 0;       // of its way, by number
  int shape = 0;        // a narrower one
  bool first = false;   // of those without which there would be no plan: tried whatever the budget
  bool wanted = false;  // by a selection
  bool chosen = false;
  bool known = false;  // its outcome
};

// Parts that compute the same, under different names: what one takes, all take.
struct PartClass {
  std::string text;
  size_t parts = 0;  // how many
  std::vector<Trial> trials;
  std::map<std::string, size_t> numbers;       // of the trials, by their texts
  std::map<int, std::vector<double>> ratios;   // of measured and estimated seconds, by family and by shape
  std::map<std::string, MeasurementRow> rows;  // by candidate
  double best = kInfinite;
};

class Explorer {
 public:
  Explorer(const Graph& graph, const Candidates& candidates, const ExploreSettings& settings,
           const KernelMaker* kernels, Database& database, Worker& worker)
      : graph_(graph),
        candidates_(candidates),
        settings_(settings),
        kernels_(kernels),
        database_(database),
        worker_(worker) {}

  Result<Explored> run() {
    begin_ = now();
    find_classes();
    find_equal_tensors();
    if (Result<Done> known = recall_conversions(); !known) return known.error();
    if (Result<Done> known = recall(); !known) return known.error();
    const double end = settings_.exhaustive ? kInfinite : begin_ + settings_.budget_seconds * (1 - kForConversions);
    if (Result<Done> tried = try_all(end); !tried) return tried.error();
    if (settings_.assume) assume();
    find_conversions();
    if (Result<Done> known = recall(); !known) return known.error();
    const double last = settings_.exhaustive ? kInfinite : begin_ + settings_.budget_seconds;
    if (Result<Done> tried = try_all(last); !tried) return tried.error();
    if (settings_.assume) assume();
    explored_.measurements = measurements();
    for (size_t number = 0; number < candidates_.parts.size(); ++number)
      explored_.summary.parts.push_back(tried(number));
    explored_.summary.seconds = now() - begin_;
    return std::move(explored_);
  }

 private:
  // --- What there is to try ---

  // The number of a part's class: a new one where no equal part is known.
  size_t classify(const Part& part) {
    const std::string text = print_part(graph_, part);
    const auto [found, fresh] = class_by_text_.try_emplace(text, classes_.size());
    if (fresh) {
      classes_.emplace_back();
      classes_.back().text = text;
    }
    return found->second;
  }

  const PartClass& class_of(size_t part) const { return classes_[class_of_part_[part]]; }

  // Ways that the byte model misjudges alike.
  static std::string family_of(const Candidate& candidate) {
    if (const auto* gemm = std::get_if<GemmWay>(&candidate.way)) {
      if (gemm->library == GemmLibrary::cublaslt) return gemm->tensor_cores ? "cublaslt" : "cublaslt plain";
      return concat(gemm->library == GemmLibrary::blis ? "blis" : "openblas", gemm->threads_over_loops ? " over" : "");
    }
    const auto& kernel = std::get<KernelWay>(candidate.way);
    return concat(kernel.rows ? "rows " : "flat ", kernel.threads, kernel.block != kNoIndex ? " in blocks" : "");
  }

  static std::string chain(const std::vector<int>& indices) {
    std::string text = "|";
    for (const int index : indices) text += concat(index, ".");
    return text;
  }

  // Ways of a family that are fast or slow together: how a GPU's threads share the work, and a library's algorithms.
  static std::string shape_of(const Candidate& candidate) {
    if (const auto* gemm = std::get_if<GemmWay>(&candidate.way)) {
      const GemmAlgorithm& of = gemm->algorithm;
      if (of.id < 0) return concat(family_of(candidate), " ", chain(gemm->m), chain(gemm->n), chain(gemm->k));
      return concat(family_of(candidate), " ", of.id, " ", of.tile, " ", of.stages, " ", of.cluster);
    }
    const std::optional<GpuShape>& gpu = std::get<KernelWay>(candidate.way).gpu;
    if (!gpu) return family_of(candidate);
    return concat(family_of(candidate), " ", gpu->width, " ", gpu->group, " ", gpu->threads, " ", gpu->blocks, " ",
                  gpu->ahead);
  }

  int number_of(const std::string& family) {
    return family_numbers_.try_emplace(family, static_cast<int>(family_numbers_.size())).first->second;
  }

  Trial trial_of(const Part& part, const Candidate& candidate, TensorId converted = TensorId()) {
    Trial trial;
    trial.part = &part;
    trial.candidate = &candidate;
    trial.converted = converted;
    trial.text = print_candidate(candidates_.domains, part, candidate);
    trial.family = number_of(family_of(candidate));
    trial.shape = number_of(shape_of(candidate));
    return trial;
  }

  // For tensors as the program writes them, the most promising way of each family is tried before all else. A part that
  // has none, such as a product whose batch would need two strides, takes the most promising way, and what it reads and
  // writes is converted.
  void find_classes() {
    for (const PartCandidates& of : candidates_.parts) {
      explored_.summary.configurations += of.configurations;
      class_of_part_.push_back(classify(of.part));
      PartClass& into = classes_[class_of_part_.back()];
      ++into.parts;
      const bool as_written = std::any_of(of.candidates.begin(), of.candidates.end(), [&](const Candidate& candidate) {
        return lies_as_written(candidates_.domains, of.part, candidate);
      });
      if (!as_written) {
        converted_.insert(of.part.reads.begin(), of.part.reads.end());
        converted_.insert(of.part.writes.begin(), of.part.writes.end());
      }
      std::set<int> families;
      trials_of_part_.emplace_back();
      for (const Candidate& candidate : of.candidates) {
        Trial trial = trial_of(of.part, candidate);
        const bool could_be =
            as_written ? lies_as_written(candidates_.domains, of.part, candidate) : fits(of.part, candidate);
        trial.first = could_be && families.insert(trial.family).second;
        trials_of_part_.back().push_back(add(into, std::move(trial)));
      }
    }
  }

  // The number of the trial. What an equal part must try is tried, whichever part has it.
  static size_t add(PartClass& into, Trial trial) {
    const auto [known, fresh] = into.numbers.try_emplace(trial.text, into.trials.size());
    if (fresh) {
      into.trials.push_back(std::move(trial));
    } else if (trial.first) {
      into.trials[known->second].first = true;
    }
    return known->second;
  }

  // --- Conversions, between the layouts that fast ways write and read ---

  std::set<int> promising(TensorId tensor, bool written) const {
    std::set<int> layouts;
    for (size_t number = 0; number < candidates_.parts.size(); ++number) {
      const Part& part = candidates_.parts[number].part;
      const std::vector<TensorId>& list = written ? part.writes : part.reads;
      const auto at = std::find(list.begin(), list.end(), tensor);
      if (at == list.end()) continue;
      const auto place = static_cast<size_t>(at - list.begin()) + (written ? part.reads.size() : 0);
      std::vector<std::pair<double, int>> fastest;
      for (const auto& [seconds, candidate] : measured_ways(number))
        fastest.emplace_back(seconds, candidate.layouts[place]);
      std::sort(fastest.begin(), fastest.end());
      std::set<int> of_part;
      for (const auto& [seconds, layout] : fastest) {
        if (of_part.size() >= kConvertedLayouts && !settings_.exhaustive) break;
        of_part.insert(layout);
      }
      layouts.merge(of_part);
    }
    return layouts;
  }

  void find_conversions() {
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      const TensorDomain& domain = candidates_.domains[k];
      if (domain.layouts.size() < 2) continue;
      std::set<int> from = promising(TensorId(k), true);
      std::set<int> to = promising(TensorId(k), false);
      if (domain.pinned >= 0) (from.empty() ? from : to).insert(domain.pinned);
      for (const int source : from) {
        for (const int target : to) {
          if (source != target && can_convert(TensorId(k), source, target))
            add_conversions(TensorId(k), source, target);
        }
      }
    }
  }

  bool can_convert(TensorId tensor, int from, int to) const {
    const std::vector<Layout>& layouts = candidates_.domains[tensor.at()].layouts;
    return layouts[static_cast<size_t>(from)].storage == MaskStorage::words &&
           layouts[static_cast<size_t>(to)].storage == MaskStorage::words;
  }

  // Of all tensors that are equal: what one's takes, all take.
  void add_conversions(TensorId tensor, int from, int to) {
    const auto equal = std::find_if(equal_tensors_.begin(), equal_tensors_.end(), [&](const EqualTensors& of) {
      return std::find(of.tensors.begin(), of.tensors.end(), tensor) != of.tensors.end();
    });
    if (equal == equal_tensors_.end()) return;
    for (const TensorId one : equal->tensors) {
      const auto layouts = static_cast<int>(candidates_.domains[one.at()].layouts.size());
      if (from < layouts && to < layouts && can_convert(one, from, to)) add_conversion(one, from, to);
    }
  }

  void find_equal_tensors() {
    std::map<std::string, size_t> by_text;
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      if (candidates_.domains[k].layouts.size() < 2 || !is_touched(TensorId(k))) continue;
      Part part = settings_.conversions(TensorId(k), 0, 1).part;
      const auto [known, fresh] = by_text.try_emplace(print_part(graph_, part), equal_tensors_.size());
      if (fresh) equal_tensors_.push_back({known->first, std::move(part), {}});
      equal_tensors_[known->second].tensors.emplace_back(k);
    }
  }

  void add_conversion(TensorId tensor, int from, int to) {
    if (!converting_.insert({tensor, from, to}).second) return;
    conversions_.push_back(std::make_unique<PartCandidates>(settings_.conversions(tensor, from, to)));
    PartCandidates& of = *conversions_.back();
    explored_.summary.conversions += static_cast<double>(of.candidates.size());
    if (!settings_.exhaustive && of.candidates.size() > kConversionWays) of.candidates.resize(kConversionWays);
    const size_t class_number = classify(of.part);
    PartClass& into = classes_[class_number];
    for (const Candidate& candidate : of.candidates) {
      Trial trial = trial_of(of.part, candidate, tensor);
      trial.first = converted_.contains(tensor) && &candidate == &of.candidates.front();
      conversion_texts_.push_back({tensor, from, to, class_number, trial.text});
      add(into, std::move(trial));
    }
  }

  // --- The database ---

  // What is stored stands for exactly this source text: another generator makes another name.
  std::string key_of(const Trial& trial, const Launch& launch) const {
    if (launch.kernel.empty() || kernels_ == nullptr) return trial.text;
    return concat(trial.text, " ", kernels_->name_of(launch));
  }

  Launch launch_of(const Trial& trial) const {
    return lower(graph_, *trial.part, layouts_of(candidates_.domains, *trial.part, *trial.candidate),
                 trial.candidate->way);
  }

  Result<Done> recall() {
    std::vector<std::string> texts;
    for (const PartClass& of : classes_) {
      if (!recalled_.contains(of.text)) texts.push_back(of.text);
    }
    recalled_.insert(texts.begin(), texts.end());
    const Result<std::vector<MeasurementRow>> rows = database_.all_of(settings_.device, texts);
    if (!rows) return rows.error();
    std::map<std::string, std::map<std::string, const MeasurementRow*>> by_part;
    for (const MeasurementRow& row : *rows)
      by_part[row.key.part][row.key.candidate.substr(0, row.key.candidate.rfind(" k_"))] = &row;
    for (PartClass& of : classes_) {
      const auto found = by_part.find(of.text);
      if (found == by_part.end()) continue;
      for (const auto& [text, row] : found->second) recall_one(of, text, *row);
      recall_refinements(of, found->second);
    }
    return Done{};
  }

  // Conversions that were tried, for this program or another one with equal tensors.
  Result<Done> recall_conversions() {
    for (const EqualTensors& of : equal_tensors_) {
      const Result<std::vector<MeasurementRow>> rows = database_.all_of(settings_.device, {of.text});
      if (!rows) return rows.error();
      for (const MeasurementRow& row : *rows) {
        const std::string text = row.key.candidate.substr(0, row.key.candidate.rfind(" k_"));
        const std::optional<Candidate> candidate = parse_candidate(candidates_.domains, of.part, text);
        if (candidate && candidate->layouts[0] != candidate->layouts[1])
          add_conversions(of.tensors.front(), candidate->layouts[0], candidate->layouts[1]);
      }
    }
    return Done{};
  }

  // Refinements are not among the candidates until they are asked for; those that were tried are known.
  void recall_refinements(PartClass& of, const std::map<std::string, const MeasurementRow*>& rows) {
    if (of.trials.empty() || !settings_.refinements) return;
    const Part& part = *of.trials.front().part;
    std::map<std::vector<int>, const Candidate*> by_layouts;
    for (const Trial& trial : of.trials) by_layouts.emplace(trial.candidate->layouts, trial.candidate);
    std::set<std::vector<int>> seen;
    for (const auto& [text, row] : rows) {
      if (!of.numbers.contains(text)) add_refinements_like(of, part, text, by_layouts, seen);
      recall_one(of, text, *row);
    }
  }

  // Those that the text of one names.
  void add_refinements_like(PartClass& of, const Part& part, const std::string& text,
                            const std::map<std::vector<int>, const Candidate*>& by_layouts,
                            std::set<std::vector<int>>& seen) {
    std::optional<Candidate> candidate = parse_candidate(candidates_.domains, part, text);
    const auto base = candidate ? by_layouts.find(candidate->layouts) : by_layouts.end();
    if (base == by_layouts.end()) return;
    if (std::holds_alternative<GemmWay>(candidate->way)) {
      if (!of.numbers.contains(own_choice_text(part, *candidate))) return;
      candidate->estimate = base->second->estimate;
      add_trial(of, part, std::move(*candidate));
    } else if (seen.insert(candidate->layouts).second) {
      for (Candidate& other : settings_.refinements(part, *base->second)) add_trial(of, part, std::move(other));
    }
  }

  void recall_one(PartClass& of, const std::string& text, const MeasurementRow& row) {
    const auto number = of.numbers.find(text);
    if (number == of.numbers.end()) return;
    Trial& trial = of.trials[number->second];
    if (trial.known || row.key.candidate != key_of(trial, launch_of(trial))) return;
    note(of, trial, row);
    explored_.summary.known += 1;
  }

  void note(PartClass& of, Trial& trial, const MeasurementRow& row) {
    of.rows[trial.text] = row;
    trial.known = true;
    explored_.summary.outcomes[std::string(kOutcomeNames.at(static_cast<size_t>(row.outcome)))] += 1;
    if (row.outcome == Outcome::measured) {
      of.best = std::min(of.best, row.seconds);
      const double ratio = row.seconds / std::max(trial.candidate->estimate, 1e-9);
      of.ratios[trial.family].push_back(ratio);
      if (trial.shape != trial.family) of.ratios[trial.shape].push_back(ratio);
      ratios_[trial.family].push_back(ratio);
    }
    if (row.outcome != Outcome::measured && explored_.summary.first_failure.empty())
      explored_.summary.first_failure = concat(trial.part->name, ": ", trial.text, ": ", row.detail);
  }

  // --- Trying ---

  static double middle(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
    return values[values.size() / 2];
  }

  // What the model's seconds are multiplied by: as ways of this shape took so far, else of this family; of this part,
  // else of any. By shape, and worked out when asked for.
  using Corrections = std::vector<double>;

  double expected(const PartClass& of, const Trial& trial, Corrections& corrections) const {
    corrections.resize(family_numbers_.size(), 0);
    double& correction = corrections[static_cast<size_t>(trial.shape)];
    if (correction == 0) {
      correction = 1;
      const auto as_shape = of.ratios.find(trial.shape);
      const auto own = as_shape != of.ratios.end() ? as_shape : of.ratios.find(trial.family);
      const auto any = ratios_.find(trial.family);
      if (own != of.ratios.end()) {
        correction = middle(own->second);
      } else if (any != ratios_.end()) {
        correction = middle(any->second);
      }
    }
    return trial.candidate->estimate * correction;
  }

  // The trial of a class that promises most.
  std::optional<size_t> next_of(const PartClass& of) const {
    std::optional<size_t> best;
    std::optional<size_t> wanted;
    double best_seconds = kInfinite;
    Corrections corrections;
    for (size_t k = 0; k < of.trials.size(); ++k) {
      const Trial& trial = of.trials[k];
      if (trial.chosen || trial.known) continue;
      if (trial.first) return k;
      if (trial.wanted) wanted = wanted.value_or(k);
      const double seconds = expected(of, trial, corrections);
      if (best && seconds >= best_seconds) continue;
      best = k;
      best_seconds = seconds;
    }
    return wanted ? wanted : best;
  }

  // The class that is worth the next trial: by what it costs in a step and how often it was tried; cheap ones too.
  std::optional<size_t> choose(const std::vector<std::optional<size_t>>& next,
                               const std::vector<size_t>& pending) const {
    double mean = 0;
    for (const PartClass& of : classes_) {
      if (of.best < kInfinite) mean += of.best / static_cast<double>(classes_.size());
    }
    std::optional<size_t> best;
    double best_worth = -1;
    for (size_t k = 0; k < classes_.size(); ++k) {
      if (!next[k]) continue;
      const PartClass& of = classes_[k];
      const auto tried = static_cast<double>(of.rows.size() + pending[k]);
      const double seconds = of.best == kInfinite ? 1e3 : of.best * static_cast<double>(of.parts);
      const Trial& trial = of.trials[*next[k]];
      const double worth = trial.first ? kMustBe : trial.wanted ? kWorthMost : (seconds + mean) / (tried + 1);
      if (worth <= best_worth) continue;
      best_worth = worth;
      best = k;
    }
    return best;
  }

  bool has_baselines_left() const {
    return std::any_of(classes_.begin(), classes_.end(), [](const PartClass& of) {
      return std::any_of(of.trials.begin(), of.trials.end(),
                         [](const Trial& trial) { return trial.first && !trial.known; });
    });
  }

  // The model's word for what would be tried whatever the budget; such rows are in no database.
  void assume() {
    for (PartClass& of : classes_) {
      Corrections corrections;
      for (Trial& trial : of.trials) {
        if (!trial.first || trial.known) continue;
        MeasurementRow row;
        row.outcome = Outcome::measured;
        row.seconds = row.low = row.high = expected(of, trial, corrections);
        of.rows[trial.text] = row;
        trial.known = true;
      }
    }
  }

  struct Chosen {
    PartClass* of = nullptr;
    size_t number = 0;

    Trial& trial() const { return of->trials[number]; }
  };

  struct Compiled {
    std::vector<Result<MadeKernel>> kernels;  // of the launches that have one
    double seconds = 0;
  };

  // Candidates that were chosen together, and their kernels on the way.
  struct Batch {
    std::vector<Chosen> chosen;
    std::vector<Launch> launches;
    std::future<Compiled> kernels;
  };

  Result<Done> try_all(double end) {
    if (!settings_.measure) return Done{};
    std::optional<Batch> ahead;
    while (now() < end || has_baselines_left()) {
      refine_fastest();
      want(end);
      Batch batch = ahead ? std::move(*ahead) : choose_batch(end);
      ahead.reset();
      if (batch.chosen.empty()) return Done{};
      if (settings_.compile_ahead) {
        if (Batch next = choose_batch(end); !next.chosen.empty()) ahead = std::move(next);
      }
      if (Result<Done> tried = try_batch(batch, end); !tried) return tried;
    }
    if (ahead) {
      for (const Chosen& chosen : ahead->chosen) chosen.trial().chosen = false;
    }
    return Done{};
  }

  // How many kernels there is time for. A batch of more would be compiled past the end, for nothing.
  double kernels_until(double end) const {
    if (now() >= end) return 0;
    if (kernel_seconds_ > 0) return std::max(1.0, (end - now()) / kernel_seconds_);
    return end == kInfinite ? kInfinite : kFirstKernels;
  }

  Batch choose_batch(double end) {
    Batch batch;
    const double most_kernels = kernels_until(end);
    double kernels = 0;
    std::vector<std::optional<size_t>> next;
    for (const PartClass& of : classes_) next.push_back(next_of(of));
    std::vector<size_t> pending(classes_.size(), 0);
    while (batch.chosen.size() < settings_.batch) {
      const std::optional<size_t> chosen = choose(next, pending);
      if (!chosen) break;
      PartClass& of = classes_[*chosen];
      Trial& trial = of.trials[*next[*chosen]];
      if (std::holds_alternative<KernelWay>(trial.candidate->way) && ++kernels > most_kernels && !trial.first) break;
      trial.chosen = true;
      batch.chosen.push_back({&of, *next[*chosen]});
      ++pending[*chosen];
      next[*chosen] = next_of(of);
    }
    // Candidates of one part together: its truth is worked out once.
    std::stable_sort(batch.chosen.begin(), batch.chosen.end(),
                     [](const Chosen& l, const Chosen& r) { return l.of < r.of; });
    std::vector<Launch> with_kernels;
    for (const Chosen& chosen : batch.chosen) {
      batch.launches.push_back(launch_of(chosen.trial()));
      if (!batch.launches.back().kernel.empty()) with_kernels.push_back(batch.launches.back());
    }
    const auto compile = [this, launches = std::move(with_kernels)] {
      if (kernels_ == nullptr || launches.empty()) return Compiled{};
      const double begin = now();
      std::vector<Result<MadeKernel>> made = kernels_->make(launches);
      return Compiled{std::move(made), now() - begin};
    };
    batch.kernels = std::async(settings_.compile_ahead ? std::launch::async : std::launch::deferred, compile);
    return batch;
  }

  // Every way under the fastest layouts of a part: what is learnt of them holds for others.
  void refine_fastest() {
    if (!settings_.refinements) return;
    for (PartClass& of : classes_) {
      std::vector<std::pair<double, size_t>> fastest;
      for (const auto& [text, row] : of.rows) {
        if (row.outcome != Outcome::measured) continue;
        const size_t number = of.numbers.at(text);
        const GemmAlgorithm* const algorithm = algorithm_of(*of.trials[number].candidate);
        if (algorithm == nullptr || algorithm->id >= 0) continue;
        if (settings_.exhaustive || row.seconds <= kRefined * of.best) fastest.emplace_back(row.seconds, number);
      }
      std::sort(fastest.begin(), fastest.end());
      if (!settings_.exhaustive && fastest.size() > kRefinedLayouts) fastest.resize(kRefinedLayouts);
      for (const auto& [seconds, number] : fastest) refine(of, number);
    }
  }

  // Null: it is a kernel. One without an id is the library's own choice.
  static const GemmAlgorithm* algorithm_of(const Candidate& candidate) {
    const auto* const gemm = std::get_if<GemmWay>(&candidate.way);
    return gemm == nullptr ? nullptr : &gemm->algorithm;
  }

  // The text of the library's own choice in the place of an algorithm.
  std::string own_choice_text(const Part& part, Candidate candidate) const {
    std::get<GemmWay>(candidate.way).algorithm = {};
    return print_candidate(candidates_.domains, part, candidate);
  }

  // Makes trials, once, of all ways under a trial's layouts; of a product, of all algorithms that cut it alike.
  void refine(PartClass& of, size_t number) {
    const Trial base = of.trials[number];
    const bool by_library = algorithm_of(*base.candidate) != nullptr;
    if (!refined_.emplace(&of, by_library ? base.text : std::string(), base.candidate->layouts).second) return;
    for (Candidate& candidate : settings_.refinements(*base.part, *base.candidate)) {
      if (by_library) candidate.estimate = base.candidate->estimate;
      add_trial(of, *base.part, std::move(candidate));
    }
  }

  // A candidate that was not there from the beginning. Shapes were counted when the parts' ways were enumerated,
  // algorithms were not.
  void add_trial(PartClass& of, const Part& part, Candidate candidate) {
    auto own = std::make_unique<Candidate>(std::move(candidate));
    Trial trial = trial_of(part, *own);
    if (of.numbers.contains(trial.text)) return;
    added_.push_back(std::move(own));
    if (algorithm_of(*trial.candidate) != nullptr) explored_.summary.configurations += 1;
    add(of, std::move(trial));
  }

  // --- What a selection wants ---

  // Parts are not free of each other: the fastest ways of two need not go together. So every now and then a selection
  // is made in which ways and conversions that were not tried are as fast as expected; what it takes is tried next.
  // Where compilers do not disturb the measuring, selecting does not either.
  void want(double end) {
    if (!settings_.wanted || settings_.exhaustive || has_baselines_left()) return;
    if (!wanting_.valid()) {
      if (now() + wanting_seconds_ >= end) return;
      if (!settings_.compile_ahead && wanting_seconds_ > kForWanted * (now() - wanted_at_)) return;
      wanted_at_ = now();
      wanting_ = std::async(settings_.compile_ahead ? std::launch::async : std::launch::deferred,
                            [this, expecting = expected_measurements()] { return settings_.wanted(expecting); });
    }
    if (settings_.compile_ahead && wanting_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    const Wanted wanted = wanting_.get();
    wanting_seconds_ = now() - wanted_at_;
    wanted_at_ = now();
    for (const Wanted::Way& way : wanted.ways) want_way(way);
    for (const Wanted::Conversion& conversion : wanted.conversions) want_conversion(conversion);
  }

  // The way itself, and when that has been measured, others under its layouts.
  void want_way(const Wanted::Way& way) {
    const auto number = std::find_if(candidates_.parts.begin(), candidates_.parts.end(),
                                     [&](const PartCandidates& of) { return of.part.name == way.part; });
    if (number == candidates_.parts.end()) return;
    PartClass& of = classes_[class_of_part_[static_cast<size_t>(number - candidates_.parts.begin())]];
    const auto found = of.numbers.find(way.candidate);
    if (found == of.numbers.end()) return;
    const size_t taken = found->second;
    if (!of.trials[taken].known) {
      of.trials[taken].wanted = true;
      if (std::holds_alternative<GemmWay>(of.trials[taken].candidate->way)) return;
    }
    if (!settings_.refinements) return;
    const std::vector<int> layouts = of.trials[taken].candidate->layouts;
    refine(of, base_of(of, taken));
    Corrections corrections;
    std::vector<std::pair<double, size_t>> under;
    for (size_t k = 0; k < of.trials.size(); ++k) {
      const Trial& trial = of.trials[k];
      if (trial.candidate->layouts != layouts) continue;
      under.emplace_back(expected(of, trial, corrections), k);
    }
    std::sort(under.begin(), under.end());
    if (under.size() > kWantedWays) under.resize(kWantedWays);
    for (const auto& [seconds, k] : under) of.trials[k].wanted = true;
  }

  // What a trial refines.
  size_t base_of(const PartClass& of, size_t number) const {
    const Trial& trial = of.trials[number];
    if (algorithm_of(*trial.candidate) == nullptr) return number;
    const auto found = of.numbers.find(own_choice_text(*trial.part, *trial.candidate));
    return found == of.numbers.end() ? number : found->second;
  }

  void want_conversion(const Wanted::Conversion& conversion) {
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      if (graph_.tensors[k].name != conversion.tensor) continue;
      add_conversions(TensorId(k), conversion.from, conversion.to);
      for (const ConversionText& text : conversion_texts_) {
        if (text.tensor != TensorId(k) || text.from != conversion.from || text.to != conversion.to) continue;
        PartClass& of = classes_[text.part_class];
        of.trials[of.numbers.at(text.candidate)].wanted = true;
      }
    }
  }

  // What is measured, and for other layouts what is expected.
  Measurements expected_measurements() {
    Measurements made;
    const std::vector<int> tensor_of = make_tensors(made);
    make_parts(tensor_of, true, made);
    make_conversions(tensor_of, made);
    add_expected_conversions(tensor_of, made);
    return made;
  }

  void add_expected_ways(size_t number, std::vector<MeasuredWay>& ways) const {
    const PartCandidates& candidates = candidates_.parts[number];
    const PartClass& of = class_of(number);
    std::map<std::vector<int>, std::pair<double, size_t>> expecting;  // by layouts
    for (const MeasuredWay& way : ways) expecting[way.layouts] = {-1, 0};
    Corrections corrections;
    for (size_t k = 0; k < candidates.candidates.size(); ++k) {
      const Candidate& candidate = candidates.candidates[k];
      const size_t trial = trials_of_part_[number][k];
      if (of.trials[trial].known || !fits(candidates.part, candidate)) continue;
      const double seconds = expected(of, of.trials[trial], corrections);
      const auto [known, fresh] = expecting.try_emplace(candidate.layouts, seconds, trial);
      if (!fresh && seconds < known->second.first) known->second = {seconds, trial};
    }
    for (const auto& [layouts, best] : expecting) {
      const auto& [seconds, trial] = best;
      if (seconds >= 0) ways.push_back({of.trials[trial].text, layouts, seconds, seconds, seconds});
    }
  }

  // Between layouts that some way writes, or the caller gives, and some way reads, or the caller expects.
  void add_expected_conversions(const std::vector<int>& tensor_of, Measurements& made) {
    std::vector<std::array<std::set<int>, 2>> layouts(made.tensors.size());
    for (const MeasuredPart& part : made.parts) {
      for (const MeasuredWay& way : part.ways) {
        for (size_t k = 0; k < way.layouts.size(); ++k) {
          const bool written = k >= part.reads.size();
          const int tensor = written ? part.writes[k - part.reads.size()] : part.reads[k];
          layouts[static_cast<size_t>(tensor)][written ? 0 : 1].insert(way.layouts[k]);
        }
      }
    }
    std::set<std::tuple<int, int, int>> known;
    for (const MeasuredConversion& conversion : made.conversions)
      known.emplace(conversion.tensor, conversion.from, conversion.to);
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      if (tensor_of[k] < 0) continue;
      auto& [from, to] = layouts[static_cast<size_t>(tensor_of[k])];
      const int pinned = candidates_.domains[k].pinned;
      if (pinned >= 0) (from.empty() ? from : to).insert(pinned);
      for (const int source : from) {
        for (const int target : to) {
          if (source == target || !can_convert(TensorId(k), source, target)) continue;
          if (known.contains({tensor_of[k], source, target})) continue;
          made.conversions.push_back({tensor_of[k], source, target, expected_conversion(TensorId(k), source, target)});
        }
      }
    }
  }

  // By the model, which takes all of a tensor's conversions to be alike.
  double expected_conversion(TensorId tensor, int from, int to) {
    const auto [known, fresh] = conversion_seconds_.try_emplace(tensor, 0);
    if (fresh) {
      const PartCandidates of = settings_.conversions(tensor, from, to);
      if (!of.candidates.empty()) known->second = of.candidates.front().estimate;
    }
    return known->second;
  }

  Result<Done> try_batch(Batch& batch, double end) {
    show("compiling");
    const auto [compiled, seconds] = batch.kernels.get();
    if (!compiled.empty()) kernel_seconds_ = seconds / static_cast<double>(compiled.size());
    size_t next = 0;
    for (size_t k = 0; k < batch.chosen.size(); ++k) {
      PartClass& of = *batch.chosen[k].of;
      Trial& trial = batch.chosen[k].trial();
      const bool by_kernel = !batch.launches[k].kernel.empty();
      const Result<MadeKernel>* kernel = by_kernel && kernels_ != nullptr ? &compiled[next++] : nullptr;
      if (now() > end && !trial.first) {
        trial.chosen = false;
        continue;
      }
      Result<MeasurementRow> row = try_one(of, trial, by_kernel, kernel);
      if (!row) return row.error();
      row->key = {settings_.device, of.text, key_of(trial, batch.launches[k])};
      row->when = utc_now();
      row->detail = storable_detail(row->detail);
      if (Result<Done> stored = database_.put(*row); !stored) return stored;
      note(of, trial, *row);
      explored_.summary.tried += 1;
      show("measuring");
    }
    return Done{};
  }

  Result<MeasurementRow> try_one(const PartClass& of, const Trial& trial, bool by_kernel,
                                 const Result<MadeKernel>* kernel) {
    MeasurementRow failed;
    if (by_kernel && kernel == nullptr) {
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
    request.part = request.conversion ? graph_.tensor(trial.converted).name : trial.part->name;
    request.candidate = trial.text;
    if (kernel != nullptr) {
      request.function = (*kernel)->name;
      request.path = (*kernel)->path;
      request.sha256 = (*kernel)->sha256;
    }
    request.settings = settings_.trial;
    request.settings.best_seconds = of.best == kInfinite ? 0 : of.best;
    return worker_.run(request, settings_.hang_seconds);
  }

  void show(const std::string& doing) {
    if (!settings_.progress) return;
    ExploreProgress progress;
    progress.done = explored_.summary.tried + explored_.summary.known;
    progress.total = explored_.summary.configurations + explored_.summary.conversions;
    progress.left = settings_.exhaustive ? 0 : std::max(0.0, begin_ + settings_.budget_seconds - now());
    progress.doing = doing;
    for (const Site& site : candidates_.sites) {
      double best = kInfinite;
      for (const std::vector<int>& alternative : site.alternatives) {
        double sum = 0;
        for (const int part : alternative) sum += class_of(static_cast<size_t>(part)).best;
        best = std::min(best, sum);
      }
      if (best < kInfinite) progress.bound += best;
    }
    progress.seconds = selected_seconds();
    settings_.progress(progress);
  }

  // Worked out anew every few seconds, once every part has a way.
  double selected_seconds() {
    if (!settings_.select || now() - selected_at_ < kSelectEvery || has_baselines_left()) return selected_;
    selected_ = settings_.select(measurements());
    selected_at_ = now();
    return selected_;
  }

  // --- What came of it ---

  // Of a part: the measured ways that are its candidates, or that an equal part's are and it could take.
  std::vector<std::pair<double, Candidate>> measured_ways(size_t number) const {
    std::vector<std::pair<double, Candidate>> ways;
    const Part& part = candidates_.parts[number].part;
    const PartClass& of = class_of(number);
    for (const auto& [text, row] : of.rows) {
      if (row.outcome != Outcome::measured) continue;
      std::optional<Candidate> candidate = parse_candidate(candidates_.domains, part, text);
      if (!candidate || !fits(part, *candidate)) continue;
      ways.emplace_back(row.seconds, std::move(*candidate));
    }
    return ways;
  }

  bool fits(const Part& part, const Candidate& candidate) const {
    size_t k = 0;
    for (const TensorId tensor : tensors_of(part)) {
      if (!candidates_.domains[tensor.at()].can_lie(candidate.layouts[k++])) return false;
    }
    return true;
  }

  Measurements measurements() const {
    Measurements made;
    const std::vector<int> tensor_of = make_tensors(made);
    make_parts(tensor_of, false, made);
    make_conversions(tensor_of, made);
    return made;
  }

  // Where each of the graph's tensors is among the measured ones; -1: not there.
  std::vector<int> make_tensors(Measurements& made) const {
    std::vector<int> tensor_of(graph_.tensors.size(), -1);
    for (size_t k = 0; k < graph_.tensors.size(); ++k) {
      const TensorDomain& domain = candidates_.domains[k];
      if (domain.layouts.empty() || !is_touched(TensorId(k))) continue;
      tensor_of[k] = static_cast<int>(made.tensors.size());
      MeasuredTensor tensor{graph_.tensors[k].name, {}, domain.pinned};
      for (const Layout& layout : domain.layouts) tensor.layouts.push_back(print_layout(graph_, TensorId(k), layout));
      made.tensors.push_back(std::move(tensor));
    }
    return tensor_of;
  }

  // And their sites. `expected`: with ways that were not tried.
  void make_parts(const std::vector<int>& tensor_of, bool expected, Measurements& made) const {
    for (size_t number = 0; number < candidates_.parts.size(); ++number) {
      const Part& part = candidates_.parts[number].part;
      MeasuredPart into{part.name, part.pass == Pass::backward, {}, {}, fastest_ways(number)};
      for (const TensorId tensor : part.reads) into.reads.push_back(tensor_of[tensor.at()]);
      for (const TensorId tensor : part.writes) into.writes.push_back(tensor_of[tensor.at()]);
      if (expected) add_expected_ways(number, into.ways);
      made.parts.push_back(std::move(into));
    }
    make_sites(made);
  }

  bool is_touched(TensorId tensor) const {
    return std::any_of(candidates_.parts.begin(), candidates_.parts.end(), [&](const PartCandidates& of) {
      const auto has = [&](const std::vector<TensorId>& list) {
        return std::find(list.begin(), list.end(), tensor) != list.end();
      };
      return has(of.part.reads) || has(of.part.writes);
    });
  }

  // Everything that was tried of a part and would fit it.
  TriedPart tried(size_t number) const {
    const Part& part = candidates_.parts[number].part;
    TriedPart made{part.name, {}};
    for (const auto& [text, row] : class_of(number).rows) {
      const std::optional<Candidate> candidate = parse_candidate(candidates_.domains, part, text);
      if (!candidate || !fits(part, *candidate)) continue;
      made.tried.push_back(
          {text, row.seconds, std::string(kOutcomeNames.at(static_cast<size_t>(row.outcome))), row.detail});
    }
    return made;
  }

  // One way for each combination of layouts.
  std::vector<MeasuredWay> fastest_ways(size_t number) const {
    const Part& part = candidates_.parts[number].part;
    const PartClass& of = class_of(number);
    std::map<std::vector<int>, MeasuredWay> fastest;
    for (const auto& [seconds, candidate] : measured_ways(number)) {
      MeasuredWay& way = fastest[candidate.layouts];
      if (!way.candidate.empty() && way.seconds <= seconds) continue;
      const std::string text = print_candidate(candidates_.domains, part, candidate);
      const MeasurementRow& row = of.rows.at(text);
      way = {text, candidate.layouts, row.seconds, row.low, row.high};
    }
    std::vector<MeasuredWay> ways;
    for (auto& [layouts, way] : fastest) ways.push_back(std::move(way));
    return ways;
  }

  // Alternatives of which every part has a way; a site without one keeps its default, so that selection can say what
  // is missing.
  void make_sites(Measurements& made) const {
    for (const Site& site : candidates_.sites) {
      MeasuredSite into;
      for (const std::vector<int>& alternative : site.alternatives) {
        const bool whole = std::all_of(alternative.begin(), alternative.end(),
                                       [&](int part) { return !made.parts[static_cast<size_t>(part)].ways.empty(); });
        if (whole) into.alternatives.push_back(alternative);
      }
      if (into.alternatives.empty()) into.alternatives.push_back(site.alternatives.front());
      made.sites.push_back(std::move(into));
    }
    drop_unused_parts(made);
  }

  // Parts of dropped alternatives are in no site any more.
  static void drop_unused_parts(Measurements& made) {
    std::vector<bool> used(made.parts.size(), false);
    for (const MeasuredSite& site : made.sites) {
      for (const std::vector<int>& alternative : site.alternatives) {
        for (const int part : alternative) used[static_cast<size_t>(part)] = true;
      }
    }
    std::vector<int> renumbered(made.parts.size(), -1);
    std::vector<MeasuredPart> kept;
    for (size_t k = 0; k < made.parts.size(); ++k) {
      if (!used[k]) continue;
      renumbered[k] = static_cast<int>(kept.size());
      kept.push_back(std::move(made.parts[k]));
    }
    made.parts = std::move(kept);
    for (MeasuredSite& site : made.sites) {
      for (std::vector<int>& alternative : site.alternatives) {
        for (int& part : alternative) part = renumbered[static_cast<size_t>(part)];
      }
    }
  }

  void make_conversions(const std::vector<int>& tensor_of, Measurements& made) const {
    std::map<std::tuple<TensorId, int, int>, MeasuredConversion> fastest;
    for (const ConversionText& conversion : conversion_texts_) {
      const PartClass& of = classes_[conversion.part_class];
      const auto row = of.rows.find(conversion.candidate);
      if (row == of.rows.end() || row->second.outcome != Outcome::measured) continue;
      MeasuredConversion& known = fastest[{conversion.tensor, conversion.from, conversion.to}];
      if (!known.candidate.empty() && known.seconds <= row->second.seconds) continue;
      known.tensor = tensor_of[conversion.tensor.at()];
      known.from = conversion.from;
      known.to = conversion.to;
      known.seconds = row->second.seconds;
      known.candidate = conversion.candidate;
    }
    for (auto& [key, conversion] : fastest) made.conversions.push_back(std::move(conversion));
  }

  // That are converted alike.
  struct EqualTensors {
    std::string text;  // of their conversion
    Part part;         // of the first one
    std::vector<TensorId> tensors;
  };

  struct ConversionText {
    TensorId tensor;
    int from = 0;
    int to = 0;
    size_t part_class = 0;
    std::string candidate;
  };

  const Graph& graph_;
  const Candidates& candidates_;
  const ExploreSettings& settings_;
  const KernelMaker* kernels_;
  Database& database_;
  Worker& worker_;
  double begin_ = 0;
  std::deque<PartClass> classes_;              // pointed to
  std::map<int, std::vector<double>> ratios_;  // by family
  std::map<std::string, int> family_numbers_;  // of families and shapes
  std::map<std::string, size_t> class_by_text_;
  std::vector<size_t> class_of_part_;  // one a part of the candidates
  std::set<TensorId> converted_;       // of parts that cannot take them as the program writes them
  std::set<std::string> recalled_;
  double kernel_seconds_ = 0;  // that one took to compile, in the last batch
  double selected_ = 0;        // seconds of the best selection so far
  double selected_at_ = 0;     // when it was worked out
  std::vector<std::unique_ptr<PartCandidates>> conversions_;
  std::vector<std::unique_ptr<Candidate>> added_;  // algorithms
  std::set<std::tuple<const PartClass*, std::string, std::vector<int>>> refined_;
  std::vector<EqualTensors> equal_tensors_;
  std::set<std::tuple<TensorId, int, int>> converting_;  // conversions that were added
  std::vector<std::vector<size_t>> trials_of_part_;      // one a candidate of each part
  std::map<TensorId, double> conversion_seconds_;        // expected
  std::future<Wanted> wanting_;
  double wanted_at_ = 0;
  double wanting_seconds_ = 0;  // that the last selection took
  std::vector<ConversionText> conversion_texts_;
  Explored explored_;
};

}  // namespace

Result<Explored> explore(const Graph& graph, const Candidates& candidates, const ExploreSettings& settings,
                         const KernelMaker* kernels, Database& database, Worker& worker) {
  return Explorer(graph, candidates, settings, kernels, database, worker).run();
}

}  // namespace millrace
