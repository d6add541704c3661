#include "measure/attention_errors.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr double kRoundoff = 0x1p-24;     // of float32
constexpr double kAddition = 0x1p-23;     // of tensor cores
constexpr double kExponential = 0x1p-21;  // relative
constexpr double kSteps = 4;              // roundings besides the sums: factors, differences, quotients
constexpr double kFewestKeys = 16;        // between two increases of a row's maximum
constexpr double kFlushed = 0x1p-120;     // float32 subnormals

// The most often that a row's maximum can grow.
double growths_of(const Attention& attention) { return static_cast<double>(attention.keys) / kFewestKeys + 1; }

}  // namespace

int power_of_queries(double scale, int64_t inner, double product) {
  const double deviation = std::abs(scale) * std::sqrt(static_cast<double>(inner)) * product;
  const int power = deviation > 0 ? static_cast<int>(std::lround(std::log2(1.5 / deviation))) : 0;
  return std::clamp(power, -4, 8);
}

AttentionErrors::ScoreError AttentionErrors::of_scores(double scale) const {
  const double sum = (static_cast<double>(attention_.inner) + kSteps) * kAddition;
  return {std::abs(scale) * (sum + of_steps()), of_steps()};
}

double AttentionErrors::of_exponential() const { return (growths_of(attention_) + 1) * kExponential; }

double AttentionErrors::of_sum() const {
  return (static_cast<double>(attention_.keys) + growths_of(attention_) + kSteps) * kAddition;
}

double AttentionErrors::of_values() const { return (static_cast<double>(attention_.values) + kSteps) * kAddition; }

AttentionErrors::WeightError AttentionErrors::of_weights() const {
  const int64_t longest = std::max(attention_.queries * attention_.heads_per_group(), attention_.keys);
  const double sum = (static_cast<double>(longest) + kSteps) * kAddition;
  return {kRoundoff, kExponential + kFlushed + of_steps() + sum};
}

double AttentionErrors::of_steps() { return kSteps * kRoundoff; }

}  // namespace millrace
