// `millrace bench`: times of a plan's passes and of each launch.
#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "device/cpu/cpu_info.h"
#include "driver/given_tensors.h"
#include "driver/plan_folder.h"
#include "driver/time_plan.h"
#include "millrace/millrace.h"
#include "report/json_text.h"
#include "report/live_bytes.h"
#include "report/table.h"
#include "report/trace.h"
#include "report/units.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kWhole = 0.6;  // the share of the time for whole passes; the rest is for single launches
constexpr int kTracedSteps = 3;

struct Times {
  std::optional<PassTimes> passes;  // none if only some launches are timed
  std::vector<size_t> timed;        // launches
  std::vector<Estimate> launches;   // one per timed launch
};

std::vector<size_t> timed_launches(const StepPlan& plan, bool kernels) {
  std::vector<size_t> timed;
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    if (!kernels || !plan.launches[k].function.empty()) timed.push_back(k);
  }
  return timed;
}

// A few steps, launch by launch, after the machine has warmed up.
Result<std::vector<TracedLaunch>> trace_steps(PlanSession& session) {
  std::vector<TracedLaunch> run;
  double now = 0;
  for (int step = 0; step < kTracedSteps; ++step) {
    if (Result<Done> bound = session.bind(kTimingSeed, static_cast<uint32_t>(step)); !bound) return bound.error();
    for (size_t k = 0; k < session.launches(); ++k) {
      const Result<double> taken = session.seconds_of_launch(k);
      if (!taken) return taken.error();
      run.push_back({step, k, now, *taken});
      now += *taken;
    }
  }
  return run;
}

double sum_of_launches(const Times& times) {
  double sum = 0;
  for (const Estimate& launch : times.launches) sum += launch.median;
  return sum;
}

std::string bench_json(const LoadedPlan& loaded, const Times& times, const std::string& device) {
  const StepPlan& plan = loaded.plan;
  JsonText json;
  json.field("schema_version", 2);
  if (times.passes) {
    json.field("forward_seconds", times.passes->forward.median);
    json.field("backward_seconds", times.passes->backward.median);
    const auto interval = [](const Estimate& time) {
      return Json{{"median", time.median}, {"low", time.low}, {"high", time.high}};
    };
    json.field("step_seconds", interval(times.passes->step));
    if (const std::optional<double> clock = times.passes->relative_clock) json.field("relative_clock", *clock);
    if (const std::optional<IdleGappedSteps>& idle_gapped = times.passes->idle_gapped) {
      Json told = interval(idle_gapped->step);
      told["relative_clock"] = idle_gapped->relative_clock;
      json.field("idle_gapped_step_seconds", told);
    }
  }
  json.field("predicted_seconds", plan.cost);
  json.field("sum_of_launches_seconds", sum_of_launches(times));
  json.list("launches", times.timed.size(), [&](size_t k) {
    const PlanLaunch& launch = plan.launches[times.timed[k]];
    return Json{{"name", name_of(launch)},
                {"pass", name_of(launch.pass)},
                {"seconds", times.launches[k].median},
                {"predicted_seconds", launch.predicted_seconds}};
  });
  json.field("arena_bytes", plan.arena_bytes);
  json.field("sum_bytes", plan.sum_bytes);
  const int made_for = threads_of(plan);
  json.field("threads", made_for > 0 ? made_for : threads());
  json.field("device", device);
  return std::move(json).finish();
}

std::string bench_text(const LoadedPlan& loaded, const Times& times, const std::string& device, size_t width) {
  const StepPlan& plan = loaded.plan;
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right});
  table.row({"launch", "pass", "predicted", "measured", "ratio"});
  double predicted = 0;
  for (size_t k = 0; k < times.timed.size(); ++k) {
    const PlanLaunch& launch = plan.launches[times.timed[k]];
    const double measured = times.launches[k].median;
    predicted += launch.predicted_seconds;
    table.row({name_of(launch), std::string(name_of(launch.pass)), shown_seconds(launch.predicted_seconds),
               shown_seconds(measured),
               launch.predicted_seconds > 0 ? fixed(measured / launch.predicted_seconds, 2) : "-"});
  }
  table.row(
      {"sum", "", shown_seconds(times.passes ? plan.cost : predicted), shown_seconds(sum_of_launches(times)), ""});
  std::string text = table.text(width);
  if (!times.passes) return text;
  const auto line = [&](const char* what, const Estimate& time, const std::string& clock = "") {
    text += concat(what, shown_seconds(time.median), "  (", shown_seconds(time.low), " to ", shown_seconds(time.high),
                   ", ", time.samples, " runs)", clock, "\n");
  };
  text += "\n";
  line("forward     ", times.passes->forward);
  line("backward    ", times.passes->backward);
  const std::optional<IdleGappedSteps>& idle_gapped = times.passes->idle_gapped;
  const auto at = [](double clock) { return concat("  at ", fixed(100 * clock, 0), " % of the highest clock"); };
  line("step        ", times.passes->step, idle_gapped ? at(*times.passes->relative_clock) : "");
  if (idle_gapped) line("idle-gapped ", idle_gapped->step, at(idle_gapped->relative_clock));
  text += concat("predicted   ", shown_seconds(plan.cost),
                 idle_gapped ? "; candidates are measured at the highest clock" : "",
                 plan.default_cost > 0 ? concat("; unfused ", shown_seconds(plan.default_cost)) : "", "\narena       ",
                 arena_text(plan), "\ndevice      ", device, "\n");
  return text;
}

}  // namespace

Result<std::string> bench_plan(const BenchOptions& options) {
  const Result<LoadedPlan> loaded = read_plan(options.path);
  if (!loaded) return loaded.error();
  Result<PlanSession> session = PlanSession::open(*loaded);
  if (!session) return session.error();
  if (options.keep_denormals) session->set_denormals(Denormals::keep);
  const Result<Values<double>> given = take_given(loaded->training, options.in, kTimingSeed);
  if (!given) return given.error();
  if (Result<Done> put = session->put(*given); !put) return put.error();
  Times times;
  if (!options.kernels) {
    const Result<PassTimes> passes = time_passes(*session, options.seconds * kWhole);
    if (!passes) return passes.error();
    times.passes = *passes;
  }
  times.timed = timed_launches(loaded->plan, options.kernels);
  Result<std::vector<Estimate>> launches =
      time_launches(*session, times.timed, options.seconds * (options.kernels ? 1 : 1 - kWhole));
  if (!launches) return launches.error();
  times.launches = std::move(*launches);
  if (!options.trace.empty()) {
    const Result<std::vector<TracedLaunch>> run = trace_steps(*session);
    if (!run) return run.error();
    if (Result<Done> written =
            write_file(options.trace, trace_json(loaded->plan, backend_of(loaded->plan).target, *run));
        !written)
      return written.error();
  }
  const std::string device = session->device();
  return options.format == Format::json ? bench_json(*loaded, times, device)
                                        : bench_text(*loaded, times, device, static_cast<size_t>(options.width));
}

}  // namespace millrace
