#include "measure/measurements_maker.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace millrace {
namespace {

// Parts of dropped alternatives are in no choice point any more.
void drop_unused_partitions(Measurements& made) {
  std::vector<bool> used(made.partitions.size(), false);
  for (const MeasuredChoicePoint& choice_point : made.choice_points) {
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      for (const int partition : alternative) used[static_cast<size_t>(partition)] = true;
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
      for (int& partition : alternative) partition = renumbered[static_cast<size_t>(partition)];
    }
  }
}

// The layouts in which ways write a tensor, and those in which ways read it.
struct UsedLayouts {
  std::set<int> written;
  std::set<int> read;
};

std::vector<UsedLayouts> used_layouts(const Measurements& made) {
  std::vector<UsedLayouts> layouts(made.tensors.size());
  for (const MeasuredPartition& partition : made.partitions) {
    for (const MeasuredCandidate& config : partition.candidates) {
      for (size_t k = 0; k < config.layouts.size(); ++k) {
        const bool written = k >= partition.reads.size();
        const int tensor = written ? partition.writes[k - partition.reads.size()] : partition.reads[k];
        UsedLayouts& of = layouts[static_cast<size_t>(tensor)];
        (written ? of.written : of.read).insert(config.layouts[k]);
      }
    }
  }
  return layouts;
}

}  // namespace

Measurements MeasurementsMaker::measured() {
  Measurements made;
  const std::vector<int> tensor_of = make_tensors(made);
  make_partitions(tensor_of, false, made);
  make_conversions(tensor_of, made);
  return made;
}

Measurements MeasurementsMaker::expected() {
  Measurements made;
  const std::vector<int> tensor_of = make_tensors(made);
  make_partitions(tensor_of, true, made);
  make_conversions(tensor_of, made);
  add_expected_conversions(tensor_of, made);
  return made;
}

TriedPartition MeasurementsMaker::tried(size_t number) {
  TriedPartition made{candidates_.partitions[number].partition.name, {}};
  for (const FittingRow& of : fitting_rows(number)) {
    const std::string_view outcome = kOutcomeNames.at(static_cast<size_t>(of.row->outcome));
    made.tried.push_back({*of.text, of.row->seconds, std::string(outcome), of.row->detail});
  }
  return made;
}

std::vector<MeasuredCandidate> MeasurementsMaker::fastest_configs(size_t number) {
  std::map<std::vector<int>, MeasuredCandidate> fastest;
  for (const FittingRow& of : fitting_rows(number)) {
    if (of.row->outcome != Outcome::measured) continue;
    MeasuredCandidate& config = fastest[of.candidate->layouts];
    if (!config.candidate.empty() && config.seconds <= of.row->seconds) continue;
    config = {*of.text, of.candidate->layouts, of.row->seconds, of.row->low, of.row->high};
  }
  std::vector<MeasuredCandidate> configs;
  for (auto& [layouts, config] : fastest) configs.push_back(std::move(config));
  return configs;
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

// Where each of the graph's tensors is among the measured ones; -1: not there.
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

// And their choice points. `expected`: with ways that were not tried.
void MeasurementsMaker::make_partitions(const std::vector<int>& tensor_of, bool expected, Measurements& made) {
  for (size_t number = 0; number < candidates_.partitions.size(); ++number) {
    const Partition& partition = candidates_.partitions[number].partition;
    MeasuredPartition into{partition.name, partition.pass == Pass::backward, {}, {}, fastest_configs(number)};
    for (const TensorId tensor : partition.reads) into.reads.push_back(tensor_of[tensor.at()]);
    for (const TensorId tensor : partition.writes) into.writes.push_back(tensor_of[tensor.at()]);
    if (expected) add_expected_configs(number, into.candidates);
    made.partitions.push_back(std::move(into));
  }
  make_choice_points(made);
}

void MeasurementsMaker::add_expected_configs(size_t number, std::vector<MeasuredCandidate>& configs) const {
  const PartitionCandidates& candidates = candidates_.partitions[number];
  std::map<std::vector<int>, std::pair<double, const Trial*>> expecting;  // by layouts
  for (const MeasuredCandidate& config : configs) expecting[config.layouts] = {-1, nullptr};
  Expectation expectation = classes_.expectation(classes_.class_of(number));
  for (size_t k = 0; k < candidates.candidates.size(); ++k) {
    const Candidate& candidate = candidates.candidates[k];
    const Trial& trial = classes_.trial(classes_.of_candidate(number, k));
    if (trial.known || !classes_.fits(candidates.partition, candidate)) continue;
    const double seconds = expectation.seconds(trial.kind, trial.candidate->estimate);
    const auto [known, fresh] = expecting.try_emplace(candidate.layouts, seconds, &trial);
    if (!fresh && seconds < known->second.first) known->second = {seconds, &trial};
  }
  for (const auto& [layouts, best] : expecting) {
    const auto& [seconds, trial] = best;
    if (seconds >= 0) configs.push_back({trial->text, layouts, seconds, seconds, seconds});
  }
}

// Alternatives of which every partition has a way; a choice point without one keeps its default, so that selection can
// say what is missing.
void MeasurementsMaker::make_choice_points(Measurements& made) const {
  for (const ChoicePoint& choice_point : candidates_.choice_points) {
    MeasuredChoicePoint into;
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      const bool whole = std::all_of(alternative.begin(), alternative.end(), [&](int partition) {
        return !made.partitions[static_cast<size_t>(partition)].candidates.empty();
      });
      if (whole) into.alternatives.push_back(alternative);
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
    const UsedLayouts& of = layouts[static_cast<size_t>(tensor)];
    for (const auto& [from, to] : conversions_.between(TensorId(k), of.written, of.read)) {
      if (!known.contains({tensor, from, to}))
        made.conversions.push_back({tensor, from, to, conversions_.expected(TensorId(k), from, to)});
    }
  }
}

}  // namespace millrace
