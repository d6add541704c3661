#include "measure/trial_times.h"

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

constexpr double kFirstKernels = 2;        // of each compiler, before it is known how long one takes to compile
constexpr double kFirstKernelSeconds = 1;  // until then
constexpr double kLikelySeconds = 0.25;    // of a small part of a long kernel, until then
constexpr double kBatchShare = 0.5;        // of the time left
constexpr double kHangShare = 0.2;         // of the time left
constexpr double kFirstShare = 0.4;        // the same for the first trial of a class
constexpr double kShortestTimeout = 1;     // seconds
constexpr double kTimesSlowest = 5;        // a trial this many times as slow as the slowest of its class is hung

}  // namespace

void TrialTimes::note_compiled(double kernels, double seconds) {
  if (kernels > 0) kernel_seconds_ = seconds / kernels;
}

void TrialTimes::note_tried(size_t partition_class, double seconds) {
  trial_seconds_ += seconds;
  trials_ += 1;
  double& slowest = slowest_[partition_class];
  slowest = std::max(slowest, seconds);
}

// A busy machine may become slower: a batch takes at most half of the time, or is one kernel that just fits.
double TrialTimes::kernels_until(const Deadline& end) const {
  if (end.is_never()) return std::numeric_limits<double>::infinity();
  const double fit = end.left() / (kernel_seconds_ > 0 ? kernel_seconds_ + mean_trial() : kFirstKernelSeconds);
  const double most =
      kernel_seconds_ > 0 ? fit * kBatchShare : std::min(fit, kFirstKernels * static_cast<double>(compilers_));
  return fit >= 1 ? std::max(1.0, most) : 0;
}

bool TrialTimes::has_time_for(double kernels, const Deadline& end) const {
  return end.left() >= kernels * (kernel_seconds_ > 0 ? kernel_seconds_ : kLikelySeconds);
}

double TrialTimes::timeout(size_t partition_class, const Deadline& end) const {
  const auto known = slowest_.find(partition_class);
  const double share = known == slowest_.end() ? kFirstShare : kHangShare;
  double seconds = std::min(hang_seconds_, std::max(kShortestTimeout, share * end.left()));
  if (known != slowest_.end() && !end.is_never())
    seconds = std::min(seconds, std::max(kShortestTimeout, kTimesSlowest * known->second));
  return std::min(seconds, std::max(end.left(), 1e-3));
}

}  // namespace millrace
