#include "report/traffic.h"

#include <algorithm>
#include <map>

namespace millrace {
namespace {

// How many of a launch's buffers it reads; it writes the others.
std::map<std::string, size_t> reads_by_partition(const Candidates& candidates) {
  std::map<std::string, size_t> reads;
  for (const PartitionCandidates& entry : candidates.partitions)
    reads[entry.partition.name] = entry.partition.reads.size();
  return reads;
}

void add_traffic(const PlanBuffer& buffer, bool is_read, std::map<std::string, TensorTraffic>& traffic) {
  TensorTraffic& made = traffic[buffer.tensor];
  made.tensor = buffer.tensor;
  (is_read ? made.read_bytes : made.written_bytes) += buffer.bytes;
  ++(is_read ? made.reads : made.writes);
}

}  // namespace

std::vector<TensorTraffic> tensor_traffic(const StepPlan& plan, const Candidates& candidates) {
  const std::map<std::string, size_t> reads = reads_by_partition(candidates);
  std::map<std::string, TensorTraffic> traffic;
  for (const PlanLaunch& launch : plan.launches) {
    const auto partition = reads.find(launch.partition);
    const size_t count = partition == reads.end() ? 1 : partition->second;  // a conversion reads one
    for (size_t k = 0; k < launch.buffers.size(); ++k) {
      if (launch.buffers[k] != kNoBuffer) add_traffic(plan.buffers[as_index(launch.buffers[k])], k < count, traffic);
    }
  }
  std::vector<TensorTraffic> sorted;
  for (auto& [name, made] : traffic) sorted.push_back(std::move(made));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const TensorTraffic& l, const TensorTraffic& r) { return l.bytes() > r.bytes(); });
  return sorted;
}

}  // namespace millrace
