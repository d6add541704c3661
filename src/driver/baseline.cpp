#include "driver/baseline.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "driver/pipeline.h"

namespace millrace {
namespace {

// Measured seconds by the texts of partition and candidate, which have no names: equal partitions share them.
class KnownTimes {
 public:
  explicit KnownTimes(const Tuned& tuned) {
    std::map<std::string, const MeasuredPartition*> measured;
    for (const MeasuredPartition& partition : tuned.explored.measurements.partitions)
      measured.emplace(partition.name, &partition);
    for (const PartitionCandidates& entry : tuned.prepared.candidates.partitions) {
      if (entry.partition.operators.size() != 1) continue;
      const auto found = measured.find(entry.partition.name);
      if (found != measured.end())
        by_text_.emplace(print_partition(tuned.prepared.training.graph, entry.partition), found->second);
    }
  }

  const MeasuredCandidate* find(const std::string& partition, const std::string& candidate) const {
    const auto found = by_text_.find(partition);
    if (found == by_text_.end()) return nullptr;
    const std::vector<MeasuredCandidate>& all = found->second->candidates;
    const auto same = [&](const MeasuredCandidate& measured) { return measured.candidate == candidate; };
    const auto at = std::find_if(all.begin(), all.end(), same);
    return at == all.end() ? nullptr : &*at;
  }

 private:
  std::map<std::string, const MeasuredPartition*> by_text_;
};

std::vector<int> written_layouts(const std::vector<TensorDomain>& domains, const Partition& partition) {
  std::vector<int> layouts;
  for (const TensorId tensor : tensors_of(partition)) layouts.push_back(domains[tensor.at()].written());
  return layouts;
}

class BaselineMaker {
 public:
  explicit BaselineMaker(const Tuned& tuned) : tuned_(tuned), times_(tuned) {
    program_ = tuned.program;
    program_.fusing = Fusing::separate;
  }

  Result<Baseline> run() {
    Result<Prepared> prepared = prepare(stages_, program_);
    if (!prepared) return prepared.error();
    made_.prepared = std::move(*prepared);
    options_ = enumerate_options(program_, tuned_.machine);
    add_tensors();
    for (const ChoicePoint& choice_point : made_.prepared.candidates.choice_points) {
      if (Result<Done> added = add_choice_point(choice_point); !added) return added.error();
    }
    sort_partitions();
    return planned();
  }

 private:
  const std::vector<TensorDomain>& domains() const { return made_.prepared.candidates.domains; }

  void add_tensors() {
    const Graph& graph = made_.prepared.training.graph;
    for (size_t k = 0; k < graph.tensors.size(); ++k) {
      tensor_of_.push_back(-1);
      if (domains()[k].layouts.empty()) continue;
      tensor_of_.back() = static_cast<int>(measurements_.tensors.size());
      MeasuredTensor tensor{graph.tensors[k].name, {}, domains()[k].pinned};
      for (const Layout& layout : domains()[k].layouts)
        tensor.layouts.push_back(print_layout(graph, TensorId(k), layout));
      measurements_.tensors.push_back(std::move(tensor));
    }
  }

  // Its default: every operator alone.
  Result<Done> add_choice_point(const ChoicePoint& choice_point) {
    for (const int number : choice_point.alternatives.front()) {
      const Partition& partition = made_.prepared.candidates.partitions[as_index(number)].partition;
      const Result<MeasuredCandidate> best = best_candidate(partition);
      if (!best) return best.error();
      MeasuredPartition measured{partition.name, partition.pass == Pass::backward, {}, {}, {*best}};
      for (const TensorId tensor : partition.reads) measured.reads.push_back(tensor_of_[tensor.at()]);
      for (const TensorId tensor : partition.writes) measured.writes.push_back(tensor_of_[tensor.at()]);
      partitions_.emplace(number, std::move(measured));
    }
    return Done{};
  }

  Result<MeasuredCandidate> best_candidate(const Partition& partition) {
    const Graph& graph = made_.prepared.training.graph;
    const std::string text = print_partition(graph, partition);
    MeasuredCandidate measured;
    MeasuredCandidate expected;
    bool by_library = partition.kind != PartitionKind::contraction;
    for (const Candidate& candidate :
         configs_under(graph, domains(), options_, partition, written_layouts(domains(), partition))) {
      by_library = by_library || std::holds_alternative<GemmConfig>(candidate.config);
      const std::string name = print_candidate(domains(), partition, candidate);
      const MeasuredCandidate* const known = times_.find(text, name);
      const bool is_known = known != nullptr && is_measured(*known);
      const double seconds = is_known ? known->seconds : candidate.estimate;
      MeasuredCandidate& best = is_known ? measured : expected;
      if (best.candidate.empty() || seconds < best.seconds) best = {name, candidate.layouts, seconds, seconds, seconds};
    }
    if (measured.candidate.empty() && expected.candidate.empty())
      return Error::make(ErrorKind::no_configuration,
                         concat(partition.name, " has no candidate under the program's layouts"),
                         "give other layouts with --layout");
    made_.unmeasured += measured.candidate.empty() ? 1 : 0;
    made_.loops += by_library ? 0 : 1;
    return measured.candidate.empty() ? expected : measured;
  }

  // Sorts them into the order of the candidates' partitions, in which every selection can run.
  void sort_partitions() {
    Selection& selection = made_.selected.selection;
    for (auto& [number, partition] : partitions_) {
      const auto position = static_cast<int>(measurements_.partitions.size());
      selection.partitions.push_back({position, 0});
      selection.alternatives.push_back(0);
      selection.cost += partition.candidates.front().seconds;
      measurements_.choice_points.push_back({{{position}}});
      measurements_.partitions.push_back(std::move(partition));
    }
    selection.bound = selection.cost;
    selection.proven = false;
  }

  Result<Baseline> planned() {
    Result<StepPlan> plan = build_plan(stages_, made_.prepared.training, made_.prepared.candidates, measurements_,
                                       made_.selected.selection, plan_options(program_, tuned_.machine));
    if (!plan) return plan.error();
    made_.selected.plan = std::move(*plan);
    return std::move(made_);
  }

  const Tuned& tuned_;
  KnownTimes times_;
  Stages stages_;
  TuneProgram program_;
  EnumerateOptions options_;
  Measurements measurements_;
  std::vector<int> tensor_of_;                   // by tensor of the graph; -1: not in memory
  std::map<int, MeasuredPartition> partitions_;  // by number
  Baseline made_;
};

}  // namespace

Result<Baseline> make_baseline(const Tuned& tuned) { return BaselineMaker(tuned).run(); }

}  // namespace millrace
