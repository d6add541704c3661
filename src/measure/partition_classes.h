// The explorer's knowledge: classes of equal partitions, the trials of each class, and their outcomes. Test:
// tests/measure/partition_classes_test.cpp
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

// Partitions that compute the same under different names, and so take equally long.
struct PartitionClass {
  std::string text;
  size_t partitions = 0;        // number of partitions
  std::vector<size_t> members;  // their numbers; a conversion has none
  std::vector<Trial> trials;
  std::map<std::string, size_t> numbers;  // trial numbers by text
  std::vector<size_t> library_choices;    // numbers of the products whose algorithm the library chooses
  TrialQueue queue;
  Ratios ratios;
  std::set<int> timing_classes;                // those that have a trial
  std::map<std::string, MeasurementRow> rows;  // by candidate
  double best = kNotMeasured;
  bool comes_first = false;   // one of its partitions is in the most promising alternative of a choice point
  bool given_up = false;      // none of its trials is tried any more
  bool deferred = false;      // its trials come after all others, unless a selection wants one
  size_t baselines_left = 0;  // baselines whose outcome is unknown
};

struct TrialId {
  size_t partition_class = 0;
  size_t number = 0;
};

// The least of the listed candidates' estimates.
double least_estimate(const PartitionCandidates& partition);

enum class SearchMode {
  within_budget,  // the most promising candidates first, as long as the budget lasts
  exhaustive,     // one candidate of every timing class; others of the class only if wanted
};

class PartitionClasses {
 public:
  // A key for each candidate; candidates with equal keys are in one timing class. Null: the classes are unknown.
  using TimingClassKey = std::function<std::string(const Partition&, const Candidate&)>;

  // At most this many next candidates of a partition that is not listed whole; none if there are no others.
  using More = std::function<std::vector<Candidate>(size_t partition, size_t most)>;

  // A partition's candidate, and the number of its trial in its class.
  struct OwnCandidate {
    const Candidate* candidate = nullptr;
    size_t trial = 0;
  };

  // Adds the listed candidates of all partitions. Graph and candidates must outlive this.
  PartitionClasses(const Graph& graph, const Candidates& candidates, TimingClassKey timing_class = nullptr,
                   SearchMode mode = SearchMode::within_budget, More more = nullptr);

  // Adds a tensor's conversion, which must outlive this. Returns a trial per candidate, new or of an equal conversion.
  std::vector<TrialId> add_conversion(TensorId tensor, const PartitionCandidates& conversion);
  // Adds a candidate found during exploration.
  void add_late(size_t partition_class, const Partition& partition, Candidate candidate);
  // Adds a candidate that is not listed, but that an earlier run tried.
  void add_recalled(size_t partition, Candidate candidate);

  const std::deque<PartitionClass>& all() const { return classes_; }
  size_t number_of_class(size_t partition) const { return class_of_partition_[partition]; }
  const PartitionClass& class_of(size_t partition) const { return classes_[class_of_partition_[partition]]; }
  const Trial& trial(const TrialId& id) const { return classes_[id.partition_class].trials[id.number]; }
  TrialId trial_of_candidate(size_t partition, size_t candidate) const {
    return {class_of_partition_[partition], own_[partition][candidate].trial};
  }
  const std::vector<OwnCandidate>& candidates_of(size_t partition) const { return own_[partition]; }
  const Partition& partition(size_t number) const { return candidates_.partitions[number].partition; }
  std::optional<TrialId> find(size_t partition, const std::string& text) const;
  Launch launch_of(const Trial& trial) const;
  // Empty if the timing classes are unknown.
  std::string timing_class_key(const Partition& partition, const Candidate& candidate) const {
    return timing_class_ ? timing_class_(partition, candidate) : std::string();
  }
  // The expectation for the trials of a class; valid until an outcome is noted or a trial added.
  Expectation expectation(const PartitionClass& its_class) const { return {its_class.ratios, ratios_, &earlier_}; }
  // What earlier runs say about similar candidates, also of other programs.
  struct Learnt {
    Lesson lesson;
    double seconds = 0;
  };
  void learn(const std::vector<Learnt>& learnt);

  // The most promising trial of a class; nothing if all are chosen or known. When all listed candidates are done, adds
  // some that were not listed.
  std::optional<size_t> next_of(size_t partition_class);
  void choose(const TrialId& id) { at(id).chosen = true; }
  void leave(const TrialId& id);
  // Returns whether it is still to be tried.
  bool want(const TrialId& id);
  void note(const TrialId& id, const MeasurementRow& row);
  // The same for a trial that might have ended with more time.
  void note_unfinished(const TrialId& id, const MeasurementRow& row);
  // Uses the expected time for every baseline that was not tried, and for an unfinished trial if its class has no other
  // time. These rows are not stored in the database.
  void assume();
  // How many baselines have their expected time.
  double assumed() const { return assumed_; }
  // Stops trying a class, and uses the expected time of its baselines.
  void give_up(size_t partition_class);
  bool is_given_up(size_t partition_class) const { return classes_[partition_class].given_up; }
  // Counts only classes that are not deferred.
  bool has_baselines_left() const;
  void defer(size_t partition_class) { classes_[partition_class].deferred = true; }
  // Ends all deferrals. Returns whether there was one.
  bool resume();

  // Slowest time divided by fastest time of each timing class that is nearly as fast as the best; ascending.
  std::vector<double> timing_class_spreads() const;

  // Whether some partition reads or writes the tensor.
  bool is_touched(TensorId tensor) const { return touched_.contains(tensor); }
  // Whether a partition's tensors may have the candidate's layouts. An equal partition may allow others.
  bool fits(const Partition& partition, const Candidate& candidate) const;

  double configurations() const { return configurations_; }
  // Whether that number is an estimate.
  bool is_estimated() const { return estimated_ > 0; }
  // Whether all candidates of a partition are among candidates_of().
  bool is_listed_whole(size_t partition) const;
  // Marks the trials of a class that cannot be part of a faster plan: one entry per trial number.
  void set_hopeless(size_t partition_class, const std::vector<bool>& hopeless);

  // How many candidates need not be tried, since another of their timing class is.
  double represented() const { return represented_; }
  // The same plus those that equal a candidate of an equal partition.
  double not_needed() const { return represented_ + shared_; }
  const std::map<std::string, double>& outcomes() const { return outcomes_; }
  const std::string& first_failure() const { return first_failure_; }

 private:
  Trial& at(const TrialId& id) { return classes_[id.partition_class].trials[id.number]; }
  void add_partition(const PartitionCandidates& added);
  // Adds candidates that are not listed. Returns whether there were any.
  bool grow(PartitionClass& its_class);
  bool grow_partition(size_t partition);
  void finish_partition(size_t partition);
  bool can_grow(size_t partition) const;
  // The number of a partition's class; adds a class if it is new.
  size_t classify(const Partition& partition);
  Trial make_trial(const Partition& partition, const Candidate& candidate);
  size_t add(PartitionClass& into, Trial trial);
  void try_another_of_class(int timing_class, PartitionClass& its_class);
  void assume(PartitionClass& its_class);
  void assume(Trial& trial, Expectation& expected, PartitionClass& its_class);
  static bool has_time(const PartitionClass& its_class);

  const Graph& graph_;
  const Candidates& candidates_;
  TimingClassKey timing_class_;
  SearchMode mode_;
  More more_;
  std::deque<PartitionClass> classes_;  // a deque: references stay valid when classes are added
  std::map<std::string, size_t> class_by_text_;
  std::vector<size_t> class_of_partition_;        // by partition
  std::vector<std::vector<OwnCandidate>> own_;    // by partition
  std::vector<bool> finished_;                    // by partition: it has no other candidates
  std::deque<std::vector<Candidate>> grown_;      // trials point to them
  std::vector<std::unique_ptr<Candidate>> late_;  // likewise
  std::set<TensorId> touched_;                    // tensors that some partition reads or writes
  std::set<TensorId> converted_;                  // tensors of partitions that need layouts other than the program's
  ConfigKinds kinds_;
  Ratios ratios_;   // of all partitions, by config family
  Ratios earlier_;  // of earlier runs, by config family and shape
  double assumed_ = 0;
  double configurations_ = 0;
  size_t estimated_ = 0;    // partitions whose number of candidates is an estimate
  double represented_ = 0;  // not tried: represented by another of their timing class
  double shared_ = 0;       // equal to a candidate of an equal partition
  std::map<std::string, double> outcomes_;
  std::string first_failure_;
};

}  // namespace millrace
