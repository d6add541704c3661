#include "report/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

namespace millrace {
namespace {

std::vector<nlohmann::json> complete_events(const nlohmann::json& trace) {
  std::vector<nlohmann::json> events;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") events.push_back(event);
  }
  return events;
}

// "process_name: …" and so on, in order.
std::vector<std::string> names_in(const nlohmann::json& trace) {
  std::vector<std::string> names;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("args").contains("name")) names.push_back(event.at("args").at("name"));
  }
  return names;
}

StepPlan threaded_plan() {
  StepPlan plan;
  plan.program.file = "layer.py";
  plan.device = "cpu something";
  plan.buffers.resize(3);
  for (size_t k = 0; k < plan.buffers.size(); ++k) plan.buffers[k].bytes = int64_t{100} << k;
  plan.buffers[0].first = 0;
  plan.buffers[0].last = 1;
  plan.buffers[1].first = plan.buffers[1].last = 1;
  plan.buffers[2].location = BufferLocation::argument;
  plan.buffers[2].first = 0;
  plan.buffers[2].last = 1;
  plan.launches.resize(2);
  plan.launches[0].partition = "product";
  plan.launches[0].candidate = "01 10; openblas m 0 n 1 k 2 threads 3 inside";
  plan.launches[1].partition = "last";
  plan.launches[1].candidate = "01; flat loops 0 vector 0 threads 1 block -1";
  return plan;
}

TEST(Trace, HasALanePerThreadOrAStream) {
  StepPlan plan = threaded_plan();
  nlohmann::json json = nlohmann::json::parse(trace_json(plan, cpu_target(), {{0, 0, 0, 1}, {0, 1, 1, 1}}));
  EXPECT_EQ(names_in(json),
            (std::vector<std::string>{"millrace layer.py", "passes", "thread 1", "thread 2", "thread 3"}));
  std::vector<int> lanes;
  for (const nlohmann::json& event : complete_events(json)) lanes.push_back(event.at("tid"));
  EXPECT_EQ(lanes, (std::vector<int>{1, 2, 3, 4, 2}));
  json = nlohmann::json::parse(trace_json(plan, gpu_target(), {{0, 0, 0, 1}, {0, 1, 1, 1}}));
  EXPECT_EQ(names_in(json), (std::vector<std::string>{"millrace layer.py", "passes", "stream"}));
}

TEST(Trace, TheProcessIsLabelledWithTheDeviceAndNotItsCompiler) {
  StepPlan plan = threaded_plan();
  plan.device = "cpu something, 2 threads; g++ 12; OpenBLAS";
  const nlohmann::json json = nlohmann::json::parse(trace_json(plan, cpu_target(), {{0, 0, 0, 1}}));
  const nlohmann::json& labels = json.at("traceEvents").at(1);
  EXPECT_EQ(labels.at("name"), "process_labels");
  EXPECT_EQ(labels.at("args").at("labels"), "cpu something, 2 threads");
  EXPECT_EQ(json.at("otherData").at("device"), plan.device);
}

TEST(Trace, CountsTheBytesThatAreAlive) {
  const nlohmann::json json =
      nlohmann::json::parse(trace_json(threaded_plan(), cpu_target(), {{0, 0, 0, 1}, {0, 1, 1, 1}}));
  std::vector<std::pair<double, int>> counted;
  for (const nlohmann::json& event : json.at("traceEvents")) {
    if (event.at("ph") == "C") counted.emplace_back(event.at("ts"), event.at("args").at("arena"));
  }
  EXPECT_EQ(counted, (std::vector<std::pair<double, int>>{{0, 100}, {1e6, 300}, {2e6, 0}}));
}

TEST(Trace, HasOneEventPerLaunchAndPass) {
  StepPlan plan;
  plan.buffers.resize(2);
  plan.buffers[0].tensor = "x \"quoted\"";
  plan.buffers[0].layout = "BJI";
  plan.launches.resize(3);
  plan.launches[0].partition = "first";
  plan.launches[0].buffers = {0, kNoBuffer};
  plan.launches[1].conversion_of = "x";
  plan.launches[2].partition = "last";
  plan.launches[2].pass = Pass::backward;
  const nlohmann::json json = nlohmann::json::parse(trace_json(
      plan, cpu_target(), {{0, 0, 0, 1}, {0, 1, 1, 1}, {0, 2, 3, 1}, {1, 0, 5, 1}, {1, 1, 6, 1}, {1, 2, 7, 1}}));
  std::vector<std::string> names;
  for (const nlohmann::json& event : json.at("traceEvents")) {
    if (event.at("ph") == "X") names.push_back(event.at("name"));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"forward of step 0", "backward of step 0", "forward of step 1",
                                             "backward of step 1", "first", "conversion of x", "last", "first",
                                             "conversion of x", "last"}));
  const std::vector<nlohmann::json> events = complete_events(json);
  EXPECT_NEAR(events[0].at("dur"), 2e6, 0.002);
  EXPECT_EQ(events[4].at("args").at("buffers"), "x \"quoted\" BJI");
}

// Perfetto multiplies microseconds by 1000 and makes whole numbers of them: new versions round, old ones drop
// fractions. It refuses an event that begins before the one before it in its lane ends.
TEST(Trace, EventsDoNotOverlapInNanoseconds) {
  StepPlan plan;
  plan.launches.resize(1);
  std::vector<TracedLaunch> run;
  double now = 0;
  for (int step = 0; step < 1000; ++step) {
    const double seconds = 1e-9 * (500.3 + 7919 * step % 100'003);
    run.push_back({step, 0, now, seconds});
    now += seconds;
  }
  const nlohmann::json json = nlohmann::json::parse(trace_json(plan, cpu_target(), run));
  const auto drop = [](double value) { return std::trunc(value); };
  const auto round = [](double value) { return std::round(value); };
  const auto keep = [](double value) { return value; };  // as chrome://tracing does
  for (const std::function<double(double)>& whole : std::vector<std::function<double(double)>>{drop, round, keep}) {
    std::map<int, double> end_of_lane;
    for (const nlohmann::json& event : complete_events(json)) {
      const auto nanoseconds = [&](const char* key) { return whole(event.at(key).get<double>() * 1000); };
      double& end = end_of_lane[event.at("tid")];
      EXPECT_LE(end, nanoseconds("ts"));
      end = nanoseconds("ts") + nanoseconds("dur");
    }
    EXPECT_EQ(end_of_lane.size(), 2U);
    for (const auto& [lane, end] : end_of_lane) EXPECT_NEAR(end, now * 1e9, 5) << lane;
  }
}

}  // namespace
}  // namespace millrace
