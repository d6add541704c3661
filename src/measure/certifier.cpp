#include "measure/certifier.h"

#include <algorithm>
#include <limits>

#include "base/clock.h"

namespace millrace {
namespace {

constexpr double kLookShare = 0.05;   // largest share of the time for proofs
constexpr double kLookEvery = 0.5;    // seconds, at least
constexpr double kLookOfRest = 0.02;  // of the time left, for one of them
constexpr double kLastShare = 0.1;    // of the time left, for the last one
constexpr double kLongestProof = 10;  // seconds

double share_of(const Deadline& end, double share) { return std::min(kLongestProof, share * end.left()); }

}  // namespace

bool Certifier::can_prove() const { return settings_.prove && !knowledge_.classes.has_baselines_left(); }

void Certifier::prove(double seconds) {
  bounded_ = knowledge_.measurements.bounded(
      bounds_, settings_.refinements ? MeasurementsMaker::Listed::without_refinements : MeasurementsMaker::Listed::all);
  proof_ = settings_.prove(knowledge_.measurements.measured(), bounded_, seconds);
  if (proof_->step <= 0) proof_.reset();
}

bool Certifier::is_listed_whole() const {
  for (size_t k = 0; k < knowledge_.candidates.partitions.size(); ++k) {
    if (!knowledge_.classes.is_listed_whole(k)) return false;
  }
  return true;
}

// An exhaustive exploration tries everything. Every candidate has room if there are no ceilings, or if some candidates
// are not even listed.
void Certifier::look(const Deadline& end) {
  if (!can_prove() || settings_.exhaustive || settings_.ceilings.cache_bytes <= 0 || now() < look_at_) return;
  if (!is_listed_whole()) return;
  const double begin = now();
  prove(share_of(end, kLookOfRest));
  look_at_ = now() + std::max(kLookEvery, (now() - begin) / kLookShare);
  if (proof_ && !proof_->with.empty()) give_up_hopeless();
}

// One for each partition. A partition that no step uses has no room.
std::vector<Certifier::Room> Certifier::rooms() const {
  std::map<std::string, size_t> numbers;
  for (size_t k = 0; k < knowledge_.candidates.partitions.size(); ++k)
    numbers[knowledge_.candidates.partitions[k].partition.name] = k;
  std::vector<Room> rooms(knowledge_.candidates.partitions.size());
  const std::vector<MeasuredPartition>& partitions = bounded_.measurements.partitions;
  for (size_t p = 0; p < partitions.size(); ++p) {
    Room& room = rooms[numbers.at(partitions[p].name)];
    for (size_t k = 0; k < partitions[p].candidates.size(); ++k) {
      const MeasuredCandidate& candidate = partitions[p].candidates[k];
      room.try_emplace(candidate.layouts, proof_->with[p][k] - candidate.seconds);
    }
  }
  return rooms;
}

void Certifier::give_up_hopeless() {
  PartitionClasses& classes = knowledge_.classes;
  const std::vector<Room> room = rooms();
  for (size_t c = 0; c < classes.all().size(); ++c) {
    const PartitionClass& its_class = classes.all()[c];
    std::vector<bool> hopeless(its_class.trials.size(), false);
    for (const size_t partition : its_class.members) {
      for (const PartitionClasses::OwnCandidate& own : classes.candidates_of(partition)) hopeless[own.trial] = true;
    }
    for (const size_t partition : its_class.members) {
      for (const PartitionClasses::OwnCandidate& own : classes.candidates_of(partition)) {
        const auto rest = room[partition].find(own.candidate->layouts);
        if (rest == room[partition].end() || !hopeless[own.trial]) continue;
        const double step = rest->second + bounds_.seconds(classes.partition(partition), *own.candidate);
        if (step < limit()) hopeless[own.trial] = false;
      }
    }
    classes.set_hopeless(c, hopeless);
  }
}

bool Certifier::want_last(const Deadline& end) {
  if (!can_prove() || end.passed()) return false;
  prove(share_of(end, kLastShare));
  if (!proof_ || proven()->is_certified() || settings_.exhaustive) return false;
  bool open = false;
  for (const Wanted::Candidate& candidate : proof_->wanted.candidates) open |= want_candidates(candidate);
  for (const Wanted::Conversion& conversion : proof_->wanted.conversions) open |= want_conversions(conversion);
  return open;
}

// All untried candidates with its layouts: each of them may be as fast as its bound.
bool Certifier::want_candidates(const Wanted::Candidate& wanted) {
  PartitionClasses& classes = knowledge_.classes;
  const auto& partitions = knowledge_.candidates.partitions;
  const auto found = std::find_if(partitions.begin(), partitions.end(), [&](const PartitionCandidates& each) {
    return each.partition.name == wanted.partition;
  });
  const auto number = static_cast<size_t>(found - partitions.begin());
  const std::optional<TrialId> used = classes.find(number, wanted.candidate);
  if (!used || classes.trial(*used).is_settled()) return false;
  const std::vector<int> layouts = classes.trial(*used).candidate->layouts;
  const std::vector<PartitionClasses::OwnCandidate>& own = classes.candidates_of(number);
  bool open = false;
  for (size_t k = 0; k < own.size(); ++k) {
    const TrialId trial = classes.trial_of_candidate(number, k);
    if (own[k].candidate->layouts == layouts && !classes.trial(trial).known) open |= classes.want(trial);
  }
  return open;
}

bool Certifier::want_conversions(const Wanted::Conversion& wanted) {
  const std::vector<Tensor>& tensors = knowledge_.graph.tensors;
  bool open = false;
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (tensors[k].name != wanted.tensor) continue;
    knowledge_.conversions.add_all(TensorId(k), wanted.from, wanted.to);
    for (const ConversionTrial& each : knowledge_.conversions.added()) {
      if (each.tensor == TensorId(k) && each.from == wanted.from && each.to == wanted.to)
        open |= knowledge_.classes.want(each.trial);
    }
  }
  return open;
}

std::optional<Certificate> Certifier::proven() const {
  if (!proof_) return std::nullopt;
  return Certificate{proof_->step, proof_->lower_bound,
                     knowledge_.classes.configurations() + knowledge_.conversions.configurations(),
                     knowledge_.classes.assumed() == 0};
}

// The lower bound of a step made of any candidates, layouts ignored.
double Certifier::least_seconds() {
  double sum = 0;
  for (const ChoicePoint& choice_point : knowledge_.candidates.choice_points) {
    double least = std::numeric_limits<double>::infinity();
    for (const std::vector<int>& alternative : choice_point.alternatives) {
      double seconds = 0;
      for (const int partition : alternative)
        seconds += bounds_.seconds(knowledge_.classes.partition(static_cast<size_t>(partition)));
      least = std::min(least, seconds);
    }
    sum += least;
  }
  return sum;
}

std::optional<Certificate> Certifier::certificate(double best_step) {
  if (proof_ || settings_.ceilings.cache_bytes <= 0) return proven();
  knowledge_.measurements.note_measured(bounds_);
  proof_ = StepProof{best_step, least_seconds(), {}, {}};
  return proven();
}

}  // namespace millrace
