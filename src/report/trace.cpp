#include "report/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text.h"
#include "report/json_text.h"
#include "report/live_bytes.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPasses = 1;  // lanes of the timeline; Perfetto sorts them by these numbers
constexpr int kLaunches = 2;
constexpr int kMostThreads = 4096;

// The threads that a launch shares its work among, from the text of its candidate: "… threads 2 …".
int threads_of(const PlanLaunch& launch) {
  constexpr std::string_view kWord = " threads ";
  const size_t at = launch.candidate.find(kWord);
  int threads = 1;
  if (at != std::string::npos)
    std::from_chars(launch.candidate.data() + at + kWord.size(), launch.candidate.data() + launch.candidate.size(),
                    threads);
  return std::clamp(threads, 1, kMostThreads);
}

// One stream, or a lane for each thread.
int lanes_of(const Target& target, const PlanLaunch& launch) { return target.gpu ? 1 : threads_of(launch); }

// Microseconds in steps whose product with 1000 is exact.
constexpr double kStep = 1.0 / 512;
double microseconds(double seconds) { return std::round(seconds * 1e6 / kStep) * kStep; }

// A "complete" event of the trace format. Perfetto makes whole nanoseconds of the begin and of the duration: new
// versions round, old ones drop fractions. If an event then begins before the previous one of its lane ends, Perfetto
// drops it. So each ends one step (2 ns) earlier than it did, which is more than rounding can add.
Json event(const std::string& name, const std::string& category, int row, double begin, double seconds) {
  const double from = microseconds(begin);
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"pid", 1},
          {"tid", row},
          {"ts", from},
          {"dur", std::max(0.0, microseconds(begin + seconds) - from - kStep)}};
}

Json metadata(const char* what, int lane, const Json& arguments) {
  return {{"name", what}, {"ph", "M"}, {"pid", 1}, {"tid", lane}, {"args", arguments}};
}

// Events that name the lanes and say their order.
void name_lanes(const StepPlan& plan, const Target& target, std::vector<Json>& events) {
  int lanes = 1;
  for (const PlanLaunch& launch : plan.launches) lanes = std::max(lanes, lanes_of(target, launch));
  events.push_back(metadata("process_name", 0, {{"name", concat("millrace ", plan.program.file)}}));
  // The rest of the text describes the compiler and the libraries.
  events.push_back(metadata("process_labels", 0, {{"labels", plan.device.substr(0, plan.device.find(';'))}}));
  for (int lane = kPasses; lane < kLaunches + lanes; ++lane) {
    const std::string name = lane == kPasses ? "passes"
                             : target.gpu    ? "stream"
                                             : concat("thread ", lane - kLaunches + 1);
    events.push_back(metadata("thread_name", lane, {{"name", name}}));
    events.push_back(metadata("thread_sort_index", lane, {{"sort_index", lane}}));
  }
}

Json counter(double seconds, int64_t bytes) {
  return {{"name", "live bytes"}, {"ph", "C"}, {"pid", 1}, {"ts", microseconds(seconds)}, {"args", {{"arena", bytes}}}};
}

Json launch_event(const StepPlan& plan, const TracedLaunch& traced) {
  const PlanLaunch& launch = plan.launches[traced.launch];
  Json made = event(name_of(launch), launch.partition.empty() ? "conversion" : name_of(launch.pass), kLaunches,
                    traced.begin, traced.seconds);
  std::vector<std::string> buffers;
  for (const int number : launch.buffers) {
    if (number == kNoBuffer) continue;
    const PlanBuffer& buffer = plan.buffers[as_index(number)];
    buffers.push_back(concat(buffer.tensor, " ", buffer.layout));
  }
  made["args"] = {{"candidate", launch.candidate},
                  {"buffers", join(buffers, ", ")},
                  {"predicted_us", launch.predicted_seconds * 1e6},
                  {"step", traced.step}};
  return made;
}

}  // namespace

std::string trace_json(const StepPlan& plan, const Target& target, const std::vector<TracedLaunch>& run) {
  std::vector<Json> events;
  name_lanes(plan, target, events);
  for (size_t first = 0; first < run.size();) {
    const Pass pass = plan.launches[run[first].launch].pass;
    size_t last = first;
    while (last + 1 < run.size() && run[last + 1].step == run[first].step &&
           plan.launches[run[last + 1].launch].pass == pass)
      ++last;
    events.push_back(event(concat(name_of(pass), " of step ", run[first].step), "pass", kPasses, run[first].begin,
                           run[last].begin + run[last].seconds - run[first].begin));
    first = last + 1;
  }
  const std::vector<LiveBytes> live = live_bytes(plan);
  for (const TracedLaunch& traced : run) {
    events.push_back(launch_event(plan, traced));
    for (int thread = 1; thread < lanes_of(target, plan.launches[traced.launch]); ++thread) {
      const Json same = events.back();
      events.push_back(same);
      events.back()["tid"] = kLaunches + thread;
    }
    events.push_back(counter(traced.begin, live[traced.launch].all()));
  }
  if (!run.empty()) events.push_back(counter(run.back().begin + run.back().seconds, 0));
  JsonText json;
  json.list("traceEvents", events.size(), [&](size_t k) { return events[k]; });
  json.field("displayTimeUnit", "ns");
  json.field("otherData", {{"program", plan.program.file}, {"device", plan.device}, {"millrace", plan.version}});
  return std::move(json).finish();
}

}  // namespace millrace
