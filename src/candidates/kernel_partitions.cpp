#include <algorithm>

#include "base/text.h"
#include "candidates/partition_kinds.h"

namespace millrace {
namespace {

std::string name_of_last_write(const Graph& graph, const Partition& partition) {
  return partition.writes.empty() ? "" : concat(" (", graph.tensor(partition.writes.back()).name, ")");
}

}  // namespace

void add_groups(const PartitionBuilder& builder, PartitionSet& set) {
  for (const FusedOperator& group : builder.fused().groups) {
    if (group.members.size() > 1) {
      Partition partition = builder.kernel(group, rest_of(group, {}));
      partition.name = concat(group.name, name_of_last_write(builder.graph(), partition));
      set.add(std::move(partition));
    }
    for (const OperatorId member : group.members) set.add(builder.single(member));
  }
}

void add_rest_of_groups(const PartitionBuilder& builder, PartitionSet& set, const std::vector<OperatorId>& absorbed) {
  for (const FusedOperator* group : builder.groups_with(absorbed)) {
    const std::vector<size_t> rest = rest_of(*group, absorbed);
    if (rest.size() < 2 || !builder.leaves_kernel(*group, absorbed)) continue;
    Partition partition = builder.kernel(*group, rest);
    partition.name = join(builder.names_of(partition.operators), ", ");
    const bool known =
        std::any_of(set.partitions().begin(), set.partitions().end(),
                    [&](const PartitionCandidates& other) { return other.partition.operators == partition.operators; });
    if (!known) set.add(std::move(partition));
  }
}

}  // namespace millrace
