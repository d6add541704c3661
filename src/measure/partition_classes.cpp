#include "measure/partition_classes.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "codegen/lower.h"

namespace millrace {
namespace {

// The alternative that takes the least time by the estimates of its partitions' most promising candidates. Others are
// tried later: the partitions of an attention that stores its scores can take a thousand times as long as a fused one.
const std::vector<int>& most_promising(const ChoicePoint& choice_point, const std::vector<double>& estimates) {
  const auto seconds = [&](const std::vector<int>& alternative) {
    double sum = 0;
    for (const int partition : alternative) sum += estimates[as_index(partition)];
    return sum;
  };
  return *std::min_element(choice_point.alternatives.begin(), choice_point.alternatives.end(),
                           [&](const auto& one, const auto& other) { return seconds(one) < seconds(other); });
}

// Whether a plan may use the candidate if there was no time to check it. ptxas 13.0 can compile wgmma wrongly,
// and only cuDNN itself says what it computes.
bool may_be_assumed(const Candidate& candidate) {
  if (std::holds_alternative<CudnnConfig>(candidate.config)) return false;
  const auto* const attention = std::get_if<AttentionConfig>(&candidate.config);
  return attention == nullptr || !attention->wgmma;
}

}  // namespace

double least_estimate(const PartitionCandidates& partition) {
  double least = kNotMeasured;
  for (const Candidate& candidate : partition.candidates) least = std::min(least, candidate.estimate);
  return least;
}

PartitionClasses::PartitionClasses(const Graph& graph, const Candidates& candidates, TimingClassKey timing_class,
                                   SearchMode mode, More more)
    : graph_(graph),
      candidates_(candidates),
      timing_class_(std::move(timing_class)),
      mode_(mode),
      more_(std::move(more)) {
  for (const PartitionCandidates& partition : candidates_.partitions) add_partition(partition);
  std::vector<double> estimates;
  for (const PartitionCandidates& partition : candidates_.partitions) estimates.push_back(least_estimate(partition));
  for (const ChoicePoint& choice_point : candidates_.choice_points) {
    for (const int partition : most_promising(choice_point, estimates))
      classes_[class_of_partition_[as_index(partition)]].comes_first = true;
  }
}

// The baselines are the most promising candidate of each config family with the program's own layouts. A partition that
// has no such candidate, such as a product whose batch would need two strides, uses its most promising candidates, and
// its tensors are converted.
void PartitionClasses::add_partition(const PartitionCandidates& added) {
  configurations_ += added.configurations;
  estimated_ += added.estimated ? 1 : 0;
  class_of_partition_.push_back(classify(added.partition));
  PartitionClass& into = classes_[class_of_partition_.back()];
  ++into.partitions;
  into.members.push_back(class_of_partition_.size() - 1);
  const bool as_written = std::any_of(
      added.candidates.begin(), added.candidates.end(),
      [&](const Candidate& candidate) { return has_written_layouts(candidates_.domains, added.partition, candidate); });
  for (const TensorId tensor : tensors_of(added.partition)) {
    touched_.insert(tensor);
    if (!as_written) converted_.insert(tensor);
  }
  std::set<int> families;
  own_.emplace_back();
  finished_.push_back(false);
  for (const Candidate& candidate : added.candidates) {
    Trial trial = make_trial(added.partition, candidate);
    const bool could_be = as_written ? has_written_layouts(candidates_.domains, added.partition, candidate)
                                     : fits(added.partition, candidate);
    trial.baseline = could_be && families.insert(trial.kind.family).second;
    own_.back().push_back({&candidate, add(into, std::move(trial))});
  }
}

bool PartitionClasses::can_grow(size_t partition) const {
  return more_ && !finished_[partition] && (mode_ == SearchMode::exhaustive || !is_listed_whole(partition));
}

bool PartitionClasses::is_listed_whole(size_t partition) const {
  const PartitionCandidates& listed = candidates_.partitions[partition];
  return finished_[partition] ||
         (!listed.estimated && static_cast<double>(own_[partition].size()) >= listed.configurations);
}

void PartitionClasses::set_hopeless(size_t partition_class, const std::vector<bool>& hopeless) {
  PartitionClass& its_class = classes_[partition_class];
  for (size_t number = 0; number < hopeless.size(); ++number) {
    Trial& trial = its_class.trials[number];
    if (std::exchange(trial.hopeless, hopeless[number]) && trial.is_open()) its_class.queue.put(number, trial);
  }
}

bool PartitionClasses::grow(PartitionClass& its_class) {
  bool grown = false;
  for (const size_t partition : its_class.members) grown = (can_grow(partition) && grow_partition(partition)) || grown;
  return grown;
}

// Adds as many candidates as the partition has: so the groups of a source are made again only a few times, however many
// there are.
bool PartitionClasses::grow_partition(size_t partition) {
  constexpr size_t kFewest = 1000;
  grown_.push_back(more_(partition, std::max(kFewest, own_[partition].size())));
  const std::vector<Candidate>& added = grown_.back();
  if (added.empty()) finish_partition(partition);
  const size_t partition_class = class_of_partition_[partition];
  for (const Candidate& candidate : added) {
    const size_t number = add(classes_[partition_class], make_trial(this->partition(partition), candidate));
    if (std::exchange(at({partition_class, number}).recalled, false)) shared_ -= 1;
    own_[partition].push_back({&candidate, number});
  }
  return !added.empty();
}

void PartitionClasses::add_recalled(size_t partition, Candidate candidate) {
  late_.push_back(std::make_unique<Candidate>(std::move(candidate)));
  Trial trial = make_trial(this->partition(partition), *late_.back());
  trial.recalled = true;
  PartitionClass& into = classes_[class_of_partition_[partition]];
  if (!into.numbers.contains(trial.text)) add(into, std::move(trial));
}

// Now its candidates are known exactly.
void PartitionClasses::finish_partition(size_t partition) {
  finished_[partition] = true;
  const PartitionCandidates& listed = candidates_.partitions[partition];
  if (!listed.estimated) return;
  configurations_ += static_cast<double>(own_[partition].size()) - listed.configurations;
  --estimated_;
}

size_t PartitionClasses::classify(const Partition& partition) {
  const std::string text = print_partition(graph_, partition);
  const auto [found, fresh] = class_by_text_.try_emplace(text, classes_.size());
  if (fresh) {
    classes_.emplace_back();
    classes_.back().text = text;
  }
  return found->second;
}

Trial PartitionClasses::make_trial(const Partition& partition, const Candidate& candidate) {
  Trial trial;
  trial.partition = &partition;
  trial.candidate = &candidate;
  trial.text = print_candidate(candidates_.domains, partition, candidate);
  trial.kind = kinds_.kind_of(candidate, timing_class_key(partition, candidate));
  return trial;
}

// Returns the trial's number. A baseline of one partition is a baseline of the whole class.
size_t PartitionClasses::add(PartitionClass& into, Trial trial) {
  const auto [known, fresh] = into.numbers.try_emplace(trial.text, into.trials.size());
  const size_t number = known->second;
  if (!fresh) shared_ += 1;
  if (!fresh && (!trial.baseline || into.trials[number].baseline)) return number;
  if (fresh) {
    trial.represented = mode_ == SearchMode::exhaustive && trial.kind.timing_class >= 0 &&
                        !into.timing_classes.insert(trial.kind.timing_class).second;
    if (trial.represented) represented_ += 1;
    const auto* const gemm = std::get_if<GemmConfig>(&trial.candidate->config);
    if (gemm != nullptr && gemm->algorithm.id < 0) into.library_choices.push_back(number);
    into.trials.push_back(std::move(trial));
  } else {
    into.trials[number].baseline = true;
  }
  const Trial& stored = into.trials[number];
  if (stored.baseline && !stored.known) ++into.baselines_left;
  into.queue.put(number, stored);
  return number;
}

std::vector<TrialId> PartitionClasses::add_conversion(TensorId tensor, const PartitionCandidates& conversion) {
  const size_t partition_class = classify(conversion.partition);
  std::vector<TrialId> added;
  for (const Candidate& candidate : conversion.candidates) {
    Trial trial = make_trial(conversion.partition, candidate);
    trial.converted = tensor;
    trial.baseline = converted_.contains(tensor) && &candidate == &conversion.candidates.front();
    added.push_back({partition_class, add(classes_[partition_class], std::move(trial))});
  }
  return added;
}

// Enumeration counted the shapes of kernels, but not the algorithms of products.
void PartitionClasses::add_late(size_t partition_class, const Partition& partition, Candidate candidate) {
  auto own = std::make_unique<Candidate>(std::move(candidate));
  Trial trial = make_trial(partition, *own);
  if (classes_[partition_class].numbers.contains(trial.text)) return;
  const auto* const gemm = std::get_if<GemmConfig>(&own->config);
  if (gemm != nullptr && gemm->algorithm.id >= 0) configurations_ += 1;
  late_.push_back(std::move(own));
  add(classes_[partition_class], std::move(trial));
}

std::optional<TrialId> PartitionClasses::find(size_t partition, const std::string& text) const {
  const auto found = class_of(partition).numbers.find(text);
  if (found == class_of(partition).numbers.end()) return std::nullopt;
  return TrialId{class_of_partition_[partition], found->second};
}

void PartitionClasses::learn(const std::vector<Learnt>& learnt) {
  std::map<int, std::vector<double>> by_kind;
  for (const auto& [lesson, seconds] : learnt) {
    const double ratio = seconds / std::max(lesson.estimate, 1e-9);
    by_kind[kinds_.number_of(lesson.family)].push_back(ratio);
    if (lesson.shape != lesson.family) by_kind[kinds_.number_of(lesson.shape)].push_back(ratio);
  }
  earlier_.add_all(by_kind);
}

Launch PartitionClasses::launch_of(const Trial& trial) const {
  return lower(graph_, *trial.partition, layouts_of(candidates_.domains, *trial.partition, *trial.candidate),
               trial.candidate->config);
}

std::optional<size_t> PartitionClasses::next_of(size_t partition_class) {
  PartitionClass& its_class = classes_[partition_class];
  if (its_class.given_up || its_class.deferred) return std::nullopt;
  std::optional<size_t> next = its_class.queue.next(its_class.trials, expectation(its_class));
  while (!next && grow(its_class)) next = its_class.queue.next(its_class.trials, expectation(its_class));
  return next;
}

void PartitionClasses::leave(const TrialId& id) {
  at(id).chosen = false;
  classes_[id.partition_class].queue.put(id.number, at(id));
}

bool PartitionClasses::want(const TrialId& id) {
  if (!std::exchange(at(id).wanted, true)) classes_[id.partition_class].queue.put(id.number, at(id));
  if (at(id).is_open()) classes_[id.partition_class].deferred = false;
  return at(id).is_open();
}

bool PartitionClasses::has_baselines_left() const {
  return std::any_of(classes_.begin(), classes_.end(),
                     [](const PartitionClass& each) { return !each.deferred && each.baselines_left > 0; });
}

bool PartitionClasses::resume() {
  bool any = false;
  for (PartitionClass& each : classes_) any |= std::exchange(each.deferred, false);
  return any;
}

void PartitionClasses::note(const TrialId& id, const MeasurementRow& row) {
  PartitionClass& its_class = classes_[id.partition_class];
  Trial& trial = its_class.trials[id.number];
  its_class.rows[trial.text] = row;
  if (trial.baseline && !trial.known) --its_class.baselines_left;
  if (trial.represented && !trial.known) represented_ -= 1;
  trial.known = true;
  outcomes_[std::string(kOutcomeNames.at(static_cast<size_t>(row.outcome)))] += 1;
  if (row.outcome == Outcome::measured) {
    its_class.best = std::min(its_class.best, row.seconds);
    const double ratio = row.seconds / std::max(trial.candidate->estimate, 1e-9);
    its_class.ratios.add(trial.kind.family, ratio);
    if (trial.kind.shape != trial.kind.family) its_class.ratios.add(trial.kind.shape, ratio);
    if (trial.kind.timing_class >= 0) its_class.ratios.add(trial.kind.timing_class, ratio);
    ratios_.add(trial.kind.family, ratio);
  }
  if (row.outcome == Outcome::measured) return;
  if (first_failure_.empty()) first_failure_ = concat(trial.partition->name, ": ", trial.text, ": ", row.detail);
  if (mode_ == SearchMode::exhaustive && !trial.represented && trial.kind.timing_class >= 0)
    try_another_of_class(trial.kind.timing_class, its_class);
}

void PartitionClasses::note_unfinished(const TrialId& id, const MeasurementRow& row) {
  note(id, row);
  at(id).unfinished = true;
}

// A failure says nothing about the others of its timing class.
void PartitionClasses::try_another_of_class(int timing_class, PartitionClass& its_class) {
  for (size_t number = 0; number < its_class.trials.size(); ++number) {
    Trial& other = its_class.trials[number];
    if (other.kind.timing_class != timing_class || !other.represented || other.known) continue;
    other.represented = false;
    represented_ -= 1;
    if (other.is_open()) its_class.queue.put(number, other);
    return;
  }
}

void PartitionClasses::assume() {
  for (PartitionClass& each : classes_) assume(each);
}

void PartitionClasses::assume(PartitionClass& its_class) {
  Expectation expected = expectation(its_class);
  for (Trial& trial : its_class.trials) {
    if (!trial.baseline || trial.known) continue;
    --its_class.baselines_left;
    trial.baseline = may_be_assumed(*trial.candidate);
    if (trial.baseline) assume(trial, expected, its_class);
  }
  // Otherwise there would be no plan.
  for (Trial& trial : its_class.trials) {
    if (!has_time(its_class) && trial.unfinished && may_be_assumed(*trial.candidate))
      assume(trial, expected, its_class);
  }
}

bool PartitionClasses::has_time(const PartitionClass& its_class) {
  return std::any_of(its_class.rows.begin(), its_class.rows.end(),
                     [](const auto& row) { return row.second.outcome == Outcome::measured; });
}

void PartitionClasses::assume(Trial& trial, Expectation& expected, PartitionClass& its_class) {
  MeasurementRow row;
  row.outcome = Outcome::measured;
  row.seconds = row.high = expected.seconds(trial.kind, trial.candidate->estimate);
  its_class.rows[trial.text] = row;
  trial.known = trial.assumed = true;
  assumed_ += 1;
}

void PartitionClasses::give_up(size_t partition_class) {
  classes_[partition_class].given_up = true;
  assume(classes_[partition_class]);
}

std::vector<double> PartitionClasses::timing_class_spreads() const {
  constexpr double kNearly = 1.3;
  struct TimeRange {
    double fastest = kNotMeasured;
    double slowest = 0;
    int count = 0;
  };
  std::vector<double> spreads;
  for (const PartitionClass& each : classes_) {
    std::map<int, TimeRange> ranges;
    for (const auto& [text, row] : each.rows) {
      const Trial& trial = each.trials[each.numbers.at(text)];
      if (row.outcome != Outcome::measured || trial.kind.timing_class < 0) continue;
      TimeRange& range = ranges[trial.kind.timing_class];
      range.fastest = std::min(range.fastest, row.seconds);
      range.slowest = std::max(range.slowest, row.seconds);
      range.count += 1;
    }
    for (const auto& [kind, range] : ranges) {
      if (range.count > 1 && range.fastest <= kNearly * each.best) spreads.push_back(range.slowest / range.fastest);
    }
  }
  std::sort(spreads.begin(), spreads.end());
  return spreads;
}

bool PartitionClasses::fits(const Partition& partition, const Candidate& candidate) const {
  size_t k = 0;
  for (const TensorId tensor : tensors_of(partition)) {
    if (!candidates_.domains[tensor.at()].allows(candidate.layouts[k++])) return false;
  }
  return true;
}

}  // namespace millrace
