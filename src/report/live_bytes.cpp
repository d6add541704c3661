#include "report/live_bytes.h"

#include <algorithm>

#include "base/text.h"
#include "report/units.h"

namespace millrace {

std::vector<LiveBytes> live_bytes(const StepPlan& plan) {
  std::vector<LiveBytes> live(plan.launches.size());
  const int backward = first_of_backward(plan);
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.location != BufferLocation::arena || buffer.first < 0) continue;
    const bool crosses = buffer.first < backward && buffer.last >= backward;
    const auto end = std::min(live.size(), static_cast<size_t>(buffer.last) + 1);
    for (auto k = static_cast<size_t>(buffer.first); k < end; ++k)
      (crosses ? live[k].saved : live[k].temporary) += buffer.bytes;
  }
  return live;
}

size_t peak_of(const std::vector<LiveBytes>& live) {
  const auto less = [](const LiveBytes& l, const LiveBytes& r) { return l.all() < r.all(); };
  return static_cast<size_t>(std::max_element(live.begin(), live.end(), less) - live.begin());
}

std::string arena_text(const StepPlan& plan) {
  return concat(shown_bytes(plan.arena_bytes), " (without reuse: ", shown_bytes(plan.sum_bytes + plan.scratch_bytes),
                ")");
}

}  // namespace millrace
