#include "candidates/candidate_source.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "candidates/configs.h"

namespace millrace {
namespace {

bool is_better(const Candidate& left, const Candidate& right) { return left.estimate < right.estimate; }

}  // namespace

CandidateSource::CandidateSource(const Graph& graph, const std::vector<TensorDomain>& domains,
                                 const EnumerateOptions& options, const PartitionCandidates& listed)
    : graph_(graph), domains_(domains), options_(options), listed_(listed) {}

CandidateSource::~CandidateSource() = default;

// A contraction that no library covers is listed whole.
void CandidateSource::find_groups() {
  groups_ = config_groups(graph_, domains_, options_, listed_.partition);
  if (static_cast<double>(listed_.candidates.size()) >= listed_.configurations && !listed_.estimated) return;
  for (const Candidate& candidate : listed_.candidates) yielded_.insert(key_of(candidate));
  for (size_t group = 0; group < groups_->count(); ++group) {
    const double bound = groups_->bound(group);
    if (std::isfinite(bound)) waiting_.emplace_back(bound, group);
  }
  std::sort(waiting_.begin(), waiting_.end());
}

std::vector<Candidate> CandidateSource::new_ones_of(size_t group) {
  PartitionCandidates made;
  made.partition = listed_.partition;
  Collector collector(domains_, made, {std::numeric_limits<size_t>::max() / 8});
  groups_->add(group, collector);
  std::erase_if(made.candidates, [&](const Candidate& candidate) { return yielded_.contains(key_of(candidate)); });
  return std::move(made.candidates);
}

// Groups that have other new candidates wait for the next call, and are made again then.
std::vector<Candidate> CandidateSource::next(size_t most) {
  if (!groups_) find_groups();
  std::vector<Candidate> found;
  std::vector<std::pair<double, size_t>> later;
  std::unordered_set<std::string> keys;
  double worst = -std::numeric_limits<double>::infinity();
  size_t at = 0;
  for (; at < waiting_.size() && (found.size() < most || waiting_[at].first < worst); ++at) {
    const size_t before = found.size();
    for (Candidate& candidate : new_ones_of(waiting_[at].second)) {
      if (keys.insert(key_of(candidate)).second) found.push_back(std::move(candidate));
    }
    if (found.size() > before) later.push_back(waiting_[at]);
    if (found.size() < most) continue;
    std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(most) - 1, found.end(), is_better);
    worst = found[most - 1].estimate;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(at));
  waiting_.insert(waiting_.begin(), later.begin(), later.end());
  std::stable_sort(found.begin(), found.end(), is_better);
  if (found.size() > most) found.resize(most);
  for (const Candidate& candidate : found) yielded_.insert(key_of(candidate));
  return found;
}

}  // namespace millrace
