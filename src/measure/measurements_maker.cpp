#include "measure/measurements_maker.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace millrace {
namespace {

// Drops the partitions that are no longer in any choice point.
void drop_unused_partitions(Measurements& made) {
  std::vector<bool> used(made.partitions.size(), false);
  for (const MeasuredChoicePoint& choice_point : made.choice_points) {
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      for (const int partition : alternative) used[as_index(partition)] = true;
    }
  }
  std::vector<int> renumbered(made.partitions.size(), -1);
  std::vector<MeasuredPartition> kept;
  for (size_t k = 0; k < made.partitions.size(); ++k) {
    if (!used[k]) continue;
    renumbered[k] = static_cast<int>(kept.size());
    kept.push_back(std::move(made.partitions[k]));
  }
  made.partitions = std::move(kept);
  for (MeasuredChoicePoint& choice_point : made.choice_points) {
    for (std::vector<int>& alternative : choice_point.alternatives) {
      for (int& partition : alternative) partition = renumbered[as_index(partition)];
    }
  }
}

// The candidate ran out of memory; with more memory it may be right.
bool ran_out_of_memory(const PartitionClass& its_class, const Trial& trial) {
  const auto row = its_class.rows.find(trial.text);
  return row != its_class.rows.end() && !is_repeatable(row->second.outcome);
}

// The layouts in which candidates write a tensor, and those in which they read it.
struct UsedLayouts {
  std::set<int> written;
  std::set<int> read;
};

std::vector<UsedLayouts> used_layouts(const Measurements& made) {
  std::vector<UsedLayouts> layouts(made.tensors.size());
  for (const MeasuredPartition& partition : made.partitions) {
    for (const MeasuredCandidate& candidate : partition.candidates) {
      for (size_t k = 0; k < candidate.layouts.size(); ++k) {
        const bool written = k >= partition.reads.size();
        const int tensor = written ? partition.writes[k - partition.reads.size()] : partition.reads[k];
        UsedLayouts& used = layouts[as_index(tensor)];
        (written ? used.written : used.read).insert(candidate.layouts[k]);
      }
    }
  }
  return layouts;
}

}  // namespace

Measurements MeasurementsMaker::measured() {
  Measurements made;
  const std::vector<int> tensor_of = make_tensors(made);
  make_partitions(tensor_of, Untried::leave_out, made);
  make_conversions(tensor_of, made);
  return made;
}

Measurements MeasurementsMaker::expected() {
  Measurements made;
  const std::vector<int> tensor_of = make_tensors(made);
  make_partitions(tensor_of, Untried::expect, made);
  make_conversions(tensor_of, made);
  add_expected_conversions(tensor_of, made);
  return made;
}

TriedPartition MeasurementsMaker::tried(size_t number) {
  TriedPartition made{candidates_.partitions[number].partition.name, {}};
  for (const FittingRow& fitting : fitting_rows(number)) {
    const std::string_view outcome = kOutcomeNames.at(static_cast<size_t>(fitting.row->outcome));
    made.tried.push_back({*fitting.text, fitting.row->seconds, std::string(outcome), fitting.row->detail});
  }
  return made;
}

std::vector<MeasuredCandidate> MeasurementsMaker::fastest_candidates(size_t number) {
  std::map<std::vector<int>, MeasuredCandidate> fastest;
  for (const auto& [text, row, candidate] : fitting_rows(number)) {
    if (row->outcome != Outcome::measured) continue;
    MeasuredCandidate& best = fastest[candidate->layouts];
    if (!best.candidate.empty() && best.seconds <= row->seconds) continue;
    best = {*text, candidate->layouts, row->seconds, row->low, row->high};
  }
  std::vector<MeasuredCandidate> candidates;
  for (auto& [layouts, best] : fastest) candidates.push_back(std::move(best));
  return candidates;
}

std::vector<MeasurementsMaker::FittingRow> MeasurementsMaker::fitting_rows(size_t number) {
  const Partition& partition = candidates_.partitions[number].partition;
  std::vector<FittingRow> fitting;
  for (const auto& [text, row] : classes_.class_of(number).rows) {
    const auto [parsed, fresh] = parsed_[number].try_emplace(text);
    std::optional<Candidate>& candidate = parsed->second;
    if (fresh) candidate = parse_candidate(candidates_.domains, partition, text);
    if (fresh && candidate && !classes_.fits(partition, *candidate)) candidate.reset();
    if (candidate) fitting.push_back({&text, &row, &*candidate});
  }
  return fitting;
}

// Returns the measured tensor of each of the graph's tensors; -1: none.
std::vector<int> MeasurementsMaker::make_tensors(Measurements& made) const {
  std::vector<int> tensor_of(graph_.tensors.size(), -1);
  for (size_t k = 0; k < graph_.tensors.size(); ++k) {
    const TensorDomain& domain = candidates_.domains[k];
    if (domain.layouts.empty() || !classes_.is_touched(TensorId(k))) continue;
    tensor_of[k] = static_cast<int>(made.tensors.size());
    MeasuredTensor tensor{graph_.tensors[k].name, {}, domain.pinned};
    for (const Layout& layout : domain.layouts) tensor.layouts.push_back(print_layout(graph_, TensorId(k), layout));
    made.tensors.push_back(std::move(tensor));
  }
  return tensor_of;
}

MeasuredPartition MeasurementsMaker::make_partition(size_t number, const std::vector<int>& tensor_of) {
  const Partition& partition = candidates_.partitions[number].partition;
  MeasuredPartition made{partition.name, partition.pass == Pass::backward, {}, {}, fastest_candidates(number)};
  for (const TensorId tensor : partition.reads) made.reads.push_back(tensor_of[tensor.at()]);
  for (const TensorId tensor : partition.writes) made.writes.push_back(tensor_of[tensor.at()]);
  return made;
}

void MeasurementsMaker::make_partitions(const std::vector<int>& tensor_of, Untried untried, Measurements& made) {
  for (size_t number = 0; number < candidates_.partitions.size(); ++number) {
    made.partitions.push_back(make_partition(number, tensor_of));
    if (untried == Untried::expect) add_expected_candidates(number, made.partitions.back().candidates);
  }
  make_choice_points(made);
}

BoundedMeasurements MeasurementsMaker::bounded(LowerBounds& bounds, Listed listed) {
  BoundedMeasurements bounded;
  Measurements& made = bounded.measurements;
  const std::vector<int> tensor_of = make_tensors(made);
  note_measured(bounds);
  for (size_t number = 0; number < candidates_.partitions.size(); ++number) {
    made.partitions.push_back(make_partition(number, tensor_of));
    add_bounded_candidates(number, bounds, listed, made.partitions.back().candidates);
    bounded.every_layout = bounded.every_layout && classes_.is_listed_whole(number);
  }
  make_choice_points(made);
  make_conversions(tensor_of, made);
  add_bounded_conversions(tensor_of, bounds, made);
  return bounded;
}

void MeasurementsMaker::note_measured(LowerBounds& bounds) const {
  for (const PartitionClass& each : classes_.all()) {
    for (const Trial& trial : each.trials) {
      if (trial.converted.valid() || !trial.is_settled()) continue;
      const auto row = each.rows.find(trial.text);
      if (row != each.rows.end() && row->second.outcome == Outcome::measured)
        bounds.note(*trial.partition, *trial.candidate, row->second.seconds);
    }
  }
}

// The least bound of the untried candidates with the same layouts. Candidates that are not listed have one bound, and
// their layouts are not known.
void MeasurementsMaker::add_bounded_candidates(size_t number, LowerBounds& bounds, Listed listed,
                                               std::vector<MeasuredCandidate>& measured) const {
  const Partition& partition = candidates_.partitions[number].partition;
  const PartitionClass& its_class = classes_.class_of(number);
  std::map<std::vector<int>, std::pair<double, const Trial*>> least;  // by layouts
  for (const PartitionClasses::OwnCandidate& own : classes_.candidates_of(number)) {
    const Trial& trial = its_class.trials[own.trial];
    if (trial.is_settled() && !ran_out_of_memory(its_class, trial) && listed == Listed::all) continue;
    if (!classes_.fits(partition, *own.candidate)) continue;
    const double seconds = bounds.seconds(partition, *own.candidate);
    const auto [known, fresh] = least.try_emplace(own.candidate->layouts, seconds, &trial);
    if (!fresh && seconds < known->second.first) known->second = {seconds, &trial};
  }
  for (const auto& [layouts, bound] : least)
    measured.push_back({bound.second->text, layouts, bound.first, bound.first, bound.first});
  if (classes_.is_listed_whole(number)) return;
  const double any = bounds.seconds(partition);
  measured.push_back({"", std::vector<int>(tensors_of(partition).size(), 0), any, any, any});
}

void MeasurementsMaker::add_expected_candidates(size_t number, std::vector<MeasuredCandidate>& measured) const {
  const Partition& partition = candidates_.partitions[number].partition;
  const PartitionClass& its_class = classes_.class_of(number);
  std::map<std::vector<int>, std::pair<double, const Trial*>> expecting;  // by layouts
  for (const MeasuredCandidate& candidate : measured) expecting[candidate.layouts] = {-1, nullptr};
  Expectation expectation = classes_.expectation(its_class);
  for (const PartitionClasses::OwnCandidate& own : classes_.candidates_of(number)) {
    const Trial& trial = its_class.trials[own.trial];
    if (trial.known || !classes_.fits(partition, *own.candidate)) continue;
    const double seconds = expectation.seconds(trial.kind, trial.candidate->estimate);
    const auto [known, fresh] = expecting.try_emplace(own.candidate->layouts, seconds, &trial);
    if (!fresh && seconds < known->second.first) known->second = {seconds, &trial};
  }
  for (const auto& [layouts, best] : expecting) {
    const auto& [seconds, trial] = best;
    if (seconds >= 0) measured.push_back({trial->text, layouts, seconds, seconds, seconds});
  }
}

// Keeps the alternatives whose partitions all have a candidate. If there is none, keeps the default, so that selection
// can say what is missing.
void MeasurementsMaker::make_choice_points(Measurements& made) const {
  for (const ChoicePoint& choice_point : candidates_.choice_points) {
    MeasuredChoicePoint into;
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      const bool complete = std::all_of(alternative.begin(), alternative.end(), [&](int partition) {
        return !made.partitions[as_index(partition)].candidates.empty();
      });
      if (complete) into.alternatives.push_back(alternative);
    }
    if (into.alternatives.empty()) into.alternatives.push_back(choice_point.alternatives.front());
    made.choice_points.push_back(std::move(into));
  }
  drop_unused_partitions(made);
}

void MeasurementsMaker::make_conversions(const std::vector<int>& tensor_of, Measurements& made) const {
  std::map<std::tuple<TensorId, int, int>, MeasuredConversion> fastest;
  for (const ConversionTrial& conversion : conversions_.added()) {
    const std::string& text = classes_.trial(conversion.trial).text;
    const std::map<std::string, MeasurementRow>& rows = classes_.all()[conversion.trial.partition_class].rows;
    const auto row = rows.find(text);
    if (row == rows.end() || row->second.outcome != Outcome::measured) continue;
    MeasuredConversion& known = fastest[{conversion.tensor, conversion.from, conversion.to}];
    if (!known.candidate.empty() && known.seconds <= row->second.seconds) continue;
    known = {tensor_of[conversion.tensor.at()], conversion.from, conversion.to, row->second.seconds, text};
  }
  for (auto& [key, conversion] : fastest) made.conversions.push_back(std::move(conversion));
}

void MeasurementsMaker::add_expected_conversions(const std::vector<int>& tensor_of, Measurements& made) {
  const std::vector<UsedLayouts> layouts = used_layouts(made);
  std::set<std::tuple<int, int, int>> known;
  for (const MeasuredConversion& conversion : made.conversions)
    known.emplace(conversion.tensor, conversion.from, conversion.to);
  for (size_t k = 0; k < graph_.tensors.size(); ++k) {
    const int tensor = tensor_of[k];
    if (tensor < 0) continue;
    const UsedLayouts& used = layouts[as_index(tensor)];
    for (const auto& [from, to] : conversions_.between(TensorId(k), used.written, used.read)) {
      if (!known.contains({tensor, from, to}))
        made.conversions.push_back({tensor, from, to, conversions_.expected(TensorId(k), from, to)});
    }
  }
}

// Adds the conversions that have an untried candidate.
void MeasurementsMaker::add_bounded_conversions(const std::vector<int>& tensor_of, LowerBounds& bounds,
                                                Measurements& made) {
  const std::vector<UsedLayouts> layouts = used_layouts(made);
  const std::set<std::tuple<TensorId, int, int>> settled = conversions_.settled();
  for (size_t k = 0; k < graph_.tensors.size(); ++k) {
    const int tensor = tensor_of[k];
    if (tensor < 0) continue;
    const UsedLayouts& used = layouts[as_index(tensor)];
    for (const auto& [from, to] : conversions_.between(TensorId(k), used.written, used.read)) {
      if (!settled.contains({TensorId(k), from, to}))
        made.conversions.push_back({tensor, from, to, bounds.conversion_seconds(TensorId(k), from, to)});
    }
  }
}

}  // namespace millrace
