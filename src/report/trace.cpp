#include "report/trace.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/json_text.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPasses = 1;  // rows of the timeline
constexpr int kLaunches = 2;

// Events of trace format "complete": times in microseconds.
Json event(const std::string& name, const std::string& category, int row, double begin, double seconds) {
  return {{"name", name}, {"cat", category},   {"ph", "X"},           {"pid", 1},
          {"tid", row},   {"ts", begin * 1e6}, {"dur", seconds * 1e6}};
}

Json row_name(int row, const char* name) {
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", row}, {"args", {{"name", name}}}};
}

Json launch_event(const StepPlan& plan, const TracedLaunch& traced) {
  const PlanLaunch& launch = plan.launches[traced.launch];
  Json made = event(name_of(launch), launch.partition.empty() ? "conversion" : name_of(launch.pass), kLaunches,
                    traced.begin, traced.seconds);
  std::vector<std::string> buffers;
  for (const int number : launch.buffers) {
    if (number == kNoBuffer) continue;
    const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(number)];
    buffers.push_back(concat(buffer.tensor, " ", buffer.layout));
  }
  made["args"] = {{"candidate", launch.candidate},
                  {"buffers", join(buffers, ", ")},
                  {"predicted_us", launch.predicted_seconds * 1e6},
                  {"step", traced.step}};
  return made;
}

}  // namespace

std::string trace_json(const StepPlan& plan, const std::vector<TracedLaunch>& run) {
  std::vector<Json> events{row_name(kPasses, "passes"), row_name(kLaunches, "launches")};
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
  for (const TracedLaunch& traced : run) events.push_back(launch_event(plan, traced));
  JsonText json;
  json.list("traceEvents", events.size(), [&](size_t k) { return events[k]; });
  json.field("displayTimeUnit", "ns");
  json.field("otherData", {{"program", plan.program.file}, {"device", plan.device}, {"millrace", plan.version}});
  return std::move(json).finish();
}

}  // namespace millrace
