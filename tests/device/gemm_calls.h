// Matrix products for tests: tensors of any type, calls with any layouts and loops, and a plain triple loop to compare
// with. Users: tests/device/blas_test.cpp, tests/device/onednn_test.cpp
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "device/cpu/blas.h"

namespace millrace::gemm_calls {

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

inline const double kNan = std::numeric_limits<double>::quiet_NaN();

// --- The oracle: plain loops, and how far a product may be from them ---

inline double unit_roundoff(StoredType type) {
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

// Calls visit(c, v), offsets, for every result and its bias.
template <class Visit>
void visit_biases(const GemmCall& call, size_t loop, int64_t c, int64_t v, const Visit& visit) {
  if (loop < call.loops.size()) {
    const GemmLoop& at = call.loops[loop];
    for (int64_t i = 0; i < at.extent; ++i) visit_biases(call, loop + 1, c + i * at.c, v + i * at.v, visit);
    return;
  }
  for (int64_t i = 0; i < call.m; ++i) {
    for (int64_t j = 0; j < call.n; ++j) visit(c + i * call.c_m + j * call.c_n, v + i * call.v_m + j * call.v_n);
  }
}

inline double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::relu: return x > 0 ? x : 0;
    case Activation::gelu: return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Activation::exact_gelu: return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    default: return x;
  }
}

// A sum of K products in any order is off by at most K·u·Σ|a||b| to first order (Higham, ch. 3); scaling by alpha and
// adding the partial sums of the loops are a few roundings more. The oracle's own double sum has the same bound. Twice
// that covers the higher orders, as K·u is far below 1. Half-precision results are rounded once more. `d`: the added
// tensor if the call adds, one more term.
inline Expected expected_of(const GemmCall& call, double alpha, const Tensor& a, const Tensor& b, const Tensor& d,
                            const Tensor& v) {
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
  if (call.vector == GemmVector::bias) {
    visit_biases(call, 0, 0, 0, [&](int64_t at_c, int64_t at_v) {
      expected.value[static_cast<size_t>(at_c)] += v.get(at_v);
      expected.bound[static_cast<size_t>(at_c)] += std::abs(v.get(at_v));
    });
  }
  double terms = static_cast<double>(call.k);
  double sums = 1;
  for (const GemmLoop& loop : call.loops) sums *= loop.c == 0 ? static_cast<double>(loop.extent) : 1;
  terms = terms * sums + sums + 4;
  const bool half = call.type == StoredType::f16 || call.type == StoredType::bf16;
  const double u = unit_roundoff(call.type == StoredType::f64 ? StoredType::f64 : StoredType::f32);
  for (size_t i = 0; i < elements; ++i) {
    double bound = 2 * terms * u * expected.bound[i];
    // No function here has a slope above 1.13, and oneDNN's are off by a few units of float32.
    if (call.activation != Activation::none) {
      bound = 1.13 * bound + 16 * u * (1 + std::abs(expected.value[i]));
      expected.value[i] = activated(call.activation, expected.value[i]);
    }
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
inline std::vector<int64_t> strides_of(const std::vector<int64_t>& extents, const std::vector<size_t>& order) {
  std::vector<int64_t> strides(extents.size());
  int64_t stride = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[*axis] = stride;
    stride *= extents[*axis];
  }
  return strides;
}

inline std::string describe(const GemmCall& call) {
  std::string text =
      concat(name_of(call.library), " ", name_of(call.type), " m ", call.m, " n ", call.n, " k ", call.k, " a ",
             call.a_m, ",", call.a_k, " b ", call.b_k, ",", call.b_n, " c ", call.c_m, ",", call.c_n, " threads ",
             call.threads, call.threads_over_loops ? " over loops" : "", call.adds ? " adds" : "",
             call.vector == GemmVector::bias ? " bias" : "", " activation ", static_cast<int>(call.activation));
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

inline void check(const GemmCall& call, double alpha, unsigned seed) {
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
  Tensor v(call.type, call.v_elements, kNan);
  for (int64_t i = 0; i < call.v_elements; ++i) v.set(i, 2 * uniform(random));
  // Scratch and C start with all bits set: NaNs.
  std::vector<unsigned char> scratch(static_cast<size_t>(scratch_bytes(call)), 0xFF);

  const auto gemm = Gemm::prepare(call);
  ASSERT_TRUE(gemm) << to_string(gemm.error());
  const Expected expected = expected_of(call, alpha, a, b, d, v);
  for (int run = 0; run < 2; ++run) {  // the second finds the first one's results in C
    gemm->run(alpha, a.data(), b.data(), c.data(), scratch.empty() ? nullptr : scratch.data(),
              call.adds ? d.data() : nullptr, call.vector == GemmVector::bias ? v.data() : nullptr);
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

}  // namespace millrace::gemm_calls
