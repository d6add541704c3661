#include "plan/plan_json.h"

#include <gtest/gtest.h>

#include "base/sanitized.h"
#include "plan/small_plan.h"

namespace millrace {
namespace {

StepPlan whole_plan() {
  StepPlan plan = small_plan().plan;
  plan.program.layouts = {{"x", "IB"}};
  plan.program.sizes = {"B=3"};
  plan.launches[0].function = "k_0";
  plan.launches[0].estimated = true;
  plan.kernels = {"kernels.so", "ab", "cd", "a machine"};
  plan.default_cost = 1.5e-5;
  return plan;
}

TEST(PlanJson, ReadsWhatItWrote) {
  const std::string text = plan_json(whole_plan());
  const Result<StepPlan> read = parse_plan(text, "plan.json");
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(plan_json(*read), text);
  EXPECT_EQ(read->launches[0].function, "k_0");
  EXPECT_TRUE(read->launches[0].estimated);
  EXPECT_EQ(read->kernels.machine, "a machine");
  EXPECT_EQ(read->program.layouts, whole_plan().program.layouts);
}

TEST(PlanJson, EveryFlippedBitIsNoticedOrMeansTheSame) {
  const std::string text = plan_json(small_plan().plan);
  for (size_t k = 0; k < text.size(); k += kSanitized ? 5 : 1) {
    for (int bit = k % 7 == 0 ? 0 : static_cast<int>(k % 8); bit < 8; bit += k % 7 == 0 ? 1 : 8) {
      std::string changed = text;
      changed[k] = static_cast<char>(changed[k] ^ (1 << bit));
      const Result<StepPlan> read = parse_plan(changed, "plan.json");
      // 1e-06 may become 1E-06.
      EXPECT_EQ(read ? plan_json(*read) : text, text) << "byte " << k << " bit " << bit;
    }
  }
}

TEST(PlanJson, EveryTruncationIsNoticed) {
  const std::string text = plan_json(small_plan().plan);
  for (size_t size = 0; size + 2 < text.size(); size += 3)
    EXPECT_FALSE(parse_plan(text.substr(0, size), "plan.json")) << size;
}

std::string complaint(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  text.replace(at, from.size(), to);
  const Result<StepPlan> read = parse_plan(text, "plan.json");
  return read ? "" : to_string(read.error());
}

TEST(PlanJson, ComplaintsNameTheLocation) {
  const std::string text = plan_json(whole_plan());
  EXPECT_NE(complaint(text, "\"schema_version\": 3", "\"schema_version\": 4").find("schema_version: unknown version 4"),
            std::string::npos);
  EXPECT_NE(complaint(text, "\"device\": \"test\"", "\"device\": \"other\"").find("sha256: the plan was changed"),
            std::string::npos);
  EXPECT_NE(complaint(text, "\"schema_version\": 3,", "").find("schema_version: it is missing"), std::string::npos);
  EXPECT_NE(complaint(text, "{", "[").find("plan.json"), std::string::npos);
}

TEST(PlanJson, AFieldThatOccursTwiceIsRefused) {
  const std::string text = plan_json(whole_plan());
  EXPECT_NE(complaint(text, "\"device\":", "\"device\": \"x\", \"device\":").find("'device' occurs twice"),
            std::string::npos);
  EXPECT_NE(complaint(text, "\"bytes\":", "\"bytes\": 1, \"bytes\":").find("'bytes' occurs twice"), std::string::npos);
}

TEST(PlanJson, DeepAndEndlessTextsAreRefused) {
  EXPECT_FALSE(parse_plan(std::string(100'000, '['), "plan.json"));
  EXPECT_FALSE(parse_plan("", "plan.json"));
  EXPECT_FALSE(parse_plan("null", "plan.json"));
  EXPECT_FALSE(parse_plan("{}", "plan.json"));
}

}  // namespace
}  // namespace millrace
