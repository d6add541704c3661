#include "driver/time_plan.h"

#include "base/clock.h"

namespace millrace {
namespace {

constexpr int64_t kLeastSamples = 6;  // fewer give no interval
constexpr int64_t kMostSamples = 10'000;
constexpr double kWarmUp = 0.2;  // of the time

// Calls body(sample) until the time is over, at least `least` times.
template <class Body>
void repeat(double seconds, int64_t least, const Body& body) {
  const double begin = now();
  for (int64_t sample = 0; sample < kMostSamples && (sample < least || now() - begin < seconds); ++sample) body(sample);
}

void bind(CpuExecutor& executor, const CallersTensors& tensors, int64_t sample) {
  executor.bind(tensors, kTimingSeed, static_cast<uint32_t>(sample));
}

}  // namespace

PassTimes time_passes(CpuExecutor& executor, const CallersTensors& tensors, double seconds) {
  repeat(seconds * kWarmUp, 1, [&](int64_t sample) {
    bind(executor, tensors, sample);
    executor.step();
  });
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> step;
  repeat(seconds * (1 - kWarmUp), kLeastSamples, [&](int64_t sample) {
    const double begin = now();
    bind(executor, tensors, sample);
    executor.forward();
    const double middle = now() - begin;
    executor.backward();
    const double end = now() - begin;
    forward.push_back(middle);
    backward.push_back(end - middle);
    step.push_back(end);
  });
  return {estimate(std::move(forward)), estimate(std::move(backward)), estimate(std::move(step))};
}

std::vector<Estimate> time_launches(CpuExecutor& executor, const CallersTensors& tensors, size_t launches,
                                    double seconds) {
  std::vector<std::vector<double>> samples(launches);
  repeat(seconds, kLeastSamples, [&](int64_t sample) {
    bind(executor, tensors, sample);
    for (size_t k = 0; k < launches; ++k) {
      const double begin = now();
      executor.launch(k);
      samples[k].push_back(now() - begin);
    }
  });
  std::vector<Estimate> times;
  for (std::vector<double>& of : samples) times.push_back(estimate(std::move(of)));
  return times;
}

}  // namespace millrace
