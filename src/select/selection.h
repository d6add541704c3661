// The artefact of selection: which alternative of every choice point, which way of every partition, which conversions.
#pragma once

#include <string>
#include <vector>

namespace millrace {

enum class SelectMethod {
  exact,  // the optimum over forward and backward together, over all covers
  sssp,   // the paper's shortest path along forward, backward following from it
};

struct SelectedPartition {
  int partition = 0;  // of the measurements
  int candidate = 0;  // of the partition
};

struct SelectedConversion {
  int tensor = 0;
  int from = 0;  // layouts of the tensor's domain
  int to = 0;
  double seconds = 0;
};

struct Selection {
  SelectMethod method = SelectMethod::exact;
  std::vector<int> alternatives;              // one a choice point
  std::vector<SelectedPartition> partitions;  // of the cover, in the order of the measurements
  std::vector<SelectedConversion> conversions;
  double cost = 0;     // seconds of a step
  double bound = 0;    // what it would cost if every partition could take its fastest way: no layouts, no conversions
  bool proven = true;  // exact: no cheaper one exists; false when the search was cut short
};

}  // namespace millrace
