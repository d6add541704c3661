// `millrace bench`: a plan's times, in whole and launch by launch.
#include <chrono>

#include "base/file.h"
#include "base/text.h"
#include "device/cpu/cpu_info.h"
#include "driver/callers_tensors.h"
#include "driver/given_tensors.h"
#include "driver/plan_folder.h"
#include "measure/statistics.h"
#include "millrace/millrace.h"
#include "report/json_text.h"
#include "report/table.h"
#include "report/trace.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int64_t kLeastSamples = 6;  // fewer give no interval
constexpr int64_t kMostSamples = 10'000;
constexpr double kWarmUp = 0.2;  // of the time
constexpr double kWhole = 0.5;   // of the rest: the others time launches apart
constexpr uint64_t kSeed = 1;
constexpr int kTracedSteps = 3;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct Times {
  Estimate forward;
  Estimate backward;
  Estimate step;
  std::vector<Estimate> launches;
};

// Calls body(sample) until the time is over, at least `least` times.
template <class Body>
void repeat(double seconds, int64_t least, const Body& body) {
  const Clock::time_point begin = Clock::now();
  for (int64_t sample = 0; sample < kMostSamples && (sample < least || since(begin) < seconds); ++sample) body(sample);
}

Times time_plan(CpuExecutor& executor, const CallersTensors& tensors, size_t launches, double seconds) {
  const auto bind = [&](int64_t sample) { executor.bind(tensors, kSeed, static_cast<uint32_t>(sample)); };
  repeat(seconds * kWarmUp, 1, [&](int64_t sample) {
    bind(sample);
    executor.step();
  });
  const double rest = seconds * (1 - kWarmUp);
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> step;
  repeat(rest * kWhole, kLeastSamples, [&](int64_t sample) {
    const Clock::time_point begin = Clock::now();
    bind(sample);
    executor.forward();
    const double middle = since(begin);
    executor.backward();
    const double end = since(begin);
    forward.push_back(middle);
    backward.push_back(end - middle);
    step.push_back(end);
  });
  std::vector<std::vector<double>> apart(launches);
  repeat(rest * (1 - kWhole), kLeastSamples, [&](int64_t sample) {
    bind(sample);
    for (size_t k = 0; k < launches; ++k) {
      const Clock::time_point begin = Clock::now();
      executor.launch(k);
      apart[k].push_back(since(begin));
    }
  });
  Times times{estimate(forward), estimate(backward), estimate(step), {}};
  for (std::vector<double>& samples : apart) times.launches.push_back(estimate(std::move(samples)));
  return times;
}

// A few steps, when the machine is warm, launch by launch.
std::vector<TracedLaunch> trace_steps(CpuExecutor& executor, const CallersTensors& tensors, size_t launches) {
  std::vector<TracedLaunch> run;
  run.reserve(kTracedSteps * launches);
  const Clock::time_point begin = Clock::now();
  for (int step = 0; step < kTracedSteps; ++step) {
    executor.bind(tensors, kSeed, static_cast<uint32_t>(step));
    for (size_t k = 0; k < launches; ++k) {
      const double from = since(begin);
      executor.launch(k);
      run.push_back({step, k, from, since(begin) - from});
    }
  }
  return run;
}

std::string pass_of(const PlanLaunch& launch) { return launch.pass == Pass::forward ? "forward" : "backward"; }

double sum_of_launches(const Times& times) {
  double sum = 0;
  for (const Estimate& launch : times.launches) sum += launch.median;
  return sum;
}

std::string bench_json(const StepPlan& plan, const Times& times, const std::string& device) {
  JsonText json;
  json.field("schema_version", 1);
  json.field("forward_seconds", times.forward.median);
  json.field("backward_seconds", times.backward.median);
  json.field("step_seconds", Json{{"median", times.step.median}, {"low", times.step.low}, {"high", times.step.high}});
  json.field("predicted_seconds", plan.cost);
  json.field("sum_of_operators_seconds", sum_of_launches(times));
  json.list("operators", plan.launches.size(), [&](size_t k) {
    const PlanLaunch& launch = plan.launches[k];
    return Json{{"name", name_of(launch)},
                {"pass", pass_of(launch)},
                {"seconds", times.launches[k].median},
                {"predicted_seconds", launch.predicted_seconds}};
  });
  json.field("arena_bytes", plan.arena_bytes);
  json.field("sum_bytes", plan.sum_bytes);
  json.field("threads", threads());
  json.field("device", device);
  return std::move(json).finish();
}

std::string milliseconds(double seconds) { return fixed(seconds * 1e3, 4); }

std::string mebibytes(int64_t bytes) { return concat(fixed(static_cast<double>(bytes) / (1 << 20), 2), " MiB"); }

std::string bench_text(const StepPlan& plan, const Times& times, const std::string& device, size_t width) {
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right});
  table.row({"launch", "pass", "predicted ms", "measured ms", "ratio"});
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    const PlanLaunch& launch = plan.launches[k];
    const double measured = times.launches[k].median;
    table.row({name_of(launch), pass_of(launch), milliseconds(launch.predicted_seconds), milliseconds(measured),
               launch.predicted_seconds > 0 ? fixed(measured / launch.predicted_seconds, 2) : "-"});
  }
  table.row({"sum", "", milliseconds(plan.cost), milliseconds(sum_of_launches(times)), ""});
  std::string text = table.text(width);
  const auto line = [&](const char* what, const Estimate& time) {
    text += concat(what, milliseconds(time.median), " ms  (", milliseconds(time.low), " to ", milliseconds(time.high),
                   ", ", time.samples, " runs)\n");
  };
  text += "\n";
  line("forward   ", times.forward);
  line("backward  ", times.backward);
  line("step      ", times.step);
  text += concat("predicted ", milliseconds(plan.cost), " ms",
                 plan.default_cost > 0 ? concat("; with nothing fused ", milliseconds(plan.default_cost), " ms") : "",
                 "\narena     ", mebibytes(plan.arena_bytes), "; its buffers apart ", mebibytes(plan.sum_bytes),
                 "\ndevice    ", device, ", ", threads(), " threads\n");
  return text;
}

}  // namespace

Result<std::string> bench_plan(const BenchOptions& options) {
  const Result<LoadedPlan> loaded = read_plan(options.path);
  if (!loaded) return loaded.error();
  Result<CpuExecutor> executor = load_executor(*loaded);
  if (!executor) return executor.error();
  Values<double> values(loaded->training.graph.tensors.size());
  draw_missing(loaded->training.graph, given_tensors(loaded->training), kSeed, values);
  const CallersMemory memory(*loaded, values);
  const Times times = time_plan(*executor, memory.pointers(), loaded->plan.launches.size(), options.seconds);
  if (!options.trace.empty()) {
    const std::vector<TracedLaunch> run = trace_steps(*executor, memory.pointers(), loaded->plan.launches.size());
    if (Result<Done> written = write_file(options.trace, trace_json(loaded->plan, run)); !written)
      return written.error();
  }
  const std::string device = cpu_info().model;
  return options.format == Format::json ? bench_json(loaded->plan, times, device)
                                        : bench_text(loaded->plan, times, device, static_cast<size_t>(options.width));
}

}  // namespace millrace
