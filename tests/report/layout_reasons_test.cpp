#include "report/layout_reasons.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// A writes t, B reads it; both are fast with different layouts.
struct MeasuredSample {
  StepPlan plan;
  Measurements measurements;

  MeasuredSample() {
    measurements.tensors = {{"t", {"XY", "YX"}, kNoLayout}, {"x", {"XY", "YX"}, 0}};
    measurements.partitions = {{"A", false, {1}, {0}, {{"a0", {0, 0}, 1, 0, 0}, {"a1", {0, 1}, 4, 0, 0}}},
                               {"B", false, {0}, {}, {{"b0", {0}, 5, 0, 0}, {"b1", {1}, 3, 0, 0}}}};
    plan.buffers = {{"x", "XY"}, {"t", "XY"}};
    PlanLaunch a;
    a.partition = "A";
    PlanLaunch b;
    b.partition = "B";
    plan.launches = {a, b};
  }

  LayoutReason of(const std::string& tensor) const {
    for (const LayoutReason& reason : layout_reasons(plan, measurements)) {
      if (reason.tensor == tensor) return reason;
    }
    return {};
  }
};

TEST(LayoutReasons, SumsOverTheLaunchesThatTouchATensor) {
  const MeasuredSample sample;
  const LayoutReason reason = sample.of("t");
  EXPECT_EQ(reason.launches, 2);
  EXPECT_EQ(reason.seconds, 6);
  EXPECT_EQ(reason.other, "YX");
  EXPECT_EQ(reason.other_seconds, 7);
  EXPECT_EQ(reason.choice, LayoutChoice::fastest);
}

TEST(LayoutReasons, SaysWhenOthersGain) {
  MeasuredSample sample;
  sample.plan.buffers[1].layout = "YX";
  const LayoutReason reason = sample.of("t");
  EXPECT_EQ(reason.choice, LayoutChoice::for_others);
  EXPECT_EQ(reason.why, "up to 1.00 s slower here, but other tensors of these launches gain more by it");
}

TEST(LayoutReasons, TheCallersLayoutIsNamedWithItsRemedy) {
  const LayoutReason reason = MeasuredSample().of("x");
  EXPECT_EQ(reason.choice, LayoutChoice::callers);
  EXPECT_NE(reason.why.find("--layout x=any"), std::string::npos);
}

TEST(LayoutReasons, AGradientHasTheNameThatTheCallerUses) {
  MeasuredSample sample;
  sample.plan.buffers[0].location = BufferLocation::argument;
  sample.plan.buffers[0].position = 0;
  sample.plan.buffers[1].location = BufferLocation::argument_gradient;
  sample.plan.buffers[1].position = 0;
  EXPECT_EQ(sample.of("x").caller, "x");
  EXPECT_EQ(sample.of("t").caller, "d_x") << "--layout knows no other name";
}

TEST(LayoutReasons, ConversionsAndMissingMeasurements) {
  MeasuredSample sample;
  sample.plan.buffers.push_back({"t", "YX"});
  EXPECT_EQ(sample.of("t").also, "YX");
  EXPECT_EQ(sample.of("t").choice, LayoutChoice::only);
  sample.plan.buffers.pop_back();
  sample.measurements.partitions[1].candidates.clear();
  EXPECT_EQ(sample.of("t").choice, LayoutChoice::estimated);
  sample.measurements = {};
  EXPECT_EQ(sample.of("t").why, "");
}

}  // namespace
}  // namespace millrace
