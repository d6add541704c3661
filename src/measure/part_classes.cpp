#include "measure/part_classes.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "codegen/lower.h"

namespace millrace {

PartClasses::PartClasses(const Graph& graph, const Candidates& candidates, Alike alike, bool one_of_alike)
    : graph_(graph), candidates_(candidates), alike_(std::move(alike)), one_of_alike_(one_of_alike) {
  for (const PartCandidates& of : candidates_.parts) add_part(of);
}

// For tensors as the program writes them, the most promising way of each family is tried before all else. A part that
// has none, such as a product whose batch would need two strides, takes the most promising way, and what it reads and
// writes is converted.
void PartClasses::add_part(const PartCandidates& of) {
  configurations_ += of.configurations;
  class_of_part_.push_back(classify(of.part));
  PartClass& into = classes_[class_of_part_.back()];
  ++into.parts;
  const bool as_written = std::any_of(of.candidates.begin(), of.candidates.end(), [&](const Candidate& candidate) {
    return lies_as_written(candidates_.domains, of.part, candidate);
  });
  for (const TensorId tensor : tensors_of(of.part)) {
    touched_.insert(tensor);
    if (!as_written) converted_.insert(tensor);
  }
  std::set<int> families;
  trials_of_part_.emplace_back();
  for (const Candidate& candidate : of.candidates) {
    Trial trial = trial_of(of.part, candidate);
    const bool could_be =
        as_written ? lies_as_written(candidates_.domains, of.part, candidate) : fits(of.part, candidate);
    trial.first = could_be && families.insert(trial.kind.family).second;
    trials_of_part_.back().push_back(add(into, std::move(trial)));
  }
}

size_t PartClasses::classify(const Part& part) {
  const std::string text = print_part(graph_, part);
  const auto [found, fresh] = class_by_text_.try_emplace(text, classes_.size());
  if (fresh) {
    classes_.emplace_back();
    classes_.back().text = text;
  }
  return found->second;
}

Trial PartClasses::trial_of(const Part& part, const Candidate& candidate) {
  Trial trial;
  trial.part = &part;
  trial.candidate = &candidate;
  trial.text = print_candidate(candidates_.domains, part, candidate);
  trial.kind = kinds_.of(candidate, alike_text(part, candidate));
  return trial;
}

// The number of the trial. What an equal part must try is tried, whichever part has it.
size_t PartClasses::add(PartClass& into, Trial trial) {
  const auto [known, fresh] = into.numbers.try_emplace(trial.text, into.trials.size());
  const size_t number = known->second;
  if (!fresh) equal_others_ += 1;
  if (!fresh && (!trial.first || into.trials[number].first)) return number;
  if (fresh) {
    trial.like_another = one_of_alike_ && trial.kind.alike >= 0 && !into.alikes.insert(trial.kind.alike).second;
    if (trial.like_another) like_others_ += 1;
    const auto* const gemm = std::get_if<GemmWay>(&trial.candidate->way);
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

std::vector<TrialId> PartClasses::add_conversion(TensorId tensor, const PartCandidates& of) {
  const size_t part_class = classify(of.part);
  std::vector<TrialId> added;
  for (const Candidate& candidate : of.candidates) {
    Trial trial = trial_of(of.part, candidate);
    trial.converted = tensor;
    trial.first = converted_.contains(tensor) && &candidate == &of.candidates.front();
    added.push_back({part_class, add(classes_[part_class], std::move(trial))});
  }
  return added;
}

// Shapes were counted when the parts' ways were enumerated, algorithms were not.
void PartClasses::add_late(size_t part_class, const Part& part, Candidate candidate) {
  auto own = std::make_unique<Candidate>(std::move(candidate));
  Trial trial = trial_of(part, *own);
  if (classes_[part_class].numbers.contains(trial.text)) return;
  if (std::holds_alternative<GemmWay>(own->way)) configurations_ += 1;
  late_.push_back(std::move(own));
  add(classes_[part_class], std::move(trial));
}

TrialId PartClasses::of_candidate(size_t part, size_t candidate) const {
  return {class_of_part_[part], trials_of_part_[part][candidate]};
}

std::optional<TrialId> PartClasses::find(size_t part, const std::string& text) const {
  const auto found = class_of(part).numbers.find(text);
  if (found == class_of(part).numbers.end()) return std::nullopt;
  return TrialId{class_of_part_[part], found->second};
}

Launch PartClasses::launch_of(const Trial& trial) const {
  return lower(graph_, *trial.part, layouts_of(candidates_.domains, *trial.part, *trial.candidate),
               trial.candidate->way);
}

std::optional<size_t> PartClasses::next_of(size_t part_class) {
  PartClass& of = classes_[part_class];
  return of.queue.next(of.trials, expectation(of));
}

void PartClasses::leave(const TrialId& id) {
  at(id).chosen = false;
  classes_[id.part_class].queue.put(id.number, at(id));
}

bool PartClasses::want(const TrialId& id) {
  if (!std::exchange(at(id).wanted, true)) classes_[id.part_class].queue.put(id.number, at(id));
  return at(id).is_open();
}

void PartClasses::note(const TrialId& id, const MeasurementRow& row) {
  PartClass& of = classes_[id.part_class];
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
    if (trial.kind.alike >= 0) of.ratios.add(trial.kind.alike, ratio);
    ratios_.add(trial.kind.family, ratio);
  }
  if (row.outcome == Outcome::measured) return;
  if (first_failure_.empty()) first_failure_ = concat(trial.part->name, ": ", trial.text, ": ", row.detail);
  if (one_of_alike_ && !trial.like_another && trial.kind.alike >= 0) try_another_like(trial.kind.alike, of);
}

// What failed says nothing of those that are like it.
void PartClasses::try_another_like(int alike, PartClass& of) {
  for (size_t number = 0; number < of.trials.size(); ++number) {
    Trial& other = of.trials[number];
    if (other.kind.alike != alike || !other.like_another || other.known) continue;
    other.like_another = false;
    like_others_ -= 1;
    if (other.is_open()) of.queue.put(number, other);
    return;
  }
}

void PartClasses::assume() {
  for (PartClass& of : classes_) {
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

std::vector<double> PartClasses::alike_spreads() const {
  constexpr double kNearly = 1.3;
  struct Range {
    double fastest = kNotMeasured;
    double slowest = 0;
    int count = 0;
  };
  std::vector<double> spreads;
  for (const PartClass& of : classes_) {
    std::map<int, Range> ranges;
    for (const auto& [text, row] : of.rows) {
      const Trial& trial = of.trials[of.numbers.at(text)];
      if (row.outcome != Outcome::measured || trial.kind.alike < 0) continue;
      Range& range = ranges[trial.kind.alike];
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

bool PartClasses::fits(const Part& part, const Candidate& candidate) const {
  size_t k = 0;
  for (const TensorId tensor : tensors_of(part)) {
    if (!candidates_.domains[tensor.at()].can_lie(candidate.layouts[k++])) return false;
  }
  return true;
}

}  // namespace millrace
