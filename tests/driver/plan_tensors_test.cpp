// A plan's tensors by name, in every floating type, other layouts and stacks; and the version macros.
#include <gtest/gtest.h>

#include "base/scratch.h"
#include "base/text.h"
#include "driver/plan_folder.h"
#include "exec/run_plan.h"
#include "millrace/millrace.h"
#include "millrace/tensors.h"
#include "millrace/version.h"
#include "plan/launched_partition.h"
#include "plan/random_plan.h"

namespace millrace {
namespace {

// All its values are small integers for such arguments, exact in every type.
constexpr const char* kProgram = R"(
B = 3
I = 4

def layer(x: float64[B, I], w: float64[I, I], v: float64[I, I], s: float64):
    y = np.einsum("bi,oi->bo", x, w)
    z = np.einsum("bi,oi->bo", x, v)
    return y * s + z
)";

class PlanTensorsTest : public ScratchTest {
 protected:
  Result<Plan> loaded(const std::string& dtype, const std::string& layout) {
    set_variable("MILLRACE_CACHE_DIR", path("cache"));
    PlanChoice choice;
    choice.dtype = dtype;
    choice.layouts = {{"x", layout}, {"w+v", "stacked"}};
    MadePlan made = make_plan(kProgram, choice);
    const Result<std::vector<Launch>> launches = lower_plan(made.plan, made.training, made.candidates);
    if (!launches) return launches.error();
    const Result<KernelCache> cache = test_kernel_cache();
    if (!cache) return cache.error();
    const std::string folder = path(concat(dtype, layout));
    if (const Result<Done> written = write_plan(made.plan, *launches, *cache, folder); !written) return written.error();
    return Plan::load(folder);
  }
};

std::vector<double> integers(size_t count, int factor) {
  std::vector<double> values;
  for (size_t k = 0; k < count; ++k) values.push_back(static_cast<double>(static_cast<int>(k) * factor % 5 - 2));
  return values;
}

std::vector<double> expected(const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& v) {
  std::vector<double> result(12, 0);
  for (size_t k = 0; k < 48; ++k) {
    const size_t b = k / 16;
    const size_t o = k / 4 % 4;
    const size_t i = k % 4;
    result[4 * b + o] += x[4 * b + i] * (2 * w[4 * o + i] + v[4 * o + i]);
  }
  return result;
}

TEST_F(PlanTensorsTest, ElementsInEveryTypeAndLayout) {
  const std::vector<double> x = integers(12, 3);
  const std::vector<double> w = integers(16, 7);
  const std::vector<double> v = integers(16, 2);
  for (const char* const dtype : {"float64", "float32", "float16", "bfloat16"}) {
    for (const char* const layout : {"BI", "IB"}) {
      Result<Plan> plan = loaded(dtype, layout);
      ASSERT_TRUE(plan) << to_string(plan.error());
      Result<PlanTensors> tensors = PlanTensors::allocate(*plan);
      ASSERT_TRUE(tensors) << to_string(tensors.error());
      ASSERT_TRUE(tensors->set("x", x));
      ASSERT_TRUE(tensors->set("w", w));
      ASSERT_TRUE(tensors->set("v", v));
      ASSERT_TRUE(tensors->set("s", std::vector<double>{2}));
      ASSERT_TRUE(tensors->set("d_result", std::vector<double>(12, 1)));
      EXPECT_EQ(*tensors->get("x"), x);
      const Result<Done> ran = plan->step(tensors->view(), 0, 0);
      ASSERT_TRUE(ran) << to_string(ran.error());
      EXPECT_EQ(*tensors->get("result"), expected(x, w, v)) << dtype << " " << layout;
      std::vector<double> d_w(16, 0);
      for (size_t k = 0; k < 48; ++k) d_w[k % 16] += 2 * x[4 * (k / 16) + k % 4];
      EXPECT_EQ(*tensors->get("d_w"), d_w) << dtype << " " << layout;
    }
  }
}

TEST_F(PlanTensorsTest, NamesAreFoundOrSuggested) {
  Result<Plan> plan = loaded("float32", "BI");
  ASSERT_TRUE(plan) << to_string(plan.error());
  EXPECT_EQ(plan->argument("w")->shape, (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(plan->result("result")->dtype, "float32");
  EXPECT_EQ(plan->gradient("d_x")->name, "d_x");
  EXPECT_EQ(plan->gradient("d_result")->name, "d_result");
  EXPECT_NE(to_string(plan->gradient("d_s").error()).find("no gradient 'd_s'"), std::string::npos);
  EXPECT_NE(to_string(plan->result("resul").error()).find("did you mean 'result'?"), std::string::npos);
  Result<PlanTensors> tensors = PlanTensors::allocate(*plan);
  ASSERT_TRUE(tensors);
  EXPECT_NE(to_string(tensors->get("d_resul").error()).find("did you mean 'd_result'?"), std::string::npos);
  EXPECT_NE(to_string(tensors->set("x", std::vector<double>(3)).error()).find("it has 12 elements"), std::string::npos);
  EXPECT_EQ(tensors->data("nothing"), nullptr);
  // Stacked, as the plan needs them.
  EXPECT_EQ(static_cast<char*>(tensors->data("w")) + 64, tensors->data("v"));
}

TEST(Version, TheMacrosAreTheLibrarysVersion) {
  EXPECT_EQ(version(), MILLRACE_VERSION_STRING);
  EXPECT_EQ(version(), concat(MILLRACE_VERSION_MAJOR, ".", MILLRACE_VERSION_MINOR, ".", MILLRACE_VERSION_PATCH));
  EXPECT_EQ(MILLRACE_VERSION_NUMBER, 100);
}

}  // namespace
}  // namespace millrace
