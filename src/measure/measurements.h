// The artefact of measuring: the time of every candidate that passed its check, with its layouts. It refers to things
// by text and position only, so that selection needs neither a graph nor a device. measurements_json.h writes and reads
// it. Test: tests/measure/measurements_json_test.cpp
//
// What it means:
// - A choice point is a set of operators that several sets of partitions, its alternatives, can compute. A selection
//   takes one alternative of every choice point. Tensors that only other alternatives touch then do not exist.
// - In a selection at most one partition writes a tensor. The caller provides the tensors that no partition writes.
// - A candidate fixes one layout for each tensor that its partition touches. A tensor exists in the layout in which it
//   is written or, if the caller provides it, in its pinned layout, and in each layout that a conversion adds. A
//   conversion is paid once, however many partitions read its output. A partition may read any of these layouts.
// - A layout may be made by a chain of conversions. Each layout pays for its whole chain.
// - A written tensor with a pinned layout (a result, an argument's gradient) must exist in that layout at the end:
//   written so or converted.
// - The cost of a step is the sum of the seconds of the selected candidates and conversions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

inline constexpr int kNoLayout = -1;

struct MeasuredTensor {
  std::string name;                  // unique
  std::vector<std::string> layouts;  // its domain, as text: "BJI"; a mask also has "bits" and "regenerated"
  int pinned = kNoLayout;            // the layout that the caller provides or expects
};

// A candidate that passed its check.
struct MeasuredCandidate {
  std::string candidate;     // as print_candidate() writes it
  std::vector<int> layouts;  // one per tensor of the partition: its reads, then its writes
  double seconds = 0;        // the median
  double low = 0;            // its confidence interval; zero: an estimate
  double high = 0;
};

struct MeasuredPartition {
  std::string name;  // unique
  bool backward = false;
  std::vector<int> reads;  // tensors
  std::vector<int> writes;
  std::vector<MeasuredCandidate> candidates;
};

struct MeasuredConversion {
  int tensor = 0;
  int from = 0;
  int to = 0;
  double seconds = 0;
  std::string candidate = {};  // as print_candidate() writes it; empty if not measured
};

struct MeasuredChoicePoint {
  std::vector<std::vector<int>> alternatives;  // lists of partitions; the first is the default
};

struct Measurements {
  std::vector<MeasuredTensor> tensors;
  std::vector<MeasuredPartition> partitions;       // in an order in which every selection can run
  std::vector<MeasuredChoicePoint> choice_points;  // every partition is in one of them
  std::vector<MeasuredConversion> conversions;
};

// A candidate that was tried, and its outcome.
struct TriedCandidate {
  std::string candidate;
  double seconds = 0;  // 0: it failed
  std::string outcome;
  std::string detail;  // why it failed
};

struct TriedPartition {
  std::string name;
  std::vector<TriedCandidate> tried;
};

// What was known at one time of an exploration.
struct ExplorationPoint {
  double seconds = 0;  // since it began
  double tried = 0;    // candidates, in this run
  double step = 0;     // seconds of the best selection; 0: none yet
  double bound = 0;    // seconds of a step if every partition could use its fastest candidate so far
};

// What was proven about the best step: how fast a step of any of the candidates, tried or not, can be.
struct Certificate {
  static constexpr double kFaster = 1e-3;  // a step counts as faster if it takes less time by this fraction

  double step = 0;         // seconds of the best selection then; 0: none was known
  double lower_bound = 0;  // seconds: no selection of all candidates takes less
  double candidates = 0;   // how many there are, including conversions
  bool measured = true;    // false: the step has launches with expected times

  bool is_certified() const { return measured && step > 0 && lower_bound >= step * (1 - kFaster); }
};

// Statistics of an exploration.
struct Exploration {
  double configurations = 0;                 // candidates of all partitions
  bool estimated = false;                    // that number is estimated from a sample
  double conversions = 0;                    // candidates of the conversions considered
  double tried = 0;                          // in this run
  double known = 0;                          // from the database
  double not_needed = 0;                     // represented by another of their timing class or of an equal partition
  std::vector<double> timing_class_spreads;  // slowest time divided by fastest, per timing class; ascending
  std::map<std::string, double> outcomes;    // of tried and known ones: "measured", "wrong", …
  std::string first_failure;                 // why the first candidate failed
  std::vector<TriedPartition> partitions;    // all partitions, including those no selection can use
  double seconds = 0;
  double assumed = 0;                      // baselines for which there was no time: they have their expected seconds
  std::vector<ExplorationPoint> points;    // over time, the last at its end
  std::optional<Certificate> certificate;  // nothing: there was no time for it

  // Whether a longer exploration finds nothing faster.
  bool is_complete() const { return is_whole() || (certificate && certificate->is_certified()); }
  bool is_whole() const { return !estimated && tried + known + not_needed >= configurations + conversions; }
};

}  // namespace millrace
