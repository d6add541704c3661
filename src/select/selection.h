// The artefact of selection: the alternative chosen at every choice point, the candidate chosen for every partition,
// and the conversions.
// Test: tests/select/verify_test.cpp
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace millrace {

enum class SelectMethod {
  exact,  // the optimum over forward and backward together, over all alternatives
  sssp,   // the paper's shortest path along forward; backward follows from it
};

struct SelectedPartition {
  int partition = 0;  // index in the measurements
  int candidate = 0;  // index in the partition
};

// A conversion, or a chain of conversions. A conversion that several chains have in common is paid by each of them, but
// a plan launches it once.
struct SelectedConversion {
  int tensor = 0;
  int from = 0;  // layouts of the tensor's domain
  int to = 0;
  double seconds = 0;         // of the whole chain
  std::vector<int> via = {};  // layouts between `from` and `to`

  // The layouts that each conversion of the chain reads and writes.
  std::vector<std::pair<int, int>> chain() const;
};

struct Selection {
  SelectMethod method = SelectMethod::exact;
  std::vector<int> alternatives;              // one per choice point
  std::vector<SelectedPartition> partitions;  // the selected ones, in the order of the measurements
  std::vector<SelectedConversion> conversions;
  double cost = 0;         // seconds of a step
  double bound = 0;        // every partition with its fastest candidate, layouts and conversions ignored
  double lower_bound = 0;  // proven: no selection of these measurements costs less; at least `bound`
  bool proven = false;     // no selection costs less than this one: `cost` equals `lower_bound`

  // How much more than the optimum the selection can cost at most, as a fraction of the optimum.
  double proven_gap() const { return lower_bound > 0 && !proven ? cost / lower_bound - 1 : 0.0; }
};

}  // namespace millrace
