#include "measure/sampling.h"

#include <algorithm>
#include <array>

#include "measure/statistics.h"

namespace millrace {
namespace {

constexpr size_t kMost = 40;
constexpr double kTight = 0.02;  // of the median: its confidence interval

// A candidate whose fastest run takes more than `times` times as long as the best candidate needs no more than
// `samples` samples.
struct Beaten {
  double times;
  size_t samples;
};
constexpr std::array<Beaten, 3> kBeaten = {{{1.5, 1}, {1.15, 3}, {1.05, 5}}};

// After `samples` samples, the sampling ends once it has taken `times` times the time meant for it. So a slow candidate
// gets fewer samples.
struct Fewest {
  size_t samples;
  double times;
};
constexpr std::array<Fewest, 3> kFewest = {{{1, 4}, {3, 2}, {5, 1}}};

}  // namespace

void Sampling::add(double sample) {
  samples_.push_back(sample);
  spent_ += sample;
  fastest_ = std::min(fastest_, sample);
}

bool Sampling::is_beaten() const {
  return best_ > 0 && std::any_of(kBeaten.begin(), kBeaten.end(), [&](const Beaten& by) {
           return samples_.size() >= by.samples && fastest_ > by.times * best_;
         });
}

bool Sampling::has_taken_long() const {
  return std::any_of(kFewest.begin(), kFewest.end(), [&](const Fewest& few) {
    return samples_.size() >= few.samples && spent_ >= few.times * seconds_;
  });
}

bool Sampling::is_enough() const {
  if (samples_.empty()) return false;
  if (samples_.size() >= kMost || has_taken_long() || is_beaten()) return true;
  return samples_.size() >= 6 && tight(estimate(samples_), kTight);
}

}  // namespace millrace
