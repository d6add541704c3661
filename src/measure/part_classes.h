// What there is to try and what is known of it: the parts that are equal, the candidates of each such class, and what
// came of those that were tried. Test: tests/measure/part_classes_test.cpp
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

// Parts that compute the same, under different names: what one takes, all take.
struct PartClass {
  std::string text;
  size_t parts = 0;  // how many
  std::vector<Trial> trials;
  std::map<std::string, size_t> numbers;  // of the trials, by their texts
  std::vector<size_t> own_choices;        // of a library: the numbers of products that no algorithm is named for
  TrialQueue queue;
  Ratios ratios;
  std::set<int> alikes;                        // the kinds by that name that there are
  std::map<std::string, MeasurementRow> rows;  // by candidate
  double best = kNotMeasured;
};

struct TrialId {
  size_t part_class = 0;
  size_t number = 0;
};

class PartClasses {
 public:
  // Which candidates are alike, by equal texts. Null: none are known to be.
  using Alike = std::function<std::string(const Part&, const Candidate&)>;

  // All candidates of all parts, which live longer as the graph does. `one_of_alike`: of those that are alike one is
  // to be tried, and others only where they are wanted.
  PartClasses(const Graph& graph, const Candidates& candidates, Alike alike = nullptr, bool one_of_alike = false);

  // Those of a tensor's conversion, which lives longer: one a candidate, new or an equal conversion's.
  std::vector<TrialId> add_conversion(TensorId tensor, const PartCandidates& of);
  // A candidate that was not there from the beginning.
  void add_late(size_t part_class, const Part& part, Candidate candidate);

  const std::deque<PartClass>& all() const { return classes_; }
  const PartClass& class_of(size_t part) const { return classes_[class_of_part_[part]]; }
  const Trial& trial(const TrialId& id) const { return classes_[id.part_class].trials[id.number]; }
  TrialId of_candidate(size_t part, size_t candidate) const;
  std::optional<TrialId> find(size_t part, const std::string& text) const;
  Launch launch_of(const Trial& trial) const;
  // Empty where nothing says which are alike.
  std::string alike_text(const Part& part, const Candidate& candidate) const {
    return alike_ ? alike_(part, candidate) : std::string();
  }
  // Of any trial of a class, until something is noted or added.
  Expectation expectation(const PartClass& of) const { return {of.ratios, ratios_}; }

  // The trial of a class that promises most; nothing where all are chosen or known.
  std::optional<size_t> next_of(size_t part_class);
  void choose(const TrialId& id) { at(id).chosen = true; }
  void leave(const TrialId& id);
  // Whether it is still to be tried.
  bool want(const TrialId& id);
  void note(const TrialId& id, const MeasurementRow& row);
  // The model's word for what would be tried whatever the budget; such rows are in no database.
  void assume();
  bool has_baselines_left() const { return baselines_left_ > 0; }

  // Of trials that are alike, and nearly as fast as the best: the slowest by the fastest, ascending.
  std::vector<double> alike_spreads() const;

  // Whether some part reads or writes it.
  bool is_touched(TensorId tensor) const { return touched_.contains(tensor); }
  // Whether a part's tensors may lie in the candidate's layouts: an equal part's may where this one's may not.
  bool fits(const Part& part, const Candidate& candidate) const;

  double configurations() const { return configurations_; }
  // How many were not tried and need not be: each is like another.
  double like_others() const { return like_others_; }
  // With those that are the same as one of an equal part.
  double not_needed() const { return like_others_ + equal_others_; }
  const std::map<std::string, double>& outcomes() const { return outcomes_; }
  const std::string& first_failure() const { return first_failure_; }

 private:
  Trial& at(const TrialId& id) { return classes_[id.part_class].trials[id.number]; }
  void add_part(const PartCandidates& of);
  // The number of a part's class: a new one where no equal part is known.
  size_t classify(const Part& part);
  Trial trial_of(const Part& part, const Candidate& candidate);
  size_t add(PartClass& into, Trial trial);
  void try_another_like(int alike, PartClass& of);

  const Graph& graph_;
  const Candidates& candidates_;
  Alike alike_;
  bool one_of_alike_;
  std::deque<PartClass> classes_;  // referred to while others are added
  std::map<std::string, size_t> class_by_text_;
  std::vector<size_t> class_of_part_;                // one a part of the candidates
  std::vector<std::vector<size_t>> trials_of_part_;  // one a candidate of each part
  std::vector<std::unique_ptr<Candidate>> late_;     // pointed to
  std::set<TensorId> touched_;                       // by some part
  std::set<TensorId> converted_;                     // of parts that cannot take them as the program writes them
  WayKinds kinds_;
  Ratios ratios_;              // of all parts, by family
  size_t baselines_left_ = 0;  // trials that must be tried and are not known
  double configurations_ = 0;
  double like_others_ = 0;
  double equal_others_ = 0;
  std::map<std::string, double> outcomes_;
  std::string first_failure_;
};

}  // namespace millrace
