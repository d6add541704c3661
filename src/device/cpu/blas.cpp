#include "device/cpu/blas.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "base/text.h"
#include "device/cpu/gemm_blocks.h"
#include "device/cpu/gemm_matrix.h"
#include "device/cpu/half_floats.h"
#include "device/cpu/openmp_settings.h"

namespace millrace {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 56;  // their total size in bytes still fits into 64 bits
constexpr int64_t kScratchAlignment = 16;            // in float32s: a cache line
constexpr int64_t kCopiedAtOnce = int64_t{1} << 18;  // bytes

bool has_cblas(GemmLibrary library) { return library == GemmLibrary::openblas || library == GemmLibrary::mkl; }
bool is_half(StoredType type) { return type == StoredType::f16 || type == StoredType::bf16; }

// --- Strides ---

struct Axis {
  int64_t extent;
  int64_t stride;
};

// The offset of the last element; none if it does not fit or a stride is negative.
std::optional<int64_t> reach_of(const std::vector<Axis>& axes) {
  int64_t reach = 0;
  for (const Axis& axis : axes) {
    if (axis.stride < 0) return std::nullopt;
    const auto length = checked_multiply(axis.extent - 1, axis.stride);
    const auto sum = length ? checked_add(reach, *length) : std::nullopt;
    if (!sum) return std::nullopt;
    reach = *sum;
  }
  return reach;
}

// Whether different indices are different elements: sorted by stride, each stride must step over all smaller axes.
// Layouts of dense tensors satisfy this. Only for axes whose reach is known to fit.
bool distinct(std::vector<Axis> axes) {
  std::sort(axes.begin(), axes.end(), [](const Axis& x, const Axis& y) { return x.stride < y.stride; });
  int64_t reach = 0;
  for (const Axis& axis : axes) {
    if (axis.extent == 1) continue;
    if (axis.stride <= reach) return false;
    reach += (axis.extent - 1) * axis.stride;
  }
  return true;
}

// BLIS ends the process on strides that it does not accept, so this must find all of them.
std::string why_not_matrix(const GemmMatrix& matrix, GemmLibrary library) {
  const std::string strides = concat(matrix.name, " has the strides ", matrix.row_stride, " and ", matrix.column_stride,
                                     " over ", matrix.rows, " × ", matrix.columns, "; ", name_of(library), " needs ");
  if (matrix.inner_stride() < 1) return concat(strides, "positive ones");
  if (library != GemmLibrary::blis && matrix.inner_stride() != 1) return concat(strides, "a unit stride");
  const auto inner_length = checked_multiply(matrix.inner_extent(), matrix.inner_stride());
  if (!inner_length || matrix.outer_stride() < *inner_length) {
    return concat(strides, "the larger stride to step over all elements of the smaller");
  }
  if (has_cblas(library) &&
      std::max({matrix.rows, matrix.columns, matrix.outer_stride()}) > std::numeric_limits<int>::max()) {
    return concat(strides, "strides that fit into 32 bits");
  }
  return "";
}

// --- Checks of a call ---

std::string why_not_numbers(const GemmCall& call) {
  if (call.type != StoredType::f64 && call.type != StoredType::f32 && !is_half(call.type)) {
    return concat("no products of ", name_of(call.type), ": only F64, F32, F16 and BF16");
  }
  int64_t smallest = std::min({call.m, call.n, call.k});
  for (const GemmLoop& loop : call.loops) smallest = std::min(smallest, loop.extent);
  if (smallest < 1) return concat("an extent of ", smallest, ": each must be at least 1");
  if (call.threads < 1) return concat(call.threads, " threads: at least 1 is needed");
  return "";
}

std::string why_not_within(std::string_view tensor, const std::vector<Axis>& axes, int64_t elements) {
  const auto reach = reach_of(axes);
  if (!reach) return concat("a stride of ", tensor, " is negative or too large");
  if (*reach >= elements || elements > kMostElements) {
    return concat("the product reaches element ", *reach, " of ", tensor, ", which has ", elements);
  }
  return "";
}

std::string why_not_tensors(const GemmCall& call) {
  std::vector<Axis> a{{call.m, call.a_m}, {call.k, call.a_k}};
  std::vector<Axis> b{{call.k, call.b_k}, {call.n, call.b_n}};
  std::vector<Axis> c{{call.m, call.c_m}, {call.n, call.c_n}};
  for (const GemmLoop& loop : call.loops) {
    a.push_back({loop.extent, loop.a});
    b.push_back({loop.extent, loop.b});
    if (!sums(loop)) c.push_back({loop.extent, loop.c});
  }
  if (auto reason = why_not_within("A", a, call.a_elements - call.a_first); !reason.empty()) return reason;
  if (auto reason = why_not_within("B", b, call.b_elements - call.b_first); !reason.empty()) return reason;
  if (auto reason = why_not_within("C", c, call.c_elements); !reason.empty()) return reason;
  if (!distinct(c)) return "two results would be written to the same element of C";

  // Distinct and within C, so that the count is at most C's. The float32 copy of C is rounded as a whole, and D is
  // copied as a whole.
  int64_t covered = 1;
  for (const Axis& axis : c) covered *= axis.extent;
  const bool copies = is_half(call.type) && call.library != GemmLibrary::onednn;
  if ((copies || call.adds) && covered != call.c_elements) {
    return concat("the product covers ", covered, " of C's ", call.c_elements, " elements; ",
                  call.adds ? "where it adds" : concat("of ", name_of(call.type)), " it must be all");
  }
  return "";
}

std::string why_not_epilogue(const GemmCall& call) {
  if (call.vector == GemmVector::none && call.activation == Activation::none) return "";
  if (call.library != GemmLibrary::onednn) return "it supports no epilogues";
  if (call.vector == GemmVector::gradient_of_a || call.vector == GemmVector::gradient_of_b || call.has_auxiliary ||
      call.activation == Activation::gelu_gradient)
    return "its epilogues compute no gradients";
  if (call.activation != Activation::none && call.adds) return "it adds no matrix after an activation";
  if (call.vector == GemmVector::none) return "";
  const bool along_m = row_major(matrices_of(call)).swapped;
  if (call.v_m != (along_m ? 1 : 0) || call.v_n != (along_m ? 0 : 1))
    return "the bias does not run along the rows of C, or has no unit stride";
  std::vector<Axis> v{{call.m, call.v_m}, {call.n, call.v_n}};
  for (const GemmLoop& loop : call.loops) v.push_back({loop.extent, loop.v});
  return why_not_within("the bias", v, call.v_elements);
}

std::string why_not_by_onednn(const GemmCall& call) {
  if (onednn_implementation(call.type).empty())
    return concat("it has no fast products of ", name_of(call.type), " for this processor");
  const auto adds_up = [](const GemmLoop& loop) { return sums(loop) && loop.extent > 1; };
  return std::any_of(call.loops.begin(), call.loops.end(), adds_up) ? "it does not sum several products" : "";
}

std::string why_not_threads(const GemmCall& call) {
  if (!call.threads_over_loops) return "";
  const auto shared = [](const GemmLoop& loop) { return !sums(loop) && loop.extent > 1; };
  if (std::any_of(call.loops.begin(), call.loops.end(), shared)) return "";
  return "the threads have no loop to share: no loop has its own part of C per iteration";
}

// --- Running ---

// Null if the library multiplies this type as float32.
CblasHalfGemm half_gemm(GemmLibrary library, StoredType type) {
  if (library != GemmLibrary::mkl) return nullptr;
  return type == StoredType::bf16 ? mkl().bf16_gemm : mkl().f16_gemm;
}

// The number of floats, rounded up to whole cache lines, so that the next ones are aligned.
int64_t aligned(int64_t floats) { return (floats + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment; }

}  // namespace

std::string why_not(const GemmCall& call) {
  if (auto reason = why_not_epilogue(call); !reason.empty()) return reason;
  if (auto reason = why_not_numbers(call); !reason.empty()) return reason;
  if (auto reason = why_not_tensors(call); !reason.empty()) return reason;
  if (auto reason = why_not_threads(call); !reason.empty()) return reason;
  const GemmMatrices matrices = matrices_of(call);
  for (const GemmMatrix& matrix : {matrices.a, matrices.b, matrices.c}) {
    if (auto reason = why_not_matrix(matrix, call.library); !reason.empty()) return reason;
  }
  if (!blas_info(call.library).missing.empty()) return blas_info(call.library).missing;
  return call.library == GemmLibrary::onednn ? why_not_by_onednn(call) : "";
}

int64_t scratch_bytes(const GemmCall& call) {
  if (call.library == GemmLibrary::onednn) {
    const Result<OneDnnGemm> gemm = OneDnnGemm::prepare(call);
    return gemm ? gemm->scratch_bytes() : 0;  // prepare() reports the error
  }
  if (!is_half(call.type)) return 0;
  const bool directly = half_gemm(call.library, call.type) != nullptr;
  const int64_t copies = directly ? 0 : aligned(call.a_elements) + aligned(call.b_elements);
  const int64_t floats = copies + call.c_elements;
  return floats * static_cast<int64_t>(sizeof(float));
}

std::string abilities_of(GemmLibrary library) {
  std::vector<std::string> types;
  if (library != GemmLibrary::onednn) {
    for (const auto& [type, name] : {std::pair(StoredType::f16, "float16"), std::pair(StoredType::bf16, "bfloat16")})
      types.push_back(concat(name, half_gemm(library, type) == nullptr ? " as float32" : ""));
    return concat("float64, float32, ", join(types, ", "));
  }
  for (const auto& [type, name] : {std::pair(StoredType::f32, "float32"), std::pair(StoredType::f16, "float16"),
                                   std::pair(StoredType::bf16, "bfloat16")}) {
    const std::string& by = onednn_implementation(type);
    types.push_back(by.empty() ? concat("no ", name) : concat(name, " by ", by));
  }
  return concat(join(types, ", "), "; epilogues: biases, ReLU, GELU");
}

Result<Gemm> Gemm::prepare(const GemmCall& call) {
  const std::string reason = why_not(call);
  if (reason.empty() && call.threads > omp_get_thread_limit())  // the libraries would wait for threads that never start
    return Error::make(ErrorKind::bad_input,
                       concat("a matrix product by ", call.threads, " threads: the variable OMP_THREAD_LIMIT allows ",
                              omp_get_thread_limit()),
                       "unset it, or make a plan for fewer threads with --threads");
  if (reason.empty() && call.library == GemmLibrary::onednn) {
    Result<OneDnnGemm> onednn = OneDnnGemm::prepare(call);
    if (!onednn) return onednn.error();
    Gemm gemm(call);
    gemm.onednn_ = std::move(*onednn);
    return gemm;
  }
  if (reason.empty()) return Gemm(call);
  const bool there = blas_info(call.library).there;
  return Error::make(there ? ErrorKind::bad_input : ErrorKind::unavailable,
                     concat("matrix product by ", name_of(call.library), ": ", reason));
}

Gemm::Gemm(const GemmCall& call)
    : library_(call.library),
      type_(call.type),
      threads_(call.threads),
      threads_over_loops_(call.threads_over_loops),
      adds_(call.adds),
      m_(call.m),
      n_(call.n),
      k_(call.k),
      a_first_(call.a_first),
      b_first_(call.b_first),
      a_elements_(call.a_elements),
      b_elements_(call.b_elements),
      c_elements_(call.c_elements) {
  if (library_ == GemmLibrary::openblas) cblas_ = openblas();
  if (library_ == GemmLibrary::mkl) cblas_ = mkl();
  if (library_ == GemmLibrary::blis) blis_ = blis();
  const GemmMatrices given = matrices_of(call);
  const GemmMatrices matrices = has_cblas(library_) ? row_major(given) : given;
  swapped_ = matrices.swapped;
  if (swapped_) std::swap(m_, n_);
  const auto placed = [](const GemmMatrix& matrix) {
    return Placed{matrix.row_stride, matrix.column_stride, matrix.by_rows() ? kCblasNoTranspose : kCblasTranspose};
  };
  a_ = placed(matrices.a);
  b_ = placed(matrices.b);
  c_ = placed(matrices.c);
  loops_ = split_loops(call, swapped_);
}

void Gemm::set_threads(int threads) const {
  omp_set_num_threads(threads);  // OpenBLAS follows it
  if (library_ == GemmLibrary::blis) blis_.set_num_threads(threads);
}

// The threads of a BLIS product spin while they wait for each other, many times a product. On busy cores each of these
// waits takes a slice of the scheduler. So our threads multiply a block of C each, and wait once, at the end.
bool Gemm::threads_over_blocks() const { return library_ == GemmLibrary::blis && threads_ > 1 && !threads_over_loops_; }

// MKL's threads are set around its call alone: a program's own calls of MKL keep theirs.
template <class Function, class Element, class Real>
void Gemm::product_by_cblas(Function gemm, Real alpha, const Element* a, const Element* b, Real beta, Real* c) const {
  const bool sets = library_ == GemmLibrary::mkl;
  const int before = sets ? cblas_.set_num_threads_local(threads_over_loops_ ? 1 : threads_) : 0;
  gemm(kCblasRowMajor, a_.transpose, b_.transpose, static_cast<int>(m_), static_cast<int>(n_), static_cast<int>(k_),
       alpha, a, a_.leading(), b, b_.leading(), beta, c, c_.leading());
  if (sets) cblas_.set_num_threads_local(before);
}

template <class Element, class Real>
void Gemm::product(const GemmBlock& block, Real alpha, const Element* a, const Element* b, Real beta, Real* c) const {
  if constexpr (sizeof(Element) == sizeof(uint16_t)) {
    product_by_cblas(half_gemm(library_, type_), alpha, a, b, beta, c);
  } else if (has_cblas(library_)) {
    if constexpr (sizeof(Real) == sizeof(double)) {
      product_by_cblas(cblas_.dgemm, alpha, a, b, beta, c);
    } else {
      product_by_cblas(cblas_.sgemm, alpha, a, b, beta, c);
    }
  } else {
    BlisGemm<Real> gemm = nullptr;
    if constexpr (sizeof(Real) == sizeof(double)) {
      gemm = blis_.dgemm;
    } else {
      gemm = blis_.sgemm;
    }
    gemm(kBlisNoTranspose, kBlisNoTranspose, block.rows, block.columns, k_, &alpha,
         const_cast<Real*>(a) + block.row * a_.row_stride, a_.row_stride, a_.column_stride,
         const_cast<Real*>(b) + block.column * b_.column_stride, b_.row_stride, b_.column_stride, &beta,
         c + block.row * c_.row_stride + block.column * c_.column_stride, c_.row_stride, c_.column_stride);
  }
}

template <class Element, class Real>
void Gemm::multiply_at(int64_t outer, const GemmBlock& block, Real alpha, const Element* a, const Element* b,
                       Real* c) const {
  const GemmOffsets start = loops_.outer.at(outer);
  for (int64_t step = 0; step < loops_.summing.steps(); ++step) {
    const GemmOffsets inner = loops_.summing.at(step);
    const bool onto = adds_ || step > 0;  // C already contains D, or the sum so far
    product(block, alpha, a + start.a + inner.a, b + start.b + inner.b, static_cast<Real>(onto ? 1 : 0), c + start.c);
  }
}

template <class Element, class Real>
void Gemm::multiply(Real alpha, const Element* a, const Element* b, Real* c) const {
  a += a_first_;
  b += b_first_;
  if (swapped_) std::swap(a, b);
  const GemmBlock all{0, 0, m_, n_};
  if (threads_over_loops_) {
#pragma omp parallel num_threads(threads_)
    {
      set_threads(1);  // applies within this region
#pragma omp for schedule(static)
      for (int64_t outer = 0; outer < loops_.outer.steps(); ++outer) multiply_at(outer, all, alpha, a, b, c);
    }
  } else if (threads_over_blocks()) {
    const GemmBlocks blocks(m_, n_, threads_);
#pragma omp parallel num_threads(threads_)
    {
      set_threads(1);
      // One block for each thread; if OpenMP starts fewer threads, some compute several.
#pragma omp for schedule(static)
      for (int block = 0; block < threads_; ++block) multiply_in(blocks.of(block), alpha, a, b, c);
    }
  } else {
    set_threads(threads_);
    multiply_in(all, alpha, a, b, c);
  }
}

template <class Element, class Real>
void Gemm::multiply_in(const GemmBlock& block, Real alpha, const Element* a, const Element* b, Real* c) const {
  if (block.rows == 0 || block.columns == 0) return;
  for (int64_t outer = 0; outer < loops_.outer.steps(); ++outer) multiply_at(outer, block, alpha, a, b, c);
}

// All elements of C.
void Gemm::copy(const void* from, void* to) const {
  const int64_t bytes = c_elements_ * bytes_of(type_);
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
#pragma omp parallel for num_threads(threads_) if (bytes >= 2 * kCopiedAtOnce) schedule(static)
  for (int64_t at = 0; at < bytes; at += kCopiedAtOnce)
    std::memcpy(target + at, source + at, static_cast<size_t>(std::min(kCopiedAtOnce, bytes - at)));
}

void Gemm::run(double alpha, const void* a, const void* b, void* c, void* scratch, const void* added,
               const void* bias) const {
  const OpenMpSettings settings;
  if (onednn_) return onednn_->run(static_cast<float>(alpha), a, b, c, scratch, added, bias);
  if (adds_ && !is_half(type_)) copy(added, c);
  if (type_ == StoredType::f64) {
    multiply(alpha, static_cast<const double*>(a), static_cast<const double*>(b), static_cast<double*>(c));
    return;
  }
  const auto narrow_alpha = static_cast<float>(alpha);
  if (type_ == StoredType::f32) {
    multiply(narrow_alpha, static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(c));
    return;
  }
  multiply_halves(narrow_alpha, a, b, c, static_cast<float*>(scratch), added);
}

void Gemm::multiply_halves(float alpha, const void* a, const void* b, void* c, float* scratch,
                           const void* added) const {
  const bool directly = half_gemm(library_, type_) != nullptr;
  float* const wide_a = scratch;
  float* const wide_b = wide_a + aligned(a_elements_);
  float* const wide_c = directly ? scratch : wide_b + aligned(b_elements_);
  if (adds_) widen(type_, added, wide_c, c_elements_, threads_);
  if (directly) {
    multiply(alpha, static_cast<const uint16_t*>(a), static_cast<const uint16_t*>(b), wide_c);
  } else {
    widen(type_, a, wide_a, a_elements_, threads_);
    widen(type_, b, wide_b, b_elements_, threads_);
    multiply<float>(alpha, wide_a, wide_b, wide_c);
  }
  narrow(type_, wide_c, c, c_elements_, threads_);
}

Result<Done> run_gemm(const GemmCall& call, double alpha, const void* a, const void* b, void* c, void* scratch,
                      const void* added, const void* bias) {
  auto gemm = Gemm::prepare(call);
  if (!gemm) return gemm.error();
  gemm->run(alpha, a, b, c, scratch, added, bias);
  return Done{};
}

}  // namespace millrace
