// Products by OpenBLAS, BLIS and MKL against a plain triple loop.
#include "device/cpu/blas.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "device/cpu/gemm_blocks.h"
#include "device/gemm_calls.h"

// The tests are compiled without OpenMP.
extern "C" int omp_get_max_active_levels();
extern "C" void omp_set_max_active_levels(int levels);

namespace millrace {
namespace {

using gemm_calls::call_of;
using gemm_calls::check;
using gemm_calls::describe;
using gemm_calls::kNan;
using gemm_calls::Loop;
using gemm_calls::Role;
using gemm_calls::Tensor;

// An independent statement of the rule that the tested code implements: OpenBLAS and MKL take a matrix with a unit
// stride, and any vector.
bool cblas_takes(const GemmCall& call) {
  const auto takes = [](int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    return rows == 1 || columns == 1 || row_stride == 1 || column_stride == 1;
  };
  return takes(call.m, call.k, call.a_m, call.a_k) && takes(call.k, call.n, call.b_k, call.b_n) &&
         takes(call.m, call.n, call.c_m, call.c_n);
}

// --- Tests for each library and type ---

class Blas : public testing::TestWithParam<std::tuple<GemmLibrary, StoredType>> {
 protected:
  void SetUp() override {
    if (!blas_info(library()).there) GTEST_SKIP() << blas_info(library()).missing;
  }
  static GemmLibrary library() { return std::get<0>(GetParam()); }
  static StoredType type() { return std::get<1>(GetParam()); }
};

TEST_P(Blas, EveryTranspose) {
  for (const int transposes : {0, 1, 2, 3, 4, 5, 6, 7}) {
    int tensor = 0;
    const auto arrange = [&](size_t) {
      const bool transposed = (transposes >> tensor++ & 1) != 0;
      return transposed ? std::vector<size_t>{1, 0} : std::vector<size_t>{0, 1};
    };
    GemmCall call = call_of(library(), type(), 37, 53, 29, {}, arrange);
    for (const int threads : {1, 2}) {
      call.threads = threads;
      for (const bool adds : {false, true}) {
        call.adds = adds;
        check(call, adds ? -0.75 : 0.75, 11);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Blas, LargeEnoughForThreadsAndBlocks) {
  const auto arrange = [](size_t) { return std::vector<size_t>{0, 1}; };
  GemmCall call = call_of(library(), type(), 30, 61, 401, {}, arrange);
  call.threads = 2;
  check(call, -1.5, 5);
}

// Axes of the product and of the loops in any order: what the library accepts, it computes correctly.
TEST_P(Blas, AnyLayoutAndLoops) {
  std::mt19937 random(static_cast<unsigned>(type()) * 2 + static_cast<unsigned>(library()) + 1);
  const auto pick = [&](const auto& from) { return from[random() % from.size()]; };
  const std::vector<int64_t> extents{1, 1, 2, 3, 5, 7, 8, 13, 16, 31};
  const std::vector<int64_t> loop_extents{1, 2, 3, 5};
  const std::vector<Role> roles{Role::batch, Role::batch, Role::a_only, Role::b_only, Role::summed, Role::summed};
  const auto arrange = [&](size_t axes) {
    std::vector<size_t> order(axes);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    return order;
  };
  int done = 0;
  for (int i = 0; i < 250; ++i) {
    std::vector<Loop> loops(random() % 4);
    for (Loop& loop : loops) loop = {pick(loop_extents), pick(roles)};
    GemmCall call = call_of(library(), type(), pick(extents), pick(extents), pick(extents), loops, arrange);
    call.threads = static_cast<int>(random() % 2) + 1;
    const bool takes = library() == GemmLibrary::blis || cblas_takes(call);
    ASSERT_EQ(takes, why_not(call).empty()) << describe(call) << ": " << why_not(call);
    if (!takes) continue;
    GemmCall over_loops = call;
    over_loops.threads_over_loops = true;
    if (why_not(over_loops).empty() && random() % 2 == 0) call = over_loops;
    call.adds = random() % 2 == 0;
    check(call, 1.25, static_cast<unsigned>(i));
    if (HasFatalFailure()) return;
    ++done;
  }
  EXPECT_GE(done, 60);
}

TEST_P(Blas, BatchAndSumWithThreadsInsideAndAcrossLoops) {
  const std::vector<Loop> loops{{3, Role::batch}, {2, Role::summed}, {2, Role::a_only}};
  const auto arrange = [](size_t axes) {
    std::vector<size_t> order(axes);  // loops outermost
    for (size_t i = 0; i < axes; ++i) order[i] = (i + 2) % axes;
    return order;
  };
  GemmCall call = call_of(library(), type(), 11, 9, 17, loops, arrange);
  for (const bool over_loops : {false, true}) {
    for (const int threads : {1, 2, 3}) {
      call.threads_over_loops = over_loops;
      call.threads = threads;
      for (const bool adds : {false, true}) {
        call.adds = adds;
        check(call, 1, 3);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(Blas, LeavesTheRestOfC) {
  GemmCall call = call_of(library(), type(), 5, 7, 3, {}, [](size_t) { return std::vector<size_t>{0, 1}; });
  call.c_m = 10;
  call.c_elements = 50;
  const bool half = type() == StoredType::f16 || type() == StoredType::bf16;
  if (half) {
    EXPECT_EQ(concat("the product covers 35 of C's 50 elements; of ", name_of(type()), " it must be all"),
              why_not(call));
  } else {
    check(call, 2, 1);
  }
  call.adds = true;
  EXPECT_EQ("the product covers 35 of C's 50 elements; where it adds it must be all", why_not(call));
}

// So large that the threads share the work of copying it.
TEST_P(Blas, AddsALargeTensor) {
  GemmCall call = call_of(library(), type(), 700, 501, 2, {}, [](size_t) { return std::vector<size_t>{0, 1}; });
  call.adds = true;
  call.threads = 2;
  check(call, 1, 9);
}

// 4,096 ones, times 2, are exact in float32; a sum in half precision would stop growing much earlier.
TEST_P(Blas, SumsInFloat32AlsoAcrossLoops) {
  GemmCall call = call_of(library(), type(), 2, 3, 64, {{64, Role::summed}}, [](size_t axes) {
    return axes == 3 ? std::vector<size_t>{2, 0, 1} : std::vector<size_t>{0, 1};
  });
  Tensor a(type(), call.a_elements, 1);
  Tensor b(type(), call.b_elements, 1);
  Tensor c(type(), call.c_elements, kNan);
  std::vector<unsigned char> scratch(static_cast<size_t>(scratch_bytes(call)));
  ASSERT_TRUE(run_gemm(call, 2, a.data(), b.data(), c.data(), scratch.data()));
  for (int64_t i = 0; i < call.c_elements; ++i) EXPECT_EQ(8192, c.get(i));
}

INSTANTIATE_TEST_SUITE_P(Libraries, Blas,
                         testing::Combine(testing::Values(GemmLibrary::openblas, GemmLibrary::blis, GemmLibrary::mkl),
                                          testing::Values(StoredType::f64, StoredType::f32, StoredType::f16,
                                                          StoredType::bf16)),
                         [](const auto& suite) {
                           return concat(name_of(std::get<0>(suite.param)), "_", name_of(std::get<1>(suite.param)));
                         });

// --- What is rejected ---

class BlasRejects : public testing::TestWithParam<GemmLibrary> {
 protected:
  static GemmCall plain() {
    return call_of(GetParam(), StoredType::f32, 4, 6, 5, {{3, Role::batch}, {2, Role::summed}}, [](size_t axes) {
      return axes == 4 ? std::vector<size_t>{2, 3, 0, 1} : std::vector<size_t>{2, 0, 1};
    });
  }
  static bool says(const GemmCall& call, const std::string& part) {
    const std::string reason = why_not(call);
    const bool has = reason.find(part) != std::string::npos;
    if (!has) ADD_FAILURE() << "\"" << reason << "\" does not say \"" << part << "\"";
    const auto prepared = Gemm::prepare(call);
    EXPECT_FALSE(prepared);
    if (!prepared) {
      EXPECT_NE(std::string::npos, to_string(prepared.error()).find(part));
    }
    return has;
  }
};

TEST_P(BlasRejects, NothingOfThePlainCallButTheLibrary) { EXPECT_EQ(blas_info(GetParam()).missing, why_not(plain())); }

TEST_P(BlasRejects, OtherTypes) {
  GemmCall call = plain();
  call.type = StoredType::i32;
  EXPECT_TRUE(says(call, "no products of I32"));
}

TEST_P(BlasRejects, ExtentsAndThreads) {
  GemmCall call = plain();
  call.k = 0;
  EXPECT_TRUE(says(call, "an extent of 0"));
  call = plain();
  call.loops[1].extent = -1;
  EXPECT_TRUE(says(call, "an extent of -1"));
  call = plain();
  call.threads = 0;
  EXPECT_TRUE(says(call, "0 threads"));
}

TEST_P(BlasRejects, AccessesOutsideTheTensors) {
  GemmCall call = plain();
  --call.a_elements;
  EXPECT_TRUE(says(call, "reaches element 119 of A, which has 119"));
  call = plain();
  --call.b_elements;
  EXPECT_TRUE(says(call, "of B, which has 179"));
  call = plain();
  --call.c_elements;
  EXPECT_TRUE(says(call, "of C, which has 71"));
  call = plain();
  call.b_k = -6;
  EXPECT_TRUE(says(call, "a stride of B is negative"));
  call = plain();
  call.loops[0].extent = int64_t{1} << 60;
  EXPECT_TRUE(says(call, "a stride of A is negative or too large"));
}

TEST_P(BlasRejects, ResultsOnTopOfEachOther) {
  GemmCall call = plain();
  call.c_m = 0;
  EXPECT_TRUE(says(call, "the same element of C"));
  call = plain();
  call.loops[0].c = 23;  // each batch starts within the end of the previous one
  EXPECT_TRUE(says(call, "the same element of C"));
}

TEST_P(BlasRejects, OperandsOnTopOfThemselves) {
  GemmCall call = plain();
  call.a_m = 0;
  EXPECT_TRUE(says(call, "A has the strides 0 and 1 over 4 × 5"));
  call = plain();
  call.b_k = 3;
  EXPECT_TRUE(says(call, "B has the strides 3 and 1 over 5 × 6"));
  call = plain();
  call.a_m = call.a_k = 2;
  EXPECT_TRUE(says(call, "A has the strides 2 and 2"));
}

TEST_P(BlasRejects, ThreadsWithoutALoop) {
  GemmCall call = plain();
  call.threads_over_loops = true;
  EXPECT_EQ(blas_info(GetParam()).missing, why_not(call));
  call.loops.erase(call.loops.begin());
  EXPECT_TRUE(says(call, "no loop to share"));
}

INSTANTIATE_TEST_SUITE_P(Libraries, BlasRejects,
                         testing::Values(GemmLibrary::openblas, GemmLibrary::blis, GemmLibrary::mkl),
                         [](const auto& suite) { return std::string(name_of(suite.param)); });

// OpenMP may start fewer threads than asked, for example inside of another parallel region.
TEST(BlisBlocks, AreComputedByFewerThreads) {
  if (!blas_info(GemmLibrary::blis).there) GTEST_SKIP() << blas_info(GemmLibrary::blis).missing;
  GemmCall call = call_of(GemmLibrary::blis, StoredType::f32, 70, 53, 29, {}, [](size_t) {
    return std::vector<size_t>{0, 1};
  });
  call.threads = 2;
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(0);
  check(call, 0.75, 11);
  omp_set_max_active_levels(levels);
}

TEST(BlasStrides, OnlyBlisTakesGeneralOnes) {
  GemmCall call = call_of(GemmLibrary::openblas, StoredType::f32, 4, 6, 5, {}, [](size_t) {
    return std::vector<size_t>{0, 1};
  });
  call.c_m = 12;
  call.c_n = 2;
  call.c_elements = 48;
  EXPECT_EQ("C has the strides 12 and 2 over 4 × 6; OpenBLAS needs a unit stride", why_not(call));
  call.library = GemmLibrary::blis;
  EXPECT_EQ(blas_info(GemmLibrary::blis).missing, why_not(call));
}

TEST(BlasStrides, OpenBlasCountsIn32Bits) {
  GemmCall call = call_of(GemmLibrary::openblas, StoredType::f32, 2, 6, 5, {}, [](size_t) {
    return std::vector<size_t>{0, 1};
  });
  call.a_m = int64_t{1} << 31;
  call.a_elements = int64_t{1} << 32;
  EXPECT_EQ("A has the strides 2147483648 and 1 over 2 × 5; OpenBLAS needs strides that fit into 32 bits",
            why_not(call));
}

TEST(BlasInfos, NamesLoadedLibrariesOrHowToInstallThem) {
  for (const GemmLibrary library : {GemmLibrary::openblas, GemmLibrary::blis, GemmLibrary::mkl}) {
    const BlasInfo& info = blas_info(library);
    EXPECT_EQ(info.there, info.missing.empty());
    EXPECT_EQ(info.there, !info.version.empty());
    EXPECT_EQ(info.there, !info.path.empty());
    if (!info.there) {
      EXPECT_NE(std::string::npos,
                info.missing.find(library == GemmLibrary::mkl ? "pip install" : "apt-get install lib"));
    }
  }
}

// While it lives, all threads of the process run on the same core.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &one);
    }
    set(one);
  }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;
  ~OneCore() { set(before_); }

 private:
  // New threads inherit it.
  static void set(const cpu_set_t& cores) {
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task"))
      sched_setaffinity(std::stoi(thread.path().filename()), sizeof(cores), &cores);
  }
  cpu_set_t before_{};
};

double least_seconds(const GemmCall& call) {
  const Tensor a(call.type, call.a_elements, 1);
  const Tensor b(call.type, call.b_elements, 1);
  Tensor c(call.type, call.c_elements, kNan);
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 3; ++run) {
    const double begin = now();
    EXPECT_TRUE(run_gemm(call, 1, a.data(), b.data(), c.data(), nullptr));
    least = std::min(least, now() - begin);
  }
  return least;
}

// Threads that spin while they wait for each other take thousands of times as long.
TEST(BlasThreads, ThatShareACoreCostAFactor) {
  if (!blas_info(GemmLibrary::blis).there) GTEST_SKIP() << blas_info(GemmLibrary::blis).missing;
  GemmCall call = call_of(GemmLibrary::blis, StoredType::f32, 64, 64, 64, {{500, Role::batch}}, [](size_t axes) {
    return axes == 3 ? std::vector<size_t>{2, 0, 1} : std::vector<size_t>{0, 1};
  });
  const OneCore one_core;
  const double alone = least_seconds(call);
  call.threads = 2;

  EXPECT_LT(least_seconds(call), 20 * alone);
}

TEST(GemmBlocks, CoverEachElementOnce) {
  for (const int threads : {1, 2, 3, 4, 6, 7, 16, 64}) {
    for (const int64_t rows : {1, 15, 16, 17, 100, 333}) {
      for (const int64_t columns : {1, 31, 33, 512}) {
        const GemmBlocks blocks(rows, columns, threads);
        std::vector<int> covered(static_cast<size_t>(rows * columns));
        for (int thread = 0; thread < threads; ++thread) {
          const GemmBlock block = blocks.of(thread);
          for (int64_t i = block.row; i < block.row + block.rows; ++i) {
            for (int64_t j = block.column; j < block.column + block.columns; ++j)
              covered.at(static_cast<size_t>(i * columns + j)) += 1;
          }
        }
        EXPECT_EQ(std::vector<int>(covered.size(), 1), covered) << rows << " × " << columns << " by " << threads;
      }
    }
  }
}

TEST(GemmBlocks, AreNearlySquare) {
  const GemmBlock block = GemmBlocks(1024, 1024, 4).of(3);
  EXPECT_EQ(512, block.row);
  EXPECT_EQ(512, block.column);
  EXPECT_EQ(512, block.rows);
  EXPECT_EQ(512, block.columns);
  EXPECT_EQ(2048, GemmBlocks(64, 4096, 2).of(1).columns);
}

TEST(BlasThreads, AProgramsOwnCallsOfMKLKeepTheirs) {
  if (!blas_info(GemmLibrary::mkl).there) GTEST_SKIP() << blas_info(GemmLibrary::mkl).missing;
  GemmCall call = call_of(GemmLibrary::mkl, StoredType::f32, 4, 6, 5, {}, [](size_t) {
    return std::vector<size_t>{0, 1};
  });
  call.threads = 2;
  mkl().set_num_threads_local(7);
  check(call, 1, 3);
  EXPECT_EQ(7, mkl().set_num_threads_local(0));
}

TEST(BlasScratch, HoldsFloat32CopiesOfHalfSizedTensors) {
  GemmCall call = call_of(GemmLibrary::openblas, StoredType::f32, 4, 6, 5, {}, [](size_t) {
    return std::vector<size_t>{0, 1};
  });
  EXPECT_EQ(0, scratch_bytes(call));
  call.type = StoredType::bf16;
  EXPECT_EQ(4 * (32 + 32 + 24), scratch_bytes(call));
}

}  // namespace
}  // namespace millrace
