#include "report/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace millrace {
namespace {

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
  const nlohmann::json json = nlohmann::json::parse(
      trace_json(plan, {{0, 0, 0, 1}, {0, 1, 1, 1}, {0, 2, 3, 1}, {1, 0, 5, 1}, {1, 1, 6, 1}, {1, 2, 7, 1}}));
  std::vector<std::string> names;
  for (const nlohmann::json& event : json.at("traceEvents")) {
    if (event.at("ph") == "X") names.push_back(event.at("name"));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"forward of step 0", "backward of step 0", "forward of step 1",
                                             "backward of step 1", "first", "conversion of x", "last", "first",
                                             "conversion of x", "last"}));
  const nlohmann::json& pass = json.at("traceEvents")[2];
  EXPECT_EQ(pass.at("dur"), 2e6);
  EXPECT_EQ(json.at("traceEvents")[6].at("args").at("buffers"), "x \"quoted\" BJI");
}

}  // namespace
}  // namespace millrace
