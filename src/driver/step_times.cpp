#include "driver/step_times.h"

#include <algorithm>

#include "base/clock.h"
#include "driver/time_plan.h"

namespace millrace {
namespace {

constexpr size_t kWarmUpSteps = 2;  // the second call records a GPU's work as a graph
constexpr size_t kMostStepSamples = 2'000;
constexpr int64_t kTurn = 4;         // samples of a plan before the next plan's turn
constexpr double kShortStep = 5e-3;  // seconds; several of them are timed together on a GPU
constexpr int kRepeats = 8;          // of short steps
constexpr double kFirstSecondsOver =
    4;  // a first step loads libraries and touches memory: its time, in multiples of a later one's

// The samples of one session.
struct Sampled {
  PlanSession* session;
  std::vector<double> samples;
  uint32_t step = 0;
  double wall = 0;  // of the last sample, by the host's clock
};

Result<Done> sample(Sampled& sampled) {
  const double begin = now();
  if (Result<Done> bound = sampled.session->bind(kTimingSeed, sampled.step++); !bound) return bound;
  const bool is_short = !sampled.samples.empty() && sampled.samples.back() < kShortStep;
  const Result<double> taken =
      sampled.session->seconds_of_pass([&] { return sampled.session->step(); }, is_short ? kRepeats : 1);
  if (!taken) return taken.error();
  sampled.samples.push_back(*taken);
  sampled.wall = now() - begin;
  return Done{};
}

// One turn of each; false if there is no time for it. Short steps have several samples per turn; the first of them
// finds the other plan's data in the cache.
Result<bool> take_turns(std::vector<Sampled>& all, const Deadline& end) {
  for (Sampled& each : all) {
    const bool is_warm = each.samples.size() > kWarmUpSteps;
    for (int64_t k = 0; k < (is_warm && each.wall < kShortStep ? kTurn : 1); ++k) {
      if (!each.samples.empty() && end.left() < each.wall / (is_warm ? 1 : kFirstSecondsOver)) return false;
      if (Result<Done> done = sample(each); !done) return done.error();
      if (k == 0 && is_warm && each.wall < kShortStep) each.samples.pop_back();
    }
  }
  return true;
}

// The estimate from these samples, without the first ones if there are others.
Estimate estimate_of(std::vector<double> samples) {
  const size_t warm = std::min(kWarmUpSteps, samples.size() - 1);
  return estimate({samples.begin() + static_cast<ptrdiff_t>(warm), samples.end()});
}

}  // namespace

Result<std::optional<std::vector<Estimate>>> time_steps(const std::vector<PlanSession*>& sessions,
                                                        const Deadline& end) {
  std::vector<Sampled> all;
  for (PlanSession* session : sessions) all.push_back({session, {}});
  while (!end.passed() && all.front().samples.size() < kMostStepSamples) {
    const Result<bool> more = take_turns(all, end);
    if (!more) return more.error();
    if (!*more) break;
  }
  std::vector<Estimate> times;
  for (Sampled& each : all) {
    if (each.samples.empty()) return std::optional<std::vector<Estimate>>();
    times.push_back(estimate_of(std::move(each.samples)));
  }
  return std::optional(std::move(times));
}

}  // namespace millrace
