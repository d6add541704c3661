// The artefact of measuring: what every part of the training step costs in every way that passed its check, under which
// layouts. It names things by text and position alone, so that selection needs neither a graph nor a device, and it can
// be written to and read from a JSON file.
//
// What it means:
// - Every tensor is written by at most one part of a cover; one that no partition writes is given by the caller.
// - A way fixes one layout for each tensor that its partition touches. A tensor lies in the layout that its writer
// writes, or,
//   given by the caller, in its pinned one, and in each further layout that a conversion makes of it; a conversion is
//   paid once, however many partitions read what it makes. A partition may read any of them.
// - A tensor with a pinned layout that is written (a result, an argument's gradient) must lie in that layout at the
// end:
//   written so or converted.
// - A choice point is a set of operators that more than one set of partitions can carry out. A cover takes one
// alternative of every
//   choice point; tensors that only the other alternatives touch are then not there.
// - The cost of a step is the sum over the cover's parts of the chosen ways' seconds, plus the conversions'.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace millrace {

inline constexpr int kNoLayout = -1;

struct MeasuredTensor {
  std::string name;                  // unique
  std::vector<std::string> layouts;  // its domain, as text: "BJI"; a mask's has "bits" and "drawn" too
  int pinned = kNoLayout;            // the one that the caller gives or expects
};

// A way to carry out a partition that passed its check.
struct MeasuredCandidate {
  std::string candidate;     // as candidates print it
  std::vector<int> layouts;  // one a tensor of the partition: its reads, then its writes
  double seconds = 0;        // the median
  double low = 0;            // its confidence interval
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
  std::string candidate = {};  // as candidates print it; empty where a mask is drawn instead
};

struct MeasuredChoicePoint {
  std::vector<std::vector<int>> alternatives;  // each a list of partitions; the first is the default
};

struct Measurements {
  std::vector<MeasuredTensor> tensors;
  std::vector<MeasuredPartition> partitions;       // in an order in which every cover can run
  std::vector<MeasuredChoicePoint> choice_points;  // every partition in one of them
  std::vector<MeasuredConversion> conversions;
};

// A candidate that was tried, and what came of it.
struct TriedCandidate {
  std::string candidate;
  double seconds = 0;  // 0: it was refused
  std::string outcome;
  std::string detail;  // why it was refused
};

struct TriedPartition {
  std::string name;
  std::vector<TriedCandidate> tried;
};

// How they were come by.
struct Exploration {
  double configurations = 0;                 // of partitions, that there are
  double conversions = 0;                    // between the layouts in question
  double tried = 0;                          // in this run
  double known = 0;                          // from the database
  double not_needed = 0;                     // each is like another one, or the same in an equal partition
  std::vector<double> timing_class_spreads;  // of tried ones that are alike: the slowest by the fastest; ascending
  std::map<std::string, double> outcomes;    // of both: "measured", "wrong", …
  std::string first_failure;                 // what was wrong with the first that was not measured
  std::vector<TriedPartition> partitions;    // all of the candidates, whether or not a cover can take them
  double seconds = 0;

  bool is_whole() const { return tried + known + not_needed >= configurations + conversions; }
};

}  // namespace millrace
