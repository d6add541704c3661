// The C API as ctypes uses it: wrong requests return codes and messages. tests/python/library_test.py runs more of it.
#include "millrace/c_api.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/scratch.h"
#include "base/text.h"
#include "exec/run_plan.h"
#include "plan/launched_partition.h"
#include "plan/small_plan.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

struct Answer {
  int code = 0;
  std::string text;  // or the error
};

Answer command(const std::string& request) {
  char* text = nullptr;
  const int code = millrace_command(request.c_str(), nullptr, nullptr, nullptr, &text);
  Answer answer{code, code == MILLRACE_DONE ? text : millrace_error()};
  millrace_free(text);
  return answer;
}

class CApi : public ScratchTest {
 protected:
  void SetUp() override {
    ScratchTest::SetUp();
    set_variable("MILLRACE_CACHE_DIR", path("cache"));
    set_variable("MILLRACE_DATA_DIR", path("data"));
    ASSERT_TRUE(write_file(path("small.py"), kSmallProgram));
  }
};

TEST_F(CApi, WrongRequestsReturnCodesAndMessages) {
  for (const std::string& request :
       {std::string("{"), std::string("[]"), std::string("{}"), std::string(R"({"command": 3})"),
        std::string(R"({"command": "analyze"})"), std::string(R"({"command": "analyze", "program": 3})"),
        std::string(R"({"command": "analyze", "program": "/nowhere.py", "sizes": "tiny"})"),
        std::string(R"({"command": "plan", "program": "/nowhere.py"})"),
        std::string(R"({"command": "sing", "program": "/nowhere.py"})")}) {
    const Answer answer = command(request);
    EXPECT_NE(answer.code, MILLRACE_DONE) << request;
    EXPECT_FALSE(answer.text.empty()) << request;
  }
  EXPECT_EQ(command(R"({"command": "sing", "program": "x"})").code, MILLRACE_BAD_INPUT);
}

TEST_F(CApi, CommandsReturnWhatTheProgramPrints) {
  const Answer answer = command(Json{{"command", "analyze"}, {"program", path("small.py")}, {"sizes", {"B=2"}}}.dump());
  ASSERT_EQ(answer.code, MILLRACE_DONE) << answer.text;
  EXPECT_EQ(Json::parse(answer.text)["schema_version"], 1);
  const Answer graph = command(Json{{"command", "analyze"}, {"program", path("small.py")}, {"format", "graph"}}.dump());
  EXPECT_NE(graph.text.find("program layer"), std::string::npos) << graph.text;
}

// An unmeasured plan computes what the reference computes.
TEST_F(CApi, AnUnmeasuredPlanIsRight) {
  const Answer made =
      command(Json{{"command", "plan"}, {"program", path("small.py")}, {"out", path("plan")}, {"threads", 2}}.dump());
  ASSERT_EQ(made.code, MILLRACE_DONE) << made.text;
  EXPECT_EQ(made.text, path("plan"));
  millrace_plan* plan = nullptr;
  ASSERT_EQ(millrace_plan_load(path("plan").c_str(), &plan), MILLRACE_DONE) << millrace_error();
  EXPECT_STREQ(millrace_plan_device(plan), "cpu");
  ASSERT_EQ(millrace_plan_count(plan, MILLRACE_ARGUMENTS), 4);
  const millrace_tensor w = millrace_plan_tensor(plan, MILLRACE_ARGUMENTS, 1);
  EXPECT_STREQ(w.name, "w");
  EXPECT_STREQ(w.dtype, "float64");
  EXPECT_EQ(std::vector<int64_t>(w.shape, w.shape + w.rank), (std::vector<int64_t>{5, 4}));
  EXPECT_GT(millrace_plan_predicted_seconds(plan), 0);

  const TrainingGraph& training = small_plan().training;
  const Values<double> given = drawn_values(training, 5);
  Values<double> found(training.graph.tensors.size());
  const auto output = [&](TensorId tensor) -> void* {
    if (!tensor.valid()) return nullptr;
    found[tensor.at()].resize(static_cast<size_t>(elements_of(training.graph, tensor)));
    return found[tensor.at()].data();
  };
  std::vector<const void*> arguments;
  std::vector<void*> results;
  std::vector<const void*> result_gradients;
  std::vector<void*> argument_gradients;
  for (const TensorId tensor : training.graph.arguments) arguments.push_back(given[tensor.at()].data());
  for (const Output& result : training.graph.results) results.push_back(output(result.tensor));
  for (const TensorId tensor : training.result_gradients) result_gradients.push_back(given[tensor.at()].data());
  for (const TensorId tensor : training.argument_gradients) argument_gradients.push_back(output(tensor));
  struct alignas(64) Line {
    std::array<char, 64> bytes;
  };
  std::vector<Line> saved(static_cast<size_t>(millrace_plan_saved_bytes(plan) / 64 + 1));
  std::vector<Line> workspace(static_cast<size_t>(millrace_plan_workspace_bytes(plan) / 64 + 1));
  const std::array<uint64_t, 2> random{9, (uint64_t{77} << 32U) | 2};  // a step has 32 bits
  millrace_call call{};
  call.arguments = arguments.data();
  call.results = results.data();
  call.saved = saved.data();
  call.random = random.data();
  EXPECT_EQ(millrace_plan_forward(plan, &call), MILLRACE_BAD_INPUT);
  EXPECT_NE(std::string(millrace_error()).find("'workspace' is a null pointer"), std::string::npos) << millrace_error();
  call.workspace = workspace.data();
  EXPECT_EQ(millrace_plan_forward(plan, &call), MILLRACE_DONE) << millrace_error();
  EXPECT_EQ(millrace_plan_backward(plan, &call), MILLRACE_BAD_INPUT) << "without gradients";
  call.result_gradients = result_gradients.data();
  call.argument_gradients = argument_gradients.data();
  EXPECT_EQ(millrace_plan_backward(plan, &call), MILLRACE_DONE) << millrace_error();
  EXPECT_EQ(difference_from_reference(small_plan(), given, {9, 2}, found), "");
  millrace_plan_unload(plan);
}

TEST_F(CApi, AnUnmeasuredPlanStoresNoMeasurements) {
  // The plan comes from the model alone.
  const Answer made = command(Json{{"command", "plan"}, {"program", path("small.py")}, {"out", path("plan")}}.dump());
  ASSERT_EQ(made.code, MILLRACE_DONE) << made.text;
  const Answer selected = command(Json{{"command", "select"}, {"program", path("small.py")}}.dump());
  EXPECT_EQ(selected.code, MILLRACE_NO_CONFIGURATION) << selected.text;
}

}  // namespace
}  // namespace millrace
