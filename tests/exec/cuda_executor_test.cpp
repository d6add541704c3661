// Runs plans of all models on a real GPU in half precision and compares them with the reference. Without a GPU, these
// tests are reported as skipped.
#include <gtest/gtest.h>

#include "base/text.h"
#include "device/gpu_for_tests.h"
#include "exec/gpu_plan_test_case.h"
#include "fusion/fusion_text.h"
#include "golden/golden.h"

namespace millrace {
namespace {

class CudaExecutor : public GpuPlanTest, public testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    GpuPlanTest::SetUp();
    Result<std::unique_ptr<Gpu>> gpu = gpu_for_tests();
    if (!gpu) GTEST_SKIP() << to_string(gpu.error());
    Result<std::unique_ptr<GpuCompiler>> compiler = gpu_compiler_for_tests();
    if (!compiler) GTEST_SKIP() << to_string(compiler.error());
    gpu_ = std::move(*gpu);
    compiler_ = std::move(*compiler);
  }
};

TEST_P(CudaExecutor, AgreesWithTheReferenceInHalfPrecision) {
  const std::string text = text_of_file(concat(MILLRACE_SOURCE_DIR, "/models/", GetParam(), ".py"));
  uint64_t number = 0;
  for (const char* size : {"tiny", "odd"}) {
    for (const char* dtype : {"float16", "bfloat16"}) {
      for (const bool by_chance : {false, true}) {
        SCOPED_TRACE(concat(size, " ", dtype, by_chance ? " by chance" : ""));
        PlanChoice choice;
        choice.sizes = {size};
        choice.dtype = dtype;
        if (by_chance) choice.seed = ++number;
        expect_one_step(text, choice);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaExecutor, testing::ValuesIn(all_models()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace millrace
