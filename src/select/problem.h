// Measurements in the form that selection works on: the candidates that can still matter, which partitions touch which
// tensor, and the cost of each conversion by position. Candidates that fit no choice of the others are dropped
// beforehand. Test: tests/select/select_test.cpp
#pragma once

#include <limits>
#include <vector>

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/conversions.h"

namespace millrace {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct ProblemCandidate {
  std::vector<int> layouts;  // one per tensor of the partition
  double seconds = 0;
  int candidate = 0;  // index in the measured partition
};

// One use of a tensor by a partition.
struct Touch {
  size_t partition = 0;
  size_t slot = 0;  // which of the partition's tensors
  bool writes = false;
};

struct ProblemPartition {
  size_t choice_point = 0;
  std::vector<bool> in;         // one per alternative of the choice point: whether the partition is in it
  std::vector<size_t> tensors;  // a tensor may occur several times: read in several layouts, or written and read
  size_t reads = 0;             // how many of the first tensors are read; the others are written
  std::vector<ProblemCandidate> candidates;
};

// What each alternative of a choice point does to one tensor.
struct ChoicePointTouch {
  size_t choice_point = 0;
  std::vector<std::vector<size_t>> touches;  // one per alternative: positions in ProblemTensor::touches
  std::vector<bool> writes;                  // one per alternative
};

struct ProblemTensor {
  size_t layouts = 0;
  int pinned = kNoLayout;
  bool written = false;           // by some partition; otherwise the caller gives it
  bool can_be_absent = false;     // written, but not by every alternative of its writers' choice point
  std::vector<double> converted;  // seconds from one layout (row) to another (column), by the cheapest chain
  std::vector<Touch> touches;
  std::vector<ChoicePointTouch> choice_points;

  double conversion(size_t from, size_t to) const { return converted[from * layouts + to]; }
  // The layouts that can come first, plus one for an absent tensor.
  size_t bases() const { return layouts + (can_be_absent ? 1 : 0); }
};

struct Problem {
  std::vector<ProblemPartition> partitions;
  std::vector<ProblemTensor> tensors;
  std::vector<std::vector<std::vector<size_t>>> choice_points;  // alternatives of each, as lists of partitions
  std::vector<std::vector<bool>> open;                          // alternatives that can still be chosen
};

// Choices that are fixed beforehand.
struct Restriction {
  std::vector<int> alternatives;  // one per choice point, or empty: free
  std::vector<int> written;       // the layout that each tensor is written in; kNoLayout: free; or empty
};

// Derives which partitions touch which tensor from the partitions and choice points.
void add_touches(Problem& problem);

// Fails with no_configuration if every alternative of some choice point has a partition without candidates.
Result<Problem> make_problem(const Measurements& measurements, const Restriction& restriction = {});
Result<Problem> make_problem(const Measurements& measurements, const std::vector<CheapestConversions>& cheapest,
                             const Restriction& restriction);

}  // namespace millrace
