// Products by OpenBLAS and BLIS against a plain triple loop. Over 500 lines, because all cases share the tensors,
// products and comparison that it defines.
#include "device/cpu/blas.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/text.h"

namespace millrace {
namespace {

// --- Tensors of any stored type, read and written as double ---

class Tensor {
 public:
  // Followed by a few guard elements that must not be written.
  Tensor(StoredType type, int64_t elements, double fill)
      : type_(type),
        size_(static_cast<size_t>(bytes_of(type))),
        bytes_((static_cast<size_t>(elements) + kGuards) * size_) {
    for (int64_t i = 0; i < elements + static_cast<int64_t>(kGuards); ++i) set(i, fill);
  }

  void set(int64_t index, double value) {
    const uint64_t bits = encode(value, type_);
    std::memcpy(&bytes_[static_cast<size_t>(index) * size_], &bits, size_);
  }
  double get(int64_t index) const {
    uint64_t bits = 0;
    std::memcpy(&bits, &bytes_[static_cast<size_t>(index) * size_], size_);
    return decode(bits, type_);
  }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }

  static constexpr size_t kGuards = 16;

 private:
  StoredType type_;
  size_t size_;
  std::vector<unsigned char> bytes_;
};

const double kNan = std::numeric_limits<double>::quiet_NaN();

// --- The oracle: plain loops, and how far a product may be from them ---

double unit_roundoff(StoredType type) {
  switch (type) {
    case StoredType::f64: return std::ldexp(1, -53);
    case StoredType::f32: return std::ldexp(1, -24);
    case StoredType::f16: return std::ldexp(1, -11);
    default: return std::ldexp(1, -8);
  }
}

struct Expected {
  std::vector<double> value;
  std::vector<double> bound;
  std::vector<bool> covered;
};

// Calls visit(a, b, c), offsets, for every multiplication.
template <class Visit>
void visit_all(const GemmCall& call, size_t loop, int64_t a, int64_t b, int64_t c, const Visit& visit) {
  if (loop < call.loops.size()) {
    const GemmLoop& at = call.loops[loop];
    for (int64_t i = 0; i < at.extent; ++i) visit_all(call, loop + 1, a + i * at.a, b + i * at.b, c + i * at.c, visit);
    return;
  }
  for (int64_t i = 0; i < call.m; ++i) {
    for (int64_t j = 0; j < call.n; ++j) {
      for (int64_t l = 0; l < call.k; ++l) {
        visit(a + i * call.a_m + l * call.a_k, b + l * call.b_k + j * call.b_n, c + i * call.c_m + j * call.c_n);
      }
    }
  }
}

// A sum of K products in any order is off by at most K·u·Σ|a||b| to first order (Higham, ch. 3); scaling by alpha and
// adding the partial sums of the loops are a few roundings more. The oracle's own double sum has the same bound. Twice
// that covers the higher orders, as K·u is far below 1. Half-precision results are rounded once more. `d`: the added
// tensor if the call adds, one more term.
Expected expected_of(const GemmCall& call, double alpha, const Tensor& a, const Tensor& b, const Tensor& d) {
  const auto elements = static_cast<size_t>(call.c_elements);
  Expected expected{std::vector<double>(elements), std::vector<double>(elements), std::vector<bool>(elements)};
  visit_all(call, 0, 0, 0, 0, [&](int64_t at_a, int64_t at_b, int64_t at_c) {
    const double term = alpha * a.get(at_a) * b.get(at_b);
    expected.value[static_cast<size_t>(at_c)] += term;
    expected.bound[static_cast<size_t>(at_c)] += std::abs(term);
    expected.covered[static_cast<size_t>(at_c)] = true;
  });
  for (size_t i = 0; call.adds && i < elements; ++i) {
    expected.value[i] += d.get(static_cast<int64_t>(i));
    expected.bound[i] += std::abs(d.get(static_cast<int64_t>(i)));
  }
  double terms = static_cast<double>(call.k);
  double sums = 1;
  for (const GemmLoop& loop : call.loops) sums *= loop.c == 0 ? static_cast<double>(loop.extent) : 1;
  terms = terms * sums + sums + 4;
  const bool half = call.type == StoredType::f16 || call.type == StoredType::bf16;
  const double u = unit_roundoff(call.type == StoredType::f64 ? StoredType::f64 : StoredType::f32);
  for (size_t i = 0; i < elements; ++i) {
    double bound = 2 * terms * u * expected.bound[i];
    if (half) bound += (std::abs(expected.value[i]) + bound) * unit_roundoff(call.type) + std::ldexp(1, -25);
    expected.bound[i] = bound;
  }
  return expected;
}

// --- Calls ---

enum class Role { batch, a_only, b_only, summed };  // of a loop: in all three, in A and C, in B and C, in A and B

struct Loop {
  int64_t extent;
  Role role;
};

// Strides of a dense tensor with its axes in the given order, outermost first.
std::vector<int64_t> strides_of(const std::vector<int64_t>& extents, const std::vector<size_t>& order) {
  std::vector<int64_t> strides(extents.size());
  int64_t stride = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[*axis] = stride;
    stride *= extents[*axis];
  }
  return strides;
}

std::string describe(const GemmCall& call) {
  std::string text =
      concat(name_of(call.library), " ", name_of(call.type), " m ", call.m, " n ", call.n, " k ", call.k, " a ",
             call.a_m, ",", call.a_k, " b ", call.b_k, ",", call.b_n, " c ", call.c_m, ",", call.c_n, " threads ",
             call.threads, call.threads_over_loops ? " over loops" : "", call.adds ? " adds" : "");
  for (const GemmLoop& loop : call.loops)
    text += concat(" [", loop.extent, ": ", loop.a, ",", loop.b, ",", loop.c, "]");
  return text;
}

// A call with three dense tensors. `arrange` gives the order of a tensor's axes, which are numbered: first its two axes
// of the product, in the product's order, then the loops.
template <class Arrange>
GemmCall call_of(GemmLibrary library, StoredType type, int64_t m, int64_t n, int64_t k, const std::vector<Loop>& loops,
                 const Arrange& arrange) {
  GemmCall call;
  call.library = library;
  call.type = type;
  call.m = m;
  call.n = n;
  call.k = k;
  for (const Loop& loop : loops) call.loops.push_back({loop.extent, 0, 0, 0});
  const auto place = [&](int64_t rows, int64_t columns, Role without, int64_t& row_stride, int64_t& column_stride,
                         int64_t GemmLoop::*step) {
    std::vector<int64_t> extents{rows, columns};
    std::vector<size_t> owners;
    for (size_t i = 0; i < loops.size(); ++i) {
      if (loops[i].role == without) continue;
      extents.push_back(loops[i].extent);
      owners.push_back(i);
    }
    const std::vector<int64_t> strides = strides_of(extents, arrange(extents.size()));
    row_stride = strides[0];
    column_stride = strides[1];
    for (size_t i = 0; i < owners.size(); ++i) call.loops[owners[i]].*step = strides[i + 2];
    return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
  };
  call.a_elements = place(m, k, Role::b_only, call.a_m, call.a_k, &GemmLoop::a);
  call.b_elements = place(k, n, Role::a_only, call.b_k, call.b_n, &GemmLoop::b);
  call.c_elements = place(m, n, Role::summed, call.c_m, call.c_n, &GemmLoop::c);
  return call;
}

// The threads of a BLIS product spin while they wait for each other, which takes whole scheduler slices when the cores
// are busy. So the tests have few of these products, in float32 only.
bool spins(const GemmCall& call) {
  return call.library == GemmLibrary::blis && call.threads > 1 && !call.threads_over_loops;
}
bool too_slow(const GemmCall& call) { return spins(call) && (call.type != StoredType::f32 || call.threads > 2); }

void check(const GemmCall& call, double alpha, unsigned seed) {
  SCOPED_TRACE(describe(call));
  ASSERT_EQ("", why_not(call));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Tensor a(call.type, call.a_elements, kNan);
  Tensor b(call.type, call.b_elements, kNan);
  Tensor c(call.type, call.c_elements, kNan);
  for (int64_t i = 0; i < call.a_elements; ++i) a.set(i, uniform(random));
  for (int64_t i = 0; i < call.b_elements; ++i) b.set(i, uniform(random));
  Tensor d(call.type, call.adds ? call.c_elements : 1, kNan);
  for (int64_t i = 0; call.adds && i < call.c_elements; ++i) d.set(i, 3 * uniform(random));
  // All bits set: NaNs, in scratch and in C.
  std::vector<unsigned char> scratch(static_cast<size_t>(scratch_bytes(call)), 0xFF);

  const auto gemm = Gemm::prepare(call);
  ASSERT_TRUE(gemm) << to_string(gemm.error());
  const Expected expected = expected_of(call, alpha, a, b, d);
  for (int run = 0; run < (spins(call) ? 1 : 2); ++run) {  // the second finds the first one's results in C
    gemm->run(alpha, a.data(), b.data(), c.data(), scratch.empty() ? nullptr : scratch.data(),
              call.adds ? d.data() : nullptr);
    for (size_t i = 0; i < expected.value.size(); ++i) {
      const double got = c.get(static_cast<int64_t>(i));
      if (expected.covered[i]) {
        ASSERT_LE(std::abs(got - expected.value[i]), expected.bound[i]) << "element " << i << " is " << got;
      } else {
        ASSERT_TRUE(std::isnan(got)) << "element " << i << " is outside the product, but was written";
      }
    }
    for (size_t i = 0; i < Tensor::kGuards; ++i)
      ASSERT_TRUE(std::isnan(c.get(call.c_elements + static_cast<int64_t>(i))));
  }
}

// An independent statement of the rule that the tested code implements: OpenBLAS takes a matrix with a unit stride, and
// any vector.
bool openblas_takes(const GemmCall& call) {
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
      if (too_slow(call)) continue;
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
  if (too_slow(call)) call.threads = 1;
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
    const bool takes = library() == GemmLibrary::blis || openblas_takes(call);
    ASSERT_EQ(takes, why_not(call).empty()) << describe(call) << ": " << why_not(call);
    if (!takes) continue;
    GemmCall over_loops = call;
    over_loops.threads_over_loops = true;
    if (why_not(over_loops).empty() && random() % 2 == 0) call = over_loops;
    if (spins(call)) call.threads = 1;
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
      if (too_slow(call)) continue;
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
  if (too_slow(call)) call.threads = 1;
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
                         testing::Combine(testing::Values(GemmLibrary::openblas, GemmLibrary::blis),
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

INSTANTIATE_TEST_SUITE_P(Libraries, BlasRejects, testing::Values(GemmLibrary::openblas, GemmLibrary::blis),
                         [](const auto& suite) { return std::string(name_of(suite.param)); });

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
  for (const GemmLibrary library : {GemmLibrary::openblas, GemmLibrary::blis}) {
    const BlasInfo& info = blas_info(library);
    EXPECT_EQ(info.there, info.missing.empty());
    EXPECT_EQ(info.there, !info.version.empty());
    EXPECT_EQ(info.there, !info.path.empty());
    if (!info.there) {
      EXPECT_NE(std::string::npos, info.missing.find("apt-get install lib"));
    }
  }
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
