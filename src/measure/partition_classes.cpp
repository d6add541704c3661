#include "measure/partition_classes.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "codegen/lower.h"

namespace millrace {

PartitionClasses::PartitionClasses(const Graph& graph, const Candidates& candidates, TimingClass timing_class,
                                   bool one_of_timing_class)
    : graph_(graph),
      candidates_(candidates),
      timing_class_(std::move(timing_class)),
      one_of_timing_class_(one_of_timing_class) {
  for (const PartitionCandidates& of : candidates_.partitions) add_partition(of);
}

// For tensors as the program writes them, the most promising way of each family is tried before all else. A partition
// that has none, such as a product whose batch would need two strides, takes the most promising way, and what it reads
// and writes is converted.
void PartitionClasses::add_partition(const PartitionCandidates& of) {
  configurations_ += of.configurations;
  class_of_partition_.push_back(classify(of.partition));
  PartitionClass& into = classes_[class_of_partition_.back()];
  ++into.partitions;
  const bool as_written = std::any_of(of.candidates.begin(), of.candidates.end(), [&](const Candidate& candidate) {
    return has_written_layouts(candidates_.domains, of.partition, candidate);
  });
  for (const TensorId tensor : tensors_of(of.partition)) {
    touched_.insert(tensor);
    if (!as_written) converted_.insert(tensor);
  }
  std::set<int> families;
  trials_of_partition_.emplace_back();
  for (const Candidate& candidate : of.candidates) {
    Trial trial = trial_of(of.partition, candidate);
    const bool could_be =
        as_written ? has_written_layouts(candidates_.domains, of.partition, candidate) : fits(of.partition, candidate);
    trial.first = could_be && families.insert(trial.kind.family).second;
    trials_of_partition_.back().push_back(add(into, std::move(trial)));
  }
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

Trial PartitionClasses::trial_of(const Partition& partition, const Candidate& candidate) {
  Trial trial;
  trial.partition = &partition;
  trial.candidate = &candidate;
  trial.text = print_candidate(candidates_.domains, partition, candidate);
  trial.kind = kinds_.of(candidate, timing_class_text(partition, candidate));
  return trial;
}

// The number of the trial. What an equal partition must try is tried, whichever partition has it.
size_t PartitionClasses::add(PartitionClass& into, Trial trial) {
  const auto [known, fresh] = into.numbers.try_emplace(trial.text, into.trials.size());
  const size_t number = known->second;
  if (!fresh) equal_others_ += 1;
  if (!fresh && (!trial.first || into.trials[number].first)) return number;
  if (fresh) {
    trial.like_another = one_of_timing_class_ && trial.kind.timing_class >= 0 &&
                         !into.timing_classes.insert(trial.kind.timing_class).second;
    if (trial.like_another) like_others_ += 1;
    const auto* const gemm = std::get_if<GemmConfig>(&trial.candidate->config);
    if (gemm != nullptr && gemm->algorithm.id < 0) into.own_choices.push_back(number);
    into.trials.push_back(std::move(trial));
  } else {
    into.trials[number].first = true;
  }
  const Trial& there = into.trials[number];
  if (there.first && !there.known) ++baselines_left_;
  into.queue.put(number, there);
  return number;
}

std::vector<TrialId> PartitionClasses::add_conversion(TensorId tensor, const PartitionCandidates& of) {
  const size_t partition_class = classify(of.partition);
  std::vector<TrialId> added;
  for (const Candidate& candidate : of.candidates) {
    Trial trial = trial_of(of.partition, candidate);
    trial.converted = tensor;
    trial.first = converted_.contains(tensor) && &candidate == &of.candidates.front();
    added.push_back({partition_class, add(classes_[partition_class], std::move(trial))});
  }
  return added;
}

// Shapes were counted when the partitions' ways were enumerated, algorithms were not.
void PartitionClasses::add_late(size_t partition_class, const Partition& partition, Candidate candidate) {
  auto own = std::make_unique<Candidate>(std::move(candidate));
  Trial trial = trial_of(partition, *own);
  if (classes_[partition_class].numbers.contains(trial.text)) return;
  if (std::holds_alternative<GemmConfig>(own->config)) configurations_ += 1;
  late_.push_back(std::move(own));
  add(classes_[partition_class], std::move(trial));
}

TrialId PartitionClasses::of_candidate(size_t partition, size_t candidate) const {
  return {class_of_partition_[partition], trials_of_partition_[partition][candidate]};
}

std::optional<TrialId> PartitionClasses::find(size_t partition, const std::string& text) const {
  const auto found = class_of(partition).numbers.find(text);
  if (found == class_of(partition).numbers.end()) return std::nullopt;
  return TrialId{class_of_partition_[partition], found->second};
}

Launch PartitionClasses::launch_of(const Trial& trial) const {
  return lower(graph_, *trial.partition, layouts_of(candidates_.domains, *trial.partition, *trial.candidate),
               trial.candidate->config);
}

std::optional<size_t> PartitionClasses::next_of(size_t partition_class) {
  PartitionClass& of = classes_[partition_class];
  return of.queue.next(of.trials, expectation(of));
}

void PartitionClasses::leave(const TrialId& id) {
  at(id).chosen = false;
  classes_[id.partition_class].queue.put(id.number, at(id));
}

bool PartitionClasses::want(const TrialId& id) {
  if (!std::exchange(at(id).wanted, true)) classes_[id.partition_class].queue.put(id.number, at(id));
  return at(id).is_open();
}

void PartitionClasses::note(const TrialId& id, const MeasurementRow& row) {
  PartitionClass& of = classes_[id.partition_class];
  Trial& trial = of.trials[id.number];
  of.rows[trial.text] = row;
  if (trial.first && !trial.known) --baselines_left_;
  if (trial.like_another && !trial.known) like_others_ -= 1;
  trial.known = true;
  outcomes_[std::string(kOutcomeNames.at(static_cast<size_t>(row.outcome)))] += 1;
  if (row.outcome == Outcome::measured) {
    of.best = std::min(of.best, row.seconds);
    const double ratio = row.seconds / std::max(trial.candidate->estimate, 1e-9);
    of.ratios.add(trial.kind.family, ratio);
    if (trial.kind.shape != trial.kind.family) of.ratios.add(trial.kind.shape, ratio);
    if (trial.kind.timing_class >= 0) of.ratios.add(trial.kind.timing_class, ratio);
    ratios_.add(trial.kind.family, ratio);
  }
  if (row.outcome == Outcome::measured) return;
  if (first_failure_.empty()) first_failure_ = concat(trial.partition->name, ": ", trial.text, ": ", row.detail);
  if (one_of_timing_class_ && !trial.like_another && trial.kind.timing_class >= 0)
    try_another_like(trial.kind.timing_class, of);
}

// What failed says nothing of those that are like it.
void PartitionClasses::try_another_like(int timing_class, PartitionClass& of) {
  for (size_t number = 0; number < of.trials.size(); ++number) {
    Trial& other = of.trials[number];
    if (other.kind.timing_class != timing_class || !other.like_another || other.known) continue;
    other.like_another = false;
    like_others_ -= 1;
    if (other.is_open()) of.queue.put(number, other);
    return;
  }
}

void PartitionClasses::assume() {
  for (PartitionClass& of : classes_) {
    Expectation expected = expectation(of);
    for (Trial& trial : of.trials) {
      if (!trial.first || trial.known) continue;
      MeasurementRow row;
      row.outcome = Outcome::measured;
      row.seconds = row.low = row.high = expected.seconds(trial.kind, trial.candidate->estimate);
      of.rows[trial.text] = row;
      trial.known = true;
      --baselines_left_;
    }
  }
}

std::vector<double> PartitionClasses::timing_class_spreads() const {
  constexpr double kNearly = 1.3;
  struct Range {
    double fastest = kNotMeasured;
    double slowest = 0;
    int count = 0;
  };
  std::vector<double> spreads;
  for (const PartitionClass& of : classes_) {
    std::map<int, Range> ranges;
    for (const auto& [text, row] : of.rows) {
      const Trial& trial = of.trials[of.numbers.at(text)];
      if (row.outcome != Outcome::measured || trial.kind.timing_class < 0) continue;
      Range& range = ranges[trial.kind.timing_class];
      range.fastest = std::min(range.fastest, row.seconds);
      range.slowest = std::max(range.slowest, row.seconds);
      range.count += 1;
    }
    for (const auto& [kind, range] : ranges) {
      if (range.count > 1 && range.fastest <= kNearly * of.best) spreads.push_back(range.slowest / range.fastest);
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
