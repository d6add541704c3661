// What there is to try and what is known of it: the partitions that are equal, the candidates of each such class, and
// what came of those that were tried. Test: tests/measure/partition_classes_test.cpp
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "device/launch.h"
#include "measure/expectation.h"
#include "measure/measurement_row.h"
#include "measure/trial_queue.h"

namespace millrace {

inline constexpr double kNotMeasured = std::numeric_limits<double>::infinity();

// Partitions that compute the same, under different names: what one takes, all take.
struct PartitionClass {
  std::string text;
  size_t partitions = 0;  // how many
  std::vector<Trial> trials;
  std::map<std::string, size_t> numbers;  // of the trials, by their texts
  std::vector<size_t> own_choices;        // of a library: the numbers of products that no algorithm is named for
  TrialQueue queue;
  Ratios ratios;
  std::set<int> timing_classes;                // the kinds by that name that there are
  std::map<std::string, MeasurementRow> rows;  // by candidate
  double best = kNotMeasured;
};

struct TrialId {
  size_t partition_class = 0;
  size_t number = 0;
};

class PartitionClasses {
 public:
  // Which candidates are alike, by equal texts. Null: none are known to be.
  using TimingClass = std::function<std::string(const Partition&, const Candidate&)>;

  // All candidates of all partitions, which live longer as the graph does. `one_of_timing_class`: of those that are
  // alike one is to be tried, and others only where they are wanted.
  PartitionClasses(const Graph& graph, const Candidates& candidates, TimingClass timing_class = nullptr,
                   bool one_of_timing_class = false);

  // Those of a tensor's conversion, which lives longer: one a candidate, new or an equal conversion's.
  std::vector<TrialId> add_conversion(TensorId tensor, const PartitionCandidates& of);
  // A candidate that was not there from the beginning.
  void add_late(size_t partition_class, const Partition& partition, Candidate candidate);

  const std::deque<PartitionClass>& all() const { return classes_; }
  const PartitionClass& class_of(size_t partition) const { return classes_[class_of_partition_[partition]]; }
  const Trial& trial(const TrialId& id) const { return classes_[id.partition_class].trials[id.number]; }
  TrialId of_candidate(size_t partition, size_t candidate) const;
  std::optional<TrialId> find(size_t partition, const std::string& text) const;
  Launch launch_of(const Trial& trial) const;
  // Empty where nothing says which are alike.
  std::string timing_class_text(const Partition& partition, const Candidate& candidate) const {
    return timing_class_ ? timing_class_(partition, candidate) : std::string();
  }
  // Of any trial of a class, until something is noted or added.
  Expectation expectation(const PartitionClass& of) const { return {of.ratios, ratios_}; }

  // The trial of a class that promises most; nothing where all are chosen or known.
  std::optional<size_t> next_of(size_t partition_class);
  void choose(const TrialId& id) { at(id).chosen = true; }
  void leave(const TrialId& id);
  // Whether it is still to be tried.
  bool want(const TrialId& id);
  void note(const TrialId& id, const MeasurementRow& row);
  // The model's word for what would be tried whatever the budget; such rows are in no database.
  void assume();
  bool has_baselines_left() const { return baselines_left_ > 0; }

  // Of trials that are alike, and nearly as fast as the best: the slowest by the fastest, ascending.
  std::vector<double> timing_class_spreads() const;

  // Whether some partition reads or writes it.
  bool is_touched(TensorId tensor) const { return touched_.contains(tensor); }
  // Whether a partition's tensors may lie in the candidate's layouts: an equal partition's may where this one's may
  // not.
  bool fits(const Partition& partition, const Candidate& candidate) const;

  double configurations() const { return configurations_; }
  // How many were not tried and need not be: each is like another.
  double like_others() const { return like_others_; }
  // With those that are the same as one of an equal partition.
  double not_needed() const { return like_others_ + equal_others_; }
  const std::map<std::string, double>& outcomes() const { return outcomes_; }
  const std::string& first_failure() const { return first_failure_; }

 private:
  Trial& at(const TrialId& id) { return classes_[id.partition_class].trials[id.number]; }
  void add_partition(const PartitionCandidates& of);
  // The number of a partition's class: a new one where no equal partition is known.
  size_t classify(const Partition& partition);
  Trial trial_of(const Partition& partition, const Candidate& candidate);
  size_t add(PartitionClass& into, Trial trial);
  void try_another_like(int timing_class, PartitionClass& of);

  const Graph& graph_;
  const Candidates& candidates_;
  TimingClass timing_class_;
  bool one_of_timing_class_;
  std::deque<PartitionClass> classes_;  // referred to while others are added
  std::map<std::string, size_t> class_by_text_;
  std::vector<size_t> class_of_partition_;                // one a part of the candidates
  std::vector<std::vector<size_t>> trials_of_partition_;  // one a candidate of each partition
  std::vector<std::unique_ptr<Candidate>> late_;          // pointed to
  std::set<TensorId> touched_;                            // by some partition
  std::set<TensorId> converted_;  // of partitions that cannot take them as the program writes them
  ConfigKinds kinds_;
  Ratios ratios_;              // of all partitions, by family
  size_t baselines_left_ = 0;  // trials that must be tried and are not known
  double configurations_ = 0;
  double like_others_ = 0;
  double equal_others_ = 0;
  std::map<std::string, double> outcomes_;
  std::string first_failure_;
};

}  // namespace millrace
