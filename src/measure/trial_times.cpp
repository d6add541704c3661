#include "measure/trial_times.h"

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

constexpr double kFirstKernels = 8;     // in the first batch, before it is known how long one takes to compile
constexpr double kHangShare = 0.1;      // of the time left, for a trial that hangs
constexpr double kShortestTimeout = 1;  // seconds
constexpr double kTimesSlowest = 5;     // a trial this many times as slow as the slowest of its class is hung

}  // namespace

void TrialTimes::note_compiled(size_t kernels, double seconds) {
  if (kernels > 0) kernel_seconds_ = seconds / static_cast<double>(kernels);
}

void TrialTimes::note_tried(size_t partition_class, double seconds) {
  trial_seconds_ += seconds;
  trials_ += 1;
  double& slowest = slowest_[partition_class];
  slowest = std::max(slowest, seconds);
}

double TrialTimes::kernels_until(const Deadline& end) const {
  if (end.passed()) return 0;
  if (kernel_seconds_ > 0) return std::max(1.0, end.left() / (kernel_seconds_ + mean_trial()));
  return end.is_never() ? std::numeric_limits<double>::infinity() : kFirstKernels;
}

double TrialTimes::timeout(size_t partition_class, const Deadline& end) const {
  double seconds = std::min(hang_seconds_, std::max(kShortestTimeout, kHangShare * end.left()));
  if (const auto known = slowest_.find(partition_class); known != slowest_.end() && !end.is_never())
    seconds = std::min(seconds, std::max(kShortestTimeout, kTimesSlowest * known->second));
  return std::min(seconds, std::max(end.left(), 1e-3));
}

}  // namespace millrace
