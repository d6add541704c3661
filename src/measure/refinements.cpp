#include "measure/refinements.h"

#include <algorithm>
#include <map>
#include <optional>

namespace millrace {
namespace {

constexpr double kRefined = 1.1;       // of the best: products this fast are tried with every algorithm
constexpr size_t kRefinedLayouts = 4;  // per partition, unless exhaustive
constexpr double kHopeless = 1.5;      // of the best: no algorithm gains that much; the largest measured gain is 26 %

// Null for a kernel. An algorithm without an id is the library's own choice.
const GemmAlgorithm* algorithm_of(const Candidate& candidate) {
  const auto* const gemm = std::get_if<GemmConfig>(&candidate.config);
  return gemm == nullptr ? nullptr : &gemm->algorithm;
}

}  // namespace

void Refinements::add_for_fastest() {
  // The best time is meaningful once every partition has a baseline.
  if (!enumerate_ || (exhaustive_ && classes_.has_baselines_left())) return;
  looked_at_.resize(classes_.all().size(), 0);
  for (size_t k = 0; k < classes_.all().size(); ++k) {
    const PartitionClass& its_class = classes_.all()[k];
    if (std::exchange(looked_at_[k], its_class.rows.size()) == its_class.rows.size()) continue;
    std::vector<std::pair<double, size_t>> fastest;
    for (const size_t number : its_class.library_choices) {
      const auto found = its_class.rows.find(its_class.trials[number].text);
      if (found == its_class.rows.end() || found->second.outcome != Outcome::measured) continue;
      const MeasurementRow& row = found->second;
      if (row.seconds <= (exhaustive_ ? kHopeless : kRefined) * its_class.best)
        fastest.emplace_back(row.seconds, number);
    }
    std::sort(fastest.begin(), fastest.end());
    if (!exhaustive_ && fastest.size() > kRefinedLayouts) fastest.resize(kRefinedLayouts);
    for (const auto& [seconds, number] : fastest) {
      if (!exhaustive_ || is_first_of_its_kind(k, its_class.trials[number])) refine({k, number});
    }
  }
}

bool Refinements::is_first_of_its_kind(size_t partition_class, const Trial& trial) {
  Candidate by_name = *trial.candidate;
  std::get<GemmConfig>(by_name.config).algorithm.id = 0;
  const std::string text = classes_.timing_class_key(*trial.partition, by_name);
  return text.empty() || kinds_.emplace(partition_class, text).second;
}

void Refinements::add_for(const TrialId& id) {
  if (enumerate_) refine({id.partition_class, base_of(id)});
}

bool Refinements::add_tried(size_t partition_class, const std::vector<std::string>& texts) {
  const PartitionClass& its_class = classes_.all()[partition_class];
  if (its_class.trials.empty() || !enumerate_) return false;
  const size_t before = its_class.trials.size();
  const Partition& partition = *its_class.trials.front().partition;
  std::map<std::vector<int>, const Candidate*> by_layouts;
  for (const Trial& trial : its_class.trials) by_layouts.emplace(trial.candidate->layouts, trial.candidate);
  std::set<std::vector<int>> seen;
  for (const std::string& text : texts) {
    if (its_class.numbers.contains(text)) continue;
    std::optional<Candidate> candidate = parse_candidate(domains_, partition, text);
    const auto base = candidate ? by_layouts.find(candidate->layouts) : by_layouts.end();
    if (base == by_layouts.end()) continue;
    if (algorithm_of(*candidate) != nullptr) {
      if (!its_class.numbers.contains(library_choice_text(partition, *candidate))) continue;
      candidate->estimate = base->second->estimate;
      classes_.add_late(partition_class, partition, std::move(*candidate));
    } else if (seen.insert(candidate->layouts).second) {
      for (Candidate& other : enumerate_(partition, *base->second))
        classes_.add_late(partition_class, partition, std::move(other));
    }
  }
  return its_class.trials.size() > before;
}

// The candidate's text with the library's own choice as algorithm.
std::string Refinements::library_choice_text(const Partition& partition, Candidate candidate) const {
  std::get<GemmConfig>(candidate.config).algorithm = {};
  return print_candidate(domains_, partition, candidate);
}

// The trial that another one refines.
size_t Refinements::base_of(const TrialId& id) const {
  const Trial& trial = classes_.trial(id);
  if (algorithm_of(*trial.candidate) == nullptr) return id.number;
  const std::map<std::string, size_t>& numbers = classes_.all()[id.partition_class].numbers;
  const auto found = numbers.find(library_choice_text(*trial.partition, *trial.candidate));
  return found == numbers.end() ? id.number : found->second;
}

// Adds, once, all candidates with a trial's layouts; for a product, all algorithms with the same m, n and k.
void Refinements::refine(const TrialId& id) {
  const Trial base = classes_.trial(id);
  const bool by_library = algorithm_of(*base.candidate) != nullptr;
  const std::string product = by_library ? base.text : std::string();
  if (!refined_.emplace(id.partition_class, product, base.candidate->layouts).second) return;
  for (Candidate& candidate : enumerate_(*base.partition, *base.candidate)) {
    if (by_library) candidate.estimate = base.candidate->estimate;
    classes_.add_late(id.partition_class, *base.partition, std::move(candidate));
  }
}

}  // namespace millrace
