#include "select/problem.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/id.h"
#include "base/text.h"
#include "select/conversions.h"

namespace millrace {
namespace {

std::vector<ProblemTensor> problem_tensors(const Measurements& measurements,
                                           const std::vector<CheapestConversions>& cheapest) {
  std::vector<ProblemTensor> tensors;
  for (const MeasuredTensor& measured : measurements.tensors) {
    ProblemTensor tensor;
    tensor.layouts = measured.layouts.size();
    tensor.pinned = measured.pinned;
    tensor.converted = cheapest[tensors.size()].seconds;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// The fastest candidate for each combination of layouts.
std::vector<ProblemCandidate> fastest_candidates(const MeasuredPartition& measured, const Restriction& restriction) {
  std::map<std::vector<int>, size_t> best;
  for (size_t k = 0; k < measured.candidates.size(); ++k) {
    const MeasuredCandidate& candidate = measured.candidates[k];
    bool allowed = true;
    for (size_t w = 0; w < measured.writes.size() && !restriction.written.empty(); ++w) {
      const int wanted = restriction.written[as_index(measured.writes[w])];
      allowed &= wanted == kNoLayout || wanted == candidate.layouts[measured.reads.size() + w];
    }
    if (!allowed) continue;
    const auto [entry, fresh] = best.try_emplace(candidate.layouts, k);
    if (!fresh && candidate.seconds < measured.candidates[entry->second].seconds) entry->second = k;
  }
  std::vector<ProblemCandidate> candidates;
  for (const auto& [layouts, k] : best)
    candidates.push_back({layouts, measured.candidates[k].seconds, static_cast<int>(k)});
  return candidates;
}

void add_partitions(Problem& problem, const Measurements& measurements, const Restriction& restriction) {
  for (const MeasuredPartition& measured : measurements.partitions) {
    ProblemPartition partition;
    for (const int tensor : measured.reads) partition.tensors.push_back(as_index(tensor));
    for (const int tensor : measured.writes) partition.tensors.push_back(as_index(tensor));
    partition.reads = measured.reads.size();
    partition.candidates = fastest_candidates(measured, restriction);
    problem.partitions.push_back(std::move(partition));
  }
  for (size_t s = 0; s < measurements.choice_points.size(); ++s) {
    const auto& alternatives = measurements.choice_points[s].alternatives;
    problem.choice_points.emplace_back();
    problem.open.emplace_back();
    for (size_t a = 0; a < alternatives.size(); ++a) {
      problem.choice_points.back().emplace_back();
      problem.open.back().push_back(restriction.alternatives.empty() ||
                                    restriction.alternatives[s] == static_cast<int>(a));
      for (const int id : alternatives[a]) {
        ProblemPartition& partition = problem.partitions[as_index(id)];
        problem.choice_points.back().back().push_back(as_index(id));
        partition.choice_point = s;
        partition.in.resize(alternatives.size(), false);
        partition.in[a] = true;
      }
    }
  }
}

// Drops candidates that fit nothing else, until there are none left to drop.
class Propagation {
 public:
  Propagation(Problem& problem, const Measurements& measurements)
      : problem_(problem), measurements_(measurements), is_waiting_(problem.tensors.size(), false) {}

  Result<Done> run() {
    for (size_t s = 0; s < problem_.choice_points.size(); ++s) close_impossible(s);
    for (size_t t = problem_.tensors.size(); t-- > 0;) enqueue(t);
    while (!waiting_.empty() && !impossible_) {
      const size_t t = waiting_.back();
      waiting_.pop_back();
      is_waiting_[t] = false;
      drop_unreachable(t);
    }
    if (!impossible_) return Done{};
    return Error::make(ErrorKind::no_configuration, reasons_.empty() ? "nothing to choose from" : reasons_.back(),
                       "measure more candidates of it, or more conversions");
  }

 private:
  void enqueue(size_t tensor) {
    if (is_waiting_[tensor]) return;
    is_waiting_[tensor] = true;
    waiting_.push_back(tensor);
  }

  // Closes the alternatives that have a partition without candidates. Then more candidates of the choice point's
  // tensors may have to go.
  void close_impossible(size_t choice_point) {
    for (size_t a = 0; a < problem_.choice_points[choice_point].size(); ++a) {
      if (!close_when_impossible(choice_point, a)) continue;
      for (const auto& alternative : problem_.choice_points[choice_point]) {
        for (const size_t p : alternative) enqueue_tensors(p);
      }
    }
    const std::vector<bool>& open = problem_.open[choice_point];
    impossible_ |= std::find(open.begin(), open.end(), true) == open.end();
  }

  void enqueue_tensors(size_t partition) {
    for (const size_t t : problem_.partitions[partition].tensors) enqueue(t);
  }

  bool close_when_impossible(size_t choice_point, size_t alternative) {
    if (!problem_.open[choice_point][alternative]) return false;
    for (const size_t p : problem_.choice_points[choice_point][alternative]) {
      if (!problem_.partitions[p].candidates.empty()) continue;
      problem_.open[choice_point][alternative] = false;
      const MeasuredPartition& partition = measurements_.partitions[p];
      reasons_.push_back(partition.candidates.empty() || last_tensor_.empty()
                             ? concat("partition '", partition.name, "' has no candidate")
                             : concat("no candidate of partition '", partition.name,
                                      "' is left: the layouts of its tensors cannot be reconciled, "
                                      "last those of tensor '",
                                      last_tensor_, "'"));
      return true;
    }
    return false;
  }

  bool is_open(const Touch& touch) const {
    const ProblemPartition& partition = problem_.partitions[touch.partition];
    for (size_t a = 0; a < partition.in.size(); ++a) {
      if (partition.in[a] && problem_.open[partition.choice_point][a]) return true;
    }
    return false;
  }

  bool in_every_alternative(const Touch& touch) const {
    const ProblemPartition& partition = problem_.partitions[touch.partition];
    for (size_t a = 0; a < partition.in.size(); ++a) {
      if (!partition.in[a] && problem_.open[partition.choice_point][a]) return false;
    }
    return true;
  }

  std::vector<bool> used(const Touch& touch, size_t layouts) const {
    std::vector<bool> result(layouts, false);
    for (const ProblemCandidate& candidate : problem_.partitions[touch.partition].candidates)
      result[as_index(candidate.layouts[touch.slot])] = true;
    return result;
  }

  void drop_unreachable(size_t t) {
    const ProblemTensor& tensor = problem_.tensors[t];
    std::vector<bool> bases(tensor.layouts, !tensor.written);
    if (!tensor.written && tensor.pinned != kNoLayout) {
      bases.assign(tensor.layouts, false);
      bases[as_index(tensor.pinned)] = true;
    }
    for (const Touch& touch : tensor.touches) {
      if (!touch.writes || !is_open(touch)) continue;
      const std::vector<bool> layouts = used(touch, tensor.layouts);
      for (size_t l = 0; l < tensor.layouts; ++l) bases[l] = bases[l] || layouts[l];
    }
    for (size_t b = 0; b < tensor.layouts; ++b) bases[b] = bases[b] && serves_all(tensor, b);

    for (const Touch& touch : tensor.touches) {
      std::vector<bool> allowed = bases;
      if (!touch.writes) {
        for (size_t b = 0; b < tensor.layouts; ++b) {
          for (size_t l = 0; bases[b] && l < tensor.layouts; ++l)
            allowed[l] = allowed[l] || tensor.conversion(b, l) < kInfinity;
        }
      }
      const size_t dropped = std::erase_if(
          problem_.partitions[touch.partition].candidates,
          [&](const ProblemCandidate& candidate) { return !allowed[as_index(candidate.layouts[touch.slot])]; });
      if (dropped == 0) continue;
      last_tensor_ = measurements_.tensors[t].name;
      enqueue_tensors(touch.partition);
      if (problem_.partitions[touch.partition].candidates.empty())
        close_impossible(problem_.partitions[touch.partition].choice_point);
    }
  }

  // Whether the tensor, with first layout `base`, can serve every set of alternatives.
  bool serves_all(const ProblemTensor& tensor, size_t base) const {
    if (tensor.written && tensor.pinned != kNoLayout && tensor.conversion(base, as_index(tensor.pinned)) == kInfinity)
      return false;
    for (const Touch& touch : tensor.touches) {
      if (touch.writes || !in_every_alternative(touch)) continue;
      const std::vector<bool> layouts = used(touch, tensor.layouts);
      bool reached = false;
      for (size_t l = 0; l < tensor.layouts; ++l) reached |= layouts[l] && tensor.conversion(base, l) < kInfinity;
      if (!reached) return false;
    }
    return true;
  }

  Problem& problem_;
  const Measurements& measurements_;
  std::vector<std::string> reasons_;
  std::string last_tensor_;
  std::vector<size_t> waiting_;   // tensors
  std::vector<bool> is_waiting_;  // by tensor
  bool impossible_ = false;
};

}  // namespace

void add_touches(Problem& problem) {
  std::unordered_map<uint64_t, size_t> known;  // by tensor and choice point: position in the tensor's choice points
  for (size_t p = 0; p < problem.partitions.size(); ++p) {
    const ProblemPartition& partition = problem.partitions[p];
    for (size_t slot = 0; slot < partition.tensors.size(); ++slot) {
      ProblemTensor& tensor = problem.tensors[partition.tensors[slot]];
      const bool writes = slot >= partition.reads;
      tensor.written |= writes;
      const uint64_t key = partition.tensors[slot] * problem.choice_points.size() + partition.choice_point;
      const auto [entry, fresh] = known.try_emplace(key, tensor.choice_points.size());
      if (fresh) {
        tensor.choice_points.push_back({partition.choice_point, {}, {}});
        tensor.choice_points.back().touches.resize(partition.in.size());
        tensor.choice_points.back().writes.resize(partition.in.size(), false);
      }
      ChoicePointTouch* const choice_point = &tensor.choice_points[entry->second];
      for (size_t a = 0; a < partition.in.size(); ++a) {
        if (!partition.in[a]) continue;
        choice_point->touches[a].push_back(tensor.touches.size());
        if (writes) choice_point->writes[a] = true;
      }
      tensor.touches.push_back({p, slot, writes});
    }
  }
  for (ProblemTensor& tensor : problem.tensors) {
    for (const ChoicePointTouch& choice_point : tensor.choice_points) {
      const bool some =
          std::find(choice_point.writes.begin(), choice_point.writes.end(), true) != choice_point.writes.end();
      const bool all =
          std::find(choice_point.writes.begin(), choice_point.writes.end(), false) == choice_point.writes.end();
      tensor.can_be_absent |= some && !all;
    }
  }
}

Result<Problem> make_problem(const Measurements& measurements, const Restriction& restriction) {
  return make_problem(measurements, cheapest_conversions(measurements), restriction);
}

Result<Problem> make_problem(const Measurements& measurements, const std::vector<CheapestConversions>& cheapest,
                             const Restriction& restriction) {
  Problem problem;
  problem.tensors = problem_tensors(measurements, cheapest);
  add_partitions(problem, measurements, restriction);
  add_touches(problem);
  if (Result<Done> done = Propagation(problem, measurements).run(); !done) return done.error();
  return problem;
}

}  // namespace millrace
