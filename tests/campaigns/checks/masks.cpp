// Dropout masks of compiled plans. Forward and backward have the same mask, and masks are as random as they should be:
// the right share is kept; neighbours, two dropouts, and successive steps are independent.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "base/text.h"
#include "campaigns/checks/slice.h"
#include "exec/run_plan.h"
#include "plan/random_plan.h"

namespace millrace::campaigns {
namespace {

constexpr int kRuns = 40;
constexpr double kMostDeviations = 7;  // standard deviations: by chance once in 4e11 times
constexpr std::array kProbabilities = {0.1, 0.5, 0.25, 0.9, 0.03};

// Pairs of independent events of a known probability: how far their number is from what is expected.
struct Tally {
  double events = 0;
  double trials = 0;

  void add(bool event) {
    events += event ? 1 : 0;
    trials += 1;
  }
  double deviations(double probability) const {
    return std::abs(events - trials * probability) / std::sqrt(trials * probability * (1 - probability));
  }
};

struct Tallies {
  Tally kept;
  Tally neighbours;  // both kept
  Tally dropouts;    // an element kept by both
  Tally steps;       // an element kept in two successive steps
};

void add(const std::vector<double>& one, const std::vector<double>& two, const std::vector<double>& before,
         Tallies& tallies) {
  for (size_t k = 0; k < one.size(); ++k) {
    tallies.kept.add(one[k] != 0);
    if (k % 2 == 1) tallies.neighbours.add(one[k] != 0 && one[k - 1] != 0);
    tallies.dropouts.add(one[k] != 0 && two[k] != 0);
    if (!before.empty()) tallies.steps.add(one[k] != 0 && before[k] != 0);
  }
}

std::string complaint(const Tallies& tallies, double keep) {
  const std::array<std::pair<const char*, double>, 4> found = {
      std::pair{"the share of kept elements", tallies.kept.deviations(keep)},
      {"neighbours", tallies.neighbours.deviations(keep * keep)},
      {"two dropouts", tallies.dropouts.deviations(keep * keep)},
      {"two steps", tallies.steps.deviations(keep * keep)}};
  for (const auto& [what, deviations] : found) {
    if (!(deviations < kMostDeviations)) return concat(what, ": ", deviations, " standard deviations off");
  }
  return "";
}

std::string program_of(uint64_t seed, double probability) {
  std::mt19937_64 random(seed);
  return concat("A = ", 1 + random() % 9, "\nB = ", 1 + random() % 9, "\nC = ", 1 + random() % 70, R"(

def layer(x: float32[A, B, C], y: float32[A, B, C]):
    return dropout(x, )",
                probability, "), dropout(", random() % 2 == 0 ? "y" : "np.exp(y - y) * y", ", ", probability, ")\n");
}

// Arguments and gradients of results are 1, so that results and gradients are masks.
Values<double> ones(const TrainingGraph& training) {
  Values<double> values = drawn_values(training, 1);
  for (std::vector<double>& tensor : values) std::fill(tensor.begin(), tensor.end(), 1);
  return values;
}

void check_masks(uint64_t seed, Report& report) {
  const double probability = kProbabilities.at(seed % kProbabilities.size());
  PlanChoice choice;
  choice.seed = seed;
  const MadePlan made = make_plan(program_of(seed, probability), choice);
  compile_kernels({&made});
  Result<CpuExecutor> executor = executor_of(made);
  if (!executor) return report.fail(seed, to_string(executor.error()));
  const Graph& graph = made.training.graph;
  const Values<double> given = ones(made.training);
  Tallies tallies;
  std::vector<double> before;
  for (uint32_t step = 0; step < kRuns; ++step) {
    const Values<double> found = run_plan(made, *executor, given, {seed, step});
    std::array<std::vector<double>, 2> masks;
    for (size_t k = 0; k < 2; ++k) {
      masks.at(k) = found[graph.results[k].tensor.at()];
      const std::vector<double>& backward = found[made.training.argument_gradients[k].at()];
      for (size_t e = 0; e < backward.size(); ++e) {
        if ((backward[e] != 0) != (masks.at(k)[e] != 0))
          return report.fail(seed, concat("step ", step, ", element ", e, ": forward and backward differ"));
      }
      report.count("masks");
      report.count("elements", backward.size());
    }
    add(masks[0], masks[1], before, tallies);
    before = masks[0];
  }
  if (const std::string wrong = complaint(tallies, 1 - probability); !wrong.empty()) report.fail(seed, wrong);
}

}  // namespace

Check masks() { return check_masks; }

}  // namespace millrace::campaigns
