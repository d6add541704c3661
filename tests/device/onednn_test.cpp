// Products by oneDNN against a plain triple loop. Skipped where the library is missing.
#include "device/cpu/onednn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "device/cpu/blas.h"
#include "device/cpu/gemm_matrix.h"
#include "device/gemm_calls.h"

namespace millrace {
namespace {

using gemm_calls::call_of;
using gemm_calls::check;
using gemm_calls::describe;
using gemm_calls::Loop;
using gemm_calls::Role;

std::vector<size_t> in_order(size_t axes) {
  std::vector<size_t> order(axes);
  std::iota(order.begin(), order.end(), size_t{0});
  return order;
}

// Loops outermost.
std::vector<size_t> loops_first(size_t axes) {
  std::vector<size_t> order = in_order(axes);
  std::rotate(order.begin(), order.begin() + 2, order.end());
  return order;
}

GemmCall plain_call(StoredType type, int64_t m, int64_t n, int64_t k) {
  return call_of(GemmLibrary::onednn, type, m, n, k, {}, in_order);
}

class OneDnnProducts : public testing::TestWithParam<StoredType> {
 protected:
  void SetUp() override {
    if (!onednn_info().there) GTEST_SKIP() << onednn_info().missing;
    if (onednn_implementation(GetParam()).empty())
      GTEST_SKIP() << "oneDNN has no fast products of " << name_of(GetParam()) << " for this processor";
  }
};

TEST_P(OneDnnProducts, EveryTransposeFactorAndAddend) {
  for (const int transposes : {0, 1, 2, 3, 4, 5, 6, 7}) {
    int tensor = 0;
    const auto arrange = [&](size_t) {
      const bool transposed = (transposes >> tensor++ & 1) != 0;
      return transposed ? std::vector<size_t>{1, 0} : std::vector<size_t>{0, 1};
    };
    GemmCall call = call_of(GemmLibrary::onednn, GetParam(), 37, 53, 29, {}, arrange);
    for (const int way : {0, 1, 2, 3, 4, 5, 6, 7}) {
      call.threads = (way & 1) != 0 ? 2 : 1;
      call.adds = (way & 2) != 0;
      call.scaled = (way & 4) != 0;
      check(call, call.scaled ? -0.75 : 1, 11);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(OneDnnProducts, LargeEnoughForThreadsAndBlocks) {
  GemmCall call = plain_call(GetParam(), 130, 161, 401);
  call.threads = 2;
  check(call, -1.5, 5);
}

// Version 3.2 has no such product for float16 if there are gaps between the rows of a matrix.
bool has_fast_code(const GemmCall& call) {
  const auto gemm = Gemm::prepare(call);
  EXPECT_TRUE(gemm || to_string(gemm.error()).find("slow reference") != std::string::npos);
  return static_cast<bool>(gemm);
}

// It accepts everything but general strides and sums of products, and computes correctly what it accepts.
TEST_P(OneDnnProducts, AnyLayoutAndLoops) {
  std::mt19937 random(static_cast<unsigned>(GetParam()) + 1);
  const auto pick = [&](const auto& from) { return from[random() % from.size()]; };
  const std::vector<int64_t> extents{1, 1, 2, 3, 5, 7, 8, 13, 16, 31, 64};
  const std::vector<int64_t> loop_extents{1, 2, 3, 5};
  const std::vector<Role> roles{Role::batch, Role::batch, Role::a_only, Role::b_only};
  const auto arrange = [&](size_t axes) {
    std::vector<size_t> order = in_order(axes);
    std::shuffle(order.begin(), order.end(), random);
    return order;
  };
  int done = 0;
  for (int i = 0; i < 250; ++i) {
    std::vector<Loop> loops(random() % 4);
    for (Loop& loop : loops) loop = {pick(loop_extents), pick(roles)};
    GemmCall call =
        call_of(GemmLibrary::onednn, GetParam(), pick(extents), pick(extents), pick(extents), loops, arrange);
    call.threads = static_cast<int>(random() % 2) + 1;
    if (!why_not(call).empty()) {
      EXPECT_NE(why_not(call).find("oneDNN needs a unit stride"), std::string::npos) << why_not(call);
      continue;
    }
    GemmCall over_loops = call;
    over_loops.threads_over_loops = true;
    if (why_not(over_loops).empty() && random() % 2 == 0) call = over_loops;
    call.adds = random() % 2 == 0;
    if (!has_fast_code(call)) continue;
    check(call, 1.25, static_cast<unsigned>(i));
    if (HasFatalFailure()) return;
    ++done;
  }
  EXPECT_GE(done, 60);
}

// Adds a bias along the rows of C.
void add_bias(GemmCall& call) {
  call.vector = GemmVector::bias;
  const bool along_m = !matrices_of(call).c.by_rows();
  call.v_m = along_m ? 1 : 0;
  call.v_n = along_m ? 0 : 1;
  call.v_elements = along_m ? call.m : call.n;
}

TEST_P(OneDnnProducts, EveryEpilogueOnAnyLayout) {
  std::mt19937 random(static_cast<unsigned>(GetParam()) + 7);
  const auto pick = [&](const auto& from) { return from[random() % from.size()]; };
  const std::vector<int64_t> extents{1, 2, 3, 5, 8, 16, 31, 33, 64, 70};
  const std::vector<Activation> activations{Activation::none, Activation::relu, Activation::gelu,
                                            Activation::exact_gelu};
  const auto arrange = [&](size_t axes) {
    std::vector<size_t> order = in_order(axes);
    if (random() % 2 == 0) std::swap(order[0], order[1]);
    return order;
  };
  for (int i = 0; i < 200; ++i) {
    GemmCall call = call_of(GemmLibrary::onednn, GetParam(), pick(extents), pick(extents), pick(extents), {}, arrange);
    call.threads = static_cast<int>(random() % 2) + 1;
    call.scaled = random() % 2 == 0;
    call.activation = pick(activations);
    if (random() % 4 != 0) add_bias(call);
    call.adds = call.activation == Activation::none && random() % 2 == 0;
    check(call, call.scaled ? 0.75 : 1, static_cast<unsigned>(i));
    if (HasFatalFailure()) return;
  }
}

// Each iteration of a loop has its own part of the bias.
TEST_P(OneDnnProducts, BiasesInLoops) {
  GemmCall call = call_of(GemmLibrary::onednn, GetParam(), 6, 8, 5, {{3, Role::batch}, {2, Role::batch}}, loops_first);
  add_bias(call);
  call.loops[0].v = call.v_elements;
  call.v_elements *= 3;
  for (const bool over_loops : {false, true}) {
    call.threads = 2;
    call.threads_over_loops = over_loops;
    check(call, 1.5, 3);
    if (HasFatalFailure()) return;
  }
}

TEST_P(OneDnnProducts, ThreadsInsideAndAcrossLoops) {
  const std::vector<Loop> loops{{3, Role::batch}, {2, Role::a_only}};
  GemmCall call = call_of(GemmLibrary::onednn, GetParam(), 11, 9, 17, loops, loops_first);
  for (const bool over_loops : {false, true}) {
    for (const int threads : {1, 2, 3}) {
      call.threads_over_loops = over_loops;
      call.threads = threads;
      check(call, 1, 3);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(OneDnnProducts, LeavesTheRestOfC) {
  GemmCall call = plain_call(GetParam(), 5, 7, 3);
  call.c_m = 10;
  call.c_elements = 50;
  if (!has_fast_code(call)) GTEST_SKIP() << "oneDNN has no fast code for rows of float16 that are apart";
  check(call, 2, 1);
}

// 4,096 ones, times 2, are exact in float32; a sum in half precision would stop growing much earlier.
TEST_P(OneDnnProducts, SumsInFloat32) {
  const GemmCall call = plain_call(GetParam(), 2, 3, 4096);
  const gemm_calls::Tensor a(GetParam(), call.a_elements, 1);
  const gemm_calls::Tensor b(GetParam(), call.b_elements, 1);
  gemm_calls::Tensor c(GetParam(), call.c_elements, gemm_calls::kNan);
  std::vector<unsigned char> scratch(static_cast<size_t>(scratch_bytes(call)));
  ASSERT_TRUE(run_gemm(call, 2, a.data(), b.data(), c.data(), scratch.data()));
  for (int64_t i = 0; i < call.c_elements; ++i) EXPECT_EQ(8192, c.get(i));
}

TEST_P(OneDnnProducts, RepeatsBitForBit) {
  GemmCall call = plain_call(GetParam(), 130, 67, 900);
  call.threads = 2;
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  gemm_calls::Tensor a(GetParam(), call.a_elements, 0);
  gemm_calls::Tensor b(GetParam(), call.b_elements, 0);
  for (int64_t i = 0; i < call.a_elements; ++i) a.set(i, normal(random));
  for (int64_t i = 0; i < call.b_elements; ++i) b.set(i, normal(random));
  std::vector<unsigned char> scratch(static_cast<size_t>(scratch_bytes(call)));
  const auto bytes = static_cast<size_t>(call.c_elements * bytes_of(GetParam()));
  gemm_calls::Tensor first(GetParam(), call.c_elements, 0);
  ASSERT_TRUE(run_gemm(call, 0.5, a.data(), b.data(), first.data(), scratch.data()));
  for (int run = 0; run < 20; ++run) {
    gemm_calls::Tensor again(GetParam(), call.c_elements, 1);
    ASSERT_TRUE(run_gemm(call, 0.5, a.data(), b.data(), again.data(), scratch.data()));
    ASSERT_EQ(0, std::memcmp(first.data(), again.data(), bytes)) << "run " << run;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, OneDnnProducts, testing::Values(StoredType::f32, StoredType::f16, StoredType::bf16),
                         [](const auto& suite) { return std::string(name_of(suite.param)); });

// --- What is rejected ---

TEST(OneDnnRejects, TypesStridesAndSums) {
  if (!onednn_info().there) GTEST_SKIP() << onednn_info().missing;
  EXPECT_EQ("it has no fast products of F64 for this processor", why_not(plain_call(StoredType::f64, 4, 6, 5)));
  GemmCall strided = plain_call(StoredType::f32, 4, 6, 5);
  strided.c_m = 12;
  strided.c_n = 2;
  strided.c_elements = 48;
  EXPECT_EQ("C has the strides 12 and 2 over 4 × 6; oneDNN needs a unit stride", why_not(strided));
  const GemmCall sum = call_of(GemmLibrary::onednn, StoredType::f32, 4, 6, 5, {{2, Role::summed}}, loops_first);
  EXPECT_EQ("it does not sum several products", why_not(sum));
}

TEST(OneDnnRejects, EpiloguesThatItLacks) {
  if (!onednn_info().there) GTEST_SKIP() << onednn_info().missing;
  GemmCall call = plain_call(StoredType::f32, 4, 6, 5);
  call.vector = GemmVector::gradient_of_a;
  EXPECT_EQ("its epilogues compute no gradients", why_not(call));
  call.vector = GemmVector::bias;
  call.v_m = 1;
  call.v_elements = 4;
  EXPECT_EQ("the bias does not run along the rows of C, or has no unit stride", why_not(call));
  add_bias(call);
  EXPECT_EQ("", why_not(call));
  call.v_elements = 5;
  EXPECT_EQ("the product reaches element 5 of the bias, which has 5", why_not(call));
  call.v_elements = 6;
  call.activation = Activation::relu;
  call.adds = true;
  EXPECT_EQ("it adds no matrix after an activation", why_not(call));
  call.adds = false;
  call.library = GemmLibrary::openblas;
  EXPECT_EQ("it supports no epilogues", why_not(call));
}

// A type that the processor lacks has no candidates, and a plan from elsewhere that uses it is rejected for that
// reason.
TEST(OneDnnRejects, TypesThatTheProcessorLacks) {
  if (!onednn_info().there) GTEST_SKIP() << onednn_info().missing;
  for (const StoredType type : {StoredType::f16, StoredType::bf16}) {
    const std::string reason = why_not(plain_call(type, 4, 6, 5));
    EXPECT_EQ(onednn_implementation(type).empty()
                  ? concat("it has no fast products of ", name_of(type), " for this processor")
                  : "",
              reason);
  }
}

TEST(OneDnnInfo, NamesTheLibraryOrHowToInstallIt) {
  const BlasInfo& info = blas_info(GemmLibrary::onednn);
  EXPECT_EQ(info.there, info.missing.empty());
  EXPECT_EQ(info.there, !info.version.empty());
  EXPECT_EQ(info.there, info.path.find("dnnl") != std::string::npos);
  if (!info.there) {
    EXPECT_NE(std::string::npos, info.missing.find("apt-get install libdnnl"));
    const auto prepared = Gemm::prepare(plain_call(StoredType::f32, 4, 6, 5));
    ASSERT_FALSE(prepared);
    EXPECT_NE(std::string::npos, to_string(prepared.error()).find("apt-get install libdnnl"));
  }
}

}  // namespace
}  // namespace millrace
