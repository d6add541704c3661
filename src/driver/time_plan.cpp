#include "driver/time_plan.h"

#include <chrono>
#include <thread>

#include "base/clock.h"

namespace millrace {
namespace {

constexpr int64_t kMostSamples = 10'000;
constexpr double kWarmUp = 0.2;        // share of the time
constexpr int64_t kSamplesAClock = 4;  // reading the clock leaves a GPU idle for a moment
constexpr double kFullClock = 0.98;    // from here on, a clock counts as the highest
constexpr int64_t kIdleGappedSteps = 12;
constexpr auto kRest = std::chrono::milliseconds(50);

// Calls body(sample) until the time is up, and at least `least` times.
template <class Body>
Result<Done> repeat(double seconds, int64_t least, const Body& body) {
  const double begin = now();
  for (int64_t sample = 0; sample < kMostSamples && (sample < least || now() - begin < seconds); ++sample) {
    if (Result<Done> done = body(sample); !done) return done;
  }
  return Done{};
}

// A GPU that was idle for a while runs at its highest clock again.
Result<IdleGappedSteps> time_idle_gapped(PlanSession& session) {
  std::vector<double> steps;
  std::vector<double> clocks;
  for (int64_t sample = 0; sample < kIdleGappedSteps; ++sample) {
    if (Result<Done> bound = session.bind(kTimingSeed, static_cast<uint32_t>(sample)); !bound) return bound.error();
    std::this_thread::sleep_for(kRest);
    const Result<double> taken = session.seconds_of_pass([&] { return session.step(); }, 1);
    if (!taken) return taken.error();
    steps.push_back(*taken);
    if (const std::optional<double> clock = session.relative_clock()) clocks.push_back(*clock);
  }
  return IdleGappedSteps{estimate(std::move(steps)), clocks.empty() ? 0 : estimate(std::move(clocks)).median};
}

}  // namespace

Result<GpuClock> gpu_clock(PlanSession& session) {
  GpuClock clock;
  clock.relative = session.relative_clock();
  if (clock.relative.value_or(1) >= kFullClock) return clock;
  const Result<IdleGappedSteps> idle_gapped = time_idle_gapped(session);
  if (!idle_gapped) return idle_gapped.error();
  clock.idle_gapped = *idle_gapped;
  return clock;
}

Result<PassTimes> time_passes(PlanSession& session, double seconds) {
  std::array<std::vector<double>, 3> samples;
  std::vector<double> clocks;
  const auto once = [&](int64_t sample) -> Result<Done> {
    const auto bind = [&] { return session.bind(kTimingSeed, static_cast<uint32_t>(sample)); };
    const std::array<std::function<Result<Done>()>, 3> passes = {
        [&] { return session.forward(); }, [&] { return session.backward(); }, [&] { return session.step(); }};
    for (size_t k = 0; k < passes.size(); ++k) {
      if (Result<Done> bound = bind(); !bound) return bound;
      const Result<double> taken = session.seconds_of_pass(passes[k]);
      if (!taken) return taken.error();
      samples[k].push_back(*taken);
    }
    if (sample % kSamplesAClock != 0) return Done{};
    if (const std::optional<double> clock = session.relative_clock()) clocks.push_back(*clock);
    return Done{};
  };
  session.relative_clock();  // compiles the clock probe before the warm-up
  // At least twice: the second call records a GPU's work as a graph.
  if (Result<Done> warm = repeat(seconds * kWarmUp, 2, once); !warm) return warm.error();
  for (std::vector<double>& list : samples) list.clear();
  clocks.clear();
  if (Result<Done> timed = repeat(seconds * (1 - kWarmUp), kLeastSamples, once); !timed) return timed.error();
  PassTimes times{
      estimate(std::move(samples[0])), estimate(std::move(samples[1])), estimate(std::move(samples[2])), {}, {}};
  if (!clocks.empty()) times.relative_clock = estimate(std::move(clocks)).median;
  if (times.relative_clock.value_or(1) < kFullClock) {
    const Result<IdleGappedSteps> idle_gapped = time_idle_gapped(session);
    if (!idle_gapped) return idle_gapped.error();
    times.idle_gapped = *idle_gapped;
  }
  return times;
}

Result<std::vector<Estimate>> time_launches(PlanSession& session, const std::vector<size_t>& launches, double seconds) {
  std::vector<std::vector<double>> samples(launches.size());
  const Result<Done> timed = repeat(seconds, kLeastSamples, [&](int64_t sample) -> Result<Done> {
    if (Result<Done> bound = session.bind(kTimingSeed, static_cast<uint32_t>(sample)); !bound) return bound;
    for (size_t k = 0; k < samples.size(); ++k) {
      const Result<double> taken = session.seconds_of_launch(launches[k]);
      if (!taken) return taken.error();
      samples[k].push_back(*taken);
    }
    return Done{};
  });
  if (!timed) return timed.error();
  std::vector<Estimate> times;
  for (std::vector<double>& list : samples) times.push_back(estimate(std::move(list)));
  return times;
}

}  // namespace millrace
