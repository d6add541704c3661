#include "report/layout_reasons.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "report/units.h"

namespace millrace {
namespace {

// Seconds of the partitions that a plan launches, by the layout of one tensor.
class TimesByLayout {
 public:
  TimesByLayout(const StepPlan& plan, const Measurements& measurements) : measurements_(measurements) {
    std::set<std::string> launched;
    for (const PlanLaunch& launch : plan.launches) launched.insert(launch.partition);
    for (const MeasuredPartition& partition : measurements.partitions) {
      if (!launched.contains(partition.name)) continue;
      std::vector<int> tensors = partition.reads;
      tensors.insert(tensors.end(), partition.writes.begin(), partition.writes.end());
      for (size_t k = 0; k < tensors.size(); ++k) add(partition, k, static_cast<size_t>(tensors[k]));
    }
  }

  int touching(size_t tensor) const {
    const auto found = touching_.find(tensor);
    return found != touching_.end() ? found->second : 0;
  }

  // One per layout of the tensor.
  std::vector<double> of(size_t tensor) const {
    const auto found = seconds_.find(tensor);
    return found != seconds_.end() ? found->second
                                   : std::vector<double>(measurements_.tensors[tensor].layouts.size(), kNoTime);
  }

 private:
  void add(const MeasuredPartition& partition, size_t slot, size_t tensor) {
    std::vector<double> best(measurements_.tensors[tensor].layouts.size(), kNoTime);
    for (const MeasuredCandidate& candidate : partition.candidates) {
      double& known = best[as_index(candidate.layouts[slot])];
      known = std::min(known, candidate.seconds);
    }
    std::vector<double>& sum = seconds_.try_emplace(tensor, best.size(), 0.0).first->second;
    for (size_t k = 0; k < best.size(); ++k) sum[k] += best[k];
    ++touching_[tensor];
  }

  const Measurements& measurements_;
  std::map<size_t, std::vector<double>> seconds_;
  std::map<size_t, int> touching_;
};

LayoutChoice choice_of(const LayoutReason& reason, bool pinned) {
  if (pinned) return LayoutChoice::callers;
  if (reason.also.empty() && reason.seconds == kNoTime) return LayoutChoice::estimated;
  if (!reason.also.empty() || reason.other.empty()) return LayoutChoice::only;
  return reason.seconds <= reason.other_seconds ? LayoutChoice::fastest : LayoutChoice::for_others;
}

std::string why(const LayoutReason& reason) {
  switch (reason.choice) {
    case LayoutChoice::callers:
      return concat("the caller's layout; --layout ", reason.caller, "=any lets Millrace choose");
    case LayoutChoice::fastest: return "the fastest for the launches that touch it";
    case LayoutChoice::for_others:
      return concat("up to ", shown_seconds(reason.seconds - reason.other_seconds),
                    " slower here, but other tensors of these launches gain more by it");
    case LayoutChoice::estimated:
      return "the best estimate: this layout was not measured for all launches that touch it";
    case LayoutChoice::only: break;
  }
  return reason.also.empty() ? "no other layout was measured for all launches that touch it"
                             : "its launches need different layouts: a conversion costs less than one layout for all";
}

std::string name_for_caller(const StepPlan& plan, const PlanBuffer& buffer) {
  if (buffer.location != BufferLocation::argument_gradient) return buffer.tensor;
  const auto argument = std::find_if(plan.buffers.begin(), plan.buffers.end(), [&](const PlanBuffer& other) {
    return other.location == BufferLocation::argument && other.position == buffer.position;
  });
  return argument == plan.buffers.end() ? buffer.tensor : concat("d_", argument->tensor);
}

}  // namespace

std::vector<LayoutReason> layout_reasons(const StepPlan& plan, const Measurements& measurements) {
  const TimesByLayout times(plan, measurements);
  std::map<std::string, size_t> tensors;
  for (size_t k = 0; k < measurements.tensors.size(); ++k) tensors[measurements.tensors[k].name] = k;
  std::vector<LayoutReason> reasons;
  std::map<std::string, size_t> known;
  for (const PlanBuffer& buffer : plan.buffers) {
    if (const auto [at, fresh] = known.try_emplace(buffer.tensor, reasons.size()); !fresh) {
      std::string& also = reasons[at->second].also;
      also += concat(also.empty() ? "" : ", ", buffer.layout);
      continue;
    }
    reasons.push_back(
        {buffer.tensor, buffer.layout, "", 0, kNoTime, "", kNoTime, {}, "", name_for_caller(plan, buffer)});
  }
  for (LayoutReason& reason : reasons) {
    const auto tensor = tensors.find(reason.tensor);
    if (tensor == tensors.end()) continue;
    const MeasuredTensor& measured = measurements.tensors[tensor->second];
    const std::vector<double> seconds = times.of(tensor->second);
    reason.launches = times.touching(tensor->second);
    for (size_t k = 0; k < seconds.size(); ++k) {
      if (measured.layouts[k] == reason.layout) {
        reason.seconds = seconds[k];
      } else if (seconds[k] < reason.other_seconds) {
        reason.other = measured.layouts[k];
        reason.other_seconds = seconds[k];
      }
    }
    const bool pinned = measured.pinned >= 0 && measured.layouts[as_index(measured.pinned)] == reason.layout;
    reason.choice = choice_of(reason, pinned);
    if (reason.launches > 0) reason.why = why(reason);
  }
  return reasons;
}

}  // namespace millrace
