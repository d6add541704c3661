// Partitions of attentions that compute rows of their operands, whether they fit a choice point or not.
#pragma once

#include <vector>

#include "candidates/attention_partitions.h"
#include "candidates/partition_builder.h"
#include "fusion/row_statistics.h"
#include "ir/row_family.h"

namespace millrace {

// Whether it is a pass of an attention that computes rows, in that pass or in the other.
inline bool computes_rows(const Partition& partition) { return partition.name.find(" with ") != std::string::npos; }

inline std::vector<PartitionCandidates> rows_of(const Recomputed& made) {
  const PartitionBuilder builder(made.training, made.fused);
  std::vector<PartitionCandidates> found;
  for (AttentionPartitions& each : find_attention_partitions(made.training, builder.callers()).partitions) {
    if (!computes_rows(each.forward)) continue;
    for (Partition* const pass : {&each.forward, each.backward ? &*each.backward : nullptr}) {
      if (pass != nullptr) found.push_back({*pass, 0, {}, {}});
    }
  }
  return found;
}

}  // namespace millrace
