#include "driver/slow_step.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "device/cpu/machine_load.h"
#include "driver/given_tensors.h"
#include "driver/time_plan.h"
#include "report/exploration_report.h"

namespace millrace {
namespace {

constexpr double kMentioned = 1e-6;     // share of denormals
constexpr double kNoticeable = 0.25;    // cores
constexpr double kLaunchSeconds = 0.5;  // for timing all launches together

Result<Done> find_launch(PlanSession& session, const StepPlan& plan, SlowStep& found) {
  std::vector<size_t> all(plan.launches.size());
  for (size_t k = 0; k < all.size(); ++k) all[k] = k;
  const Result<std::vector<Estimate>> times = time_launches(session, all, kLaunchSeconds);
  if (!times) return times.error();
  double most = 0;
  for (size_t k = 0; k < all.size(); ++k) {
    const double excess = (*times)[k].median - plan.launches[k].predicted_seconds;
    if (excess <= most) continue;
    most = excess;
    found.launch = name_of(plan.launches[k]);
    found.launch_seconds = (*times)[k].median;
    found.launch_predicted = plan.launches[k].predicted_seconds;
  }
  return Done{};
}

// Counts the denormals in the outputs of a step that keeps them.
Result<Done> count_denormals(PlanSession& session, const LoadedPlan& loaded, SlowStep& found) {
  session.set_denormals(Denormals::keep);
  const Result<Done> ran = session.step();
  session.set_denormals(Denormals::flush);
  if (!ran) return ran;
  Values<double> values(loaded.training.graph.tensors.size());
  if (Result<Done> taken = session.take(values); !taken) return taken;
  for (const Made& made : made_tensors(loaded.training)) {
    const DType dtype = loaded.training.graph.tensor(made.tensor).dtype;
    found.denormal_share = std::max(found.denormal_share, denormal_share(dtype, values[made.tensor.at()]));
  }
  return Done{};
}

}  // namespace

double denormal_share(DType dtype, const std::vector<double>& values) {
  const double smallest = dtype == DType::float64 ? 0x1p-1022 : 0x1p-126;
  const auto is_denormal = [&](double x) { return x != 0 && std::abs(x) < smallest; };
  if (values.empty() || !is_floating(dtype)) return 0;
  return static_cast<double>(std::count_if(values.begin(), values.end(), is_denormal)) /
         static_cast<double>(values.size());
}

// Each launch is timed as often as its median needs, and then a step keeps denormals.
bool has_time_to_examine(double step_seconds, double left) {
  return (static_cast<double>(kLeastSamples) + 2) * step_seconds < left;
}

Result<SlowStep> examine_slow_step(PlanSession& session, const LoadedPlan& loaded) {
  SlowStep found;
  const LoadMeter meter;
  if (Result<Done> timed = find_launch(session, loaded.plan, found); !timed) return timed.error();
  found.others_cores = meter.others_cores().value_or(0);
  found.governor = clock_governor();
  if (Result<Done> counted = count_denormals(session, loaded, found); !counted) return counted.error();
  return found;
}

std::string explained(const SlowStep& found) {
  std::vector<std::string> reasons;
  if (found.denormal_share > kMentioned)
    reasons.push_back(
        concat(fixed(100 * found.denormal_share, 2),
               " % of an output's numbers are denormal, which the processor computes slowly: give typical "
               "inputs with --in FILE"));
  if (found.others_cores > kNoticeable)
    reasons.push_back(concat("other processes use ", fixed(found.others_cores, 1), " cores"));
  if (found.governor == "powersave") reasons.emplace_back("the clock governor is powersave");
  const std::string reason = reasons.empty()
                                 ? "The numbers are not denormal and the machine is otherwise idle; millrace bench "
                                   "times each launch again"
                                 : concat("Observed: ", join(reasons, "; "));
  if (found.launch.empty()) return concat(reason, ".");
  return concat("By itself, '", found.launch, "' takes ", shown_seconds(found.launch_seconds), ", not the predicted ",
                shown_seconds(found.launch_predicted), ". ", reason, ".");
}

}  // namespace millrace
