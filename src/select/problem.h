// Measurements as selection works on them: the ways that can still matter, who touches which tensor, and the price of
// each conversion by position. Ways that no choice of the others can go with are dropped beforehand.
#pragma once

#include <limits>
#include <vector>

#include "measure/measurements.h"
#include "millrace/result.h"

namespace millrace {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct ProblemCandidate {
  std::vector<int> layouts;  // one a tensor of the partition
  double seconds = 0;
  int candidate = 0;  // of the measured partition
};

// A partition as one of the touchers of a tensor.
struct Touch {
  size_t partition = 0;
  size_t slot = 0;  // which of the partition's tensors
  bool writes = false;
};

struct ProblemPartition {
  size_t choice_point = 0;
  std::vector<bool> in;         // one an alternative of the choice point: whether the partition is in it
  std::vector<size_t> tensors;  // one may be there several times: read in several layouts, or written and read
  size_t reads = 0;             // so many of them come first, then the writes
  std::vector<ProblemCandidate> candidates;
};

// What one alternative of a choice point does to one tensor.
struct ChoicePointTouch {
  size_t choice_point = 0;
  std::vector<std::vector<size_t>> touches;  // one an alternative: positions in ProblemTensor::touches
  std::vector<bool> writes;                  // one an alternative
};

struct ProblemTensor {
  size_t layouts = 0;
  int pinned = kNoLayout;
  bool written = false;           // by some partition; otherwise the caller gives it
  bool can_be_absent = false;     // written, but not by every alternative of its writers' choice point
  std::vector<double> converted;  // seconds from one layout (row) to another (column); 0 to itself
  std::vector<Touch> touches;
  std::vector<ChoicePointTouch> choice_points;

  double conversion(size_t from, size_t to) const { return converted[from * layouts + to]; }
  // The layouts that it can lie in first, and one more for not being there.
  size_t bases() const { return layouts + (can_be_absent ? 1 : 0); }
};

struct Problem {
  std::vector<ProblemPartition> partitions;
  std::vector<ProblemTensor> tensors;
  std::vector<std::vector<std::vector<size_t>>> choice_points;  // alternatives of each, as lists of partitions
  std::vector<std::vector<bool>> open;                          // alternatives that can still be taken
};

// Choices made beforehand.
struct Restriction {
  std::vector<int> alternatives;  // one a choice point, or none: free
  std::vector<int> written;       // the layout that each tensor is written in; kNoLayout: free; or none
};

// Fills in who touches which tensor, from the partitions and choice points.
void add_touches(Problem& problem);

// Fails with no_configuration when some part of every alternative of a choice point has no way left.
Result<Problem> make_problem(const Measurements& measurements, const Restriction& restriction = {});

}  // namespace millrace
