#include "measure/conversion_trials.h"

#include <algorithm>

namespace millrace {

ConversionTrials::ConversionTrials(const Graph& graph, const Candidates& candidates, Enumerate enumerate, size_t most,
                                   PartitionClasses& classes)
    : candidates_(candidates), enumerate_(std::move(enumerate)), most_(most), classes_(classes) {
  find_equal_tensors(graph);
}

void ConversionTrials::find_equal_tensors(const Graph& graph) {
  std::map<std::string, size_t> by_text;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (candidates_.domains[k].layouts.size() < 2 || !classes_.is_touched(TensorId(k))) continue;
    Partition partition = enumerate_(TensorId(k), 0, 1).partition;
    const auto [known, fresh] = by_text.try_emplace(print_partition(graph, partition), equal_tensors_.size());
    if (fresh) equal_tensors_.push_back({known->first, std::move(partition), {}});
    equal_tensors_[known->second].tensors.emplace_back(k);
  }
}

bool ConversionTrials::can_convert(TensorId tensor, int from, int to) const {
  const std::vector<Layout>& layouts = candidates_.domains[tensor.at()].layouts;
  return layouts[as_index(from)].storage == MaskStorage::words && layouts[as_index(to)].storage == MaskStorage::words;
}

std::vector<std::pair<int, int>> ConversionTrials::between(TensorId tensor, std::set<int> written,
                                                           std::set<int> read) const {
  const int pinned = candidates_.domains[tensor.at()].pinned;
  if (pinned >= 0) (written.empty() ? written : read).insert(pinned);
  std::vector<std::pair<int, int>> pairs;
  for (const int from : written) {
    for (const int to : read) {
      if (from != to && can_convert(tensor, from, to)) pairs.emplace_back(from, to);
    }
  }
  return pairs;
}

std::vector<TensorId> ConversionTrials::converted_with(TensorId tensor, int from, int to) const {
  const auto equal = std::find_if(equal_tensors_.begin(), equal_tensors_.end(), [&](const EqualTensors& each) {
    return std::find(each.tensors.begin(), each.tensors.end(), tensor) != each.tensors.end();
  });
  std::vector<TensorId> converted;
  if (equal == equal_tensors_.end()) return converted;
  for (const TensorId one : equal->tensors) {
    const auto layouts = static_cast<int>(candidates_.domains[one.at()].layouts.size());
    if (from < layouts && to < layouts && can_convert(one, from, to)) converted.push_back(one);
  }
  return converted;
}

void ConversionTrials::add(TensorId tensor, int from, int to) {
  for (const TensorId one : converted_with(tensor, from, to)) add_one(one, from, to);
}

void ConversionTrials::add_all(TensorId tensor, int from, int to) {
  for (const TensorId one : converted_with(tensor, from, to)) {
    add_one(one, from, to);
    add_rest(one, from, to);
  }
}

void ConversionTrials::add_one(TensorId tensor, int from, int to) {
  if (!converting_.insert({tensor, from, to}).second) return;
  conversions_.push_back(std::make_unique<PartitionCandidates>(enumerate_(tensor, from, to)));
  PartitionCandidates& conversion = *conversions_.back();
  configurations_ += static_cast<double>(conversion.candidates.size());
  if (conversion.candidates.size() > most_) {
    const auto cut = conversion.candidates.begin() + static_cast<std::ptrdiff_t>(most_);
    PartitionCandidates& rest = rest_[{tensor, from, to}];
    rest.partition = conversion.partition;
    rest.candidates.assign(cut, conversion.candidates.end());
    conversion.candidates.erase(cut, conversion.candidates.end());
  }
  for (const TrialId& trial : classes_.add_conversion(tensor, conversion)) added_.push_back({tensor, from, to, trial});
}

void ConversionTrials::add_rest(TensorId tensor, int from, int to) {
  auto rest = rest_.extract({tensor, from, to});
  if (rest.empty()) return;
  conversions_.push_back(std::make_unique<PartitionCandidates>(std::move(rest.mapped())));
  for (const TrialId& trial : classes_.add_conversion(tensor, *conversions_.back()))
    added_.push_back({tensor, from, to, trial});
}

std::set<std::tuple<TensorId, int, int>> ConversionTrials::settled() const {
  std::set<std::tuple<TensorId, int, int>> pairs = converting_;
  for (const auto& [pair, rest] : rest_) pairs.erase(pair);
  for (const auto& [tensor, from, to, trial] : added_) {
    if (!classes_.trial(trial).is_settled()) pairs.erase({tensor, from, to});
  }
  return pairs;
}

double ConversionTrials::expected(TensorId tensor, int from, int to) {
  const auto [known, fresh] = seconds_.try_emplace(tensor, 0);
  if (fresh) {
    const PartitionCandidates conversion = enumerate_(tensor, from, to);
    if (!conversion.candidates.empty()) known->second = conversion.candidates.front().estimate;
  }
  return known->second;
}

}  // namespace millrace
