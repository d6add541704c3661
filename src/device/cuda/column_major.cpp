#include "device/cuda/column_major.h"

#include <limits>
#include <numeric>
#include <optional>

#include "base/text.h"

namespace millrace {
namespace {

constexpr int64_t kTensorAlignment = 16;  // bytes; the library's algorithms need no more

struct Axis {
  int64_t extent = 1;
  int64_t stride = 0;
};

// `inner` runs along a column, `outer` along a row. nullopt: not column-major. With an extent of 1 its stride has no
// meaning; the leading dimension must still be at least a column.
std::optional<ColumnMajor> lying(const Axis& inner, const Axis& outer) {
  if (inner.extent > 1 && inner.stride != 1) return std::nullopt;
  if (outer.extent > 1 && outer.stride < inner.extent) return std::nullopt;
  ColumnMajor matrix;
  matrix.rows = inner.extent;
  matrix.columns = outer.extent;
  matrix.leading = outer.extent > 1 ? outer.stride : inner.extent;
  return matrix;
}

int64_t leading_alignment(const ColumnMajor& matrix, int64_t element) {
  return matrix.columns > 1 ? std::gcd(kTensorAlignment, matrix.leading * element) : kTensorAlignment;
}

// A vector is both row-major and column-major: picks the one that lets the library read more at once.
bool better(const std::optional<ColumnMajor>& one, const std::optional<ColumnMajor>& other, int64_t element) {
  if (!one || !other) return one.has_value();
  return leading_alignment(*one, element) > leading_alignment(*other, element);
}

std::optional<ColumnMajor> operand(const Axis& row, const Axis& column, int64_t element) {
  const std::optional<ColumnMajor> plain = lying(row, column);
  std::optional<ColumnMajor> transposed = lying(column, row);
  if (transposed) transposed->transposed = true;
  return better(transposed, plain, element) ? transposed : plain;
}

void set_batch(ColumnMajor& matrix, int64_t batch, int64_t stride, int64_t element, int64_t first = 0) {
  matrix.batch_stride = batch > 1 ? stride : 0;
  matrix.pointer_alignment = std::gcd(kTensorAlignment, std::gcd(matrix.batch_stride, first) * element);
  matrix.alignment = std::gcd(matrix.pointer_alignment, leading_alignment(matrix, element));
}

Error refused(const std::string& why) {
  return Error::make(ErrorKind::failed, concat("cuBLASLt cannot compute this product in one call: ", why));
}

// The one loop with more than one iteration; a loop with a single iteration if there is none.
Result<GemmLoop> batch_loop(const GemmCall& call) {
  GemmLoop batch;
  for (const GemmLoop& loop : call.loops) {
    if (loop.extent == 1) continue;
    if (batch.extent != 1) return refused("it has more than one loop");
    if (loop.c == 0) return refused("a loop sums products");
    batch = loop;
  }
  return batch;
}

// The index that the call's vector runs along: stride 1 there, none along the other.
Result<bool> runs_along_m(const GemmCall& call) {
  const bool m = call.v_m == 1 && (call.v_n == 0 || call.n == 1);
  const bool n = call.v_n == 1 && (call.v_m == 0 || call.m == 1);
  if (m == n) return refused("its vector does not run along m or n alone, or with a stride");
  return m;
}

// Whether the product is computed transposed, if the vector determines it: a bias runs along the rows.
Result<Done> place_vector(const GemmCall& call, const GemmLoop& loop, int64_t element, ColumnMajorProduct& product) {
  const Result<bool> along_m = runs_along_m(call);
  if (!along_m) return along_m.error();
  const bool of_a = call.vector == GemmVector::gradient_of_a;
  if (call.activation != Activation::none && call.vector != GemmVector::bias)
    return refused("an activation together with the sum of a matrix");
  if (call.vector == GemmVector::bias) {
    product.swapped = !*along_m;
    product.vector = ColumnVector::bias;
  } else {
    if (of_a != *along_m) return refused("the sum of a matrix runs along the other matrix's index");
    if (loop.extent > 1 && loop.v == 0) return refused("the products of a batch would write the same vector");
    product.vector = of_a != product.swapped ? ColumnVector::gradient_of_a : ColumnVector::gradient_of_b;
  }
  product.vector_batch_stride = loop.extent > 1 ? loop.v : 0;
  product.vector_alignment = std::gcd(kTensorAlignment, product.vector_batch_stride * element);
  return Done{};
}

// The library computes the gradient of an activation only with an auxiliary matrix and without a bias. A GELU may have
// an auxiliary matrix.
Result<Done> check_activation(const GemmCall& call) {
  const bool gradient = call.activation == Activation::gelu_gradient;
  if (call.activation == Activation::exact_gelu) return refused("a GELU that is not the tanh approximation");
  if (call.adds && call.activation != Activation::none) return refused("an activation after an added matrix");
  if (gradient && call.vector != GemmVector::none) return refused("a bias together with the gradient of an activation");
  if (gradient && !call.has_auxiliary) return refused("the gradient of an activation without its auxiliary matrix");
  if (call.has_auxiliary && !gradient && call.activation != Activation::gelu)
    return refused("an auxiliary matrix without an activation");
  return Done{};
}

}  // namespace

Result<ColumnMajorProduct> column_major(const GemmCall& call) {
  const Result<GemmLoop> loop = batch_loop(call);
  if (!loop) return loop.error();
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  for (const int64_t extent : {call.m, call.n, call.k, loop->extent})
    if (extent < 1 || extent > kLargest) return refused(concat("an extent of ", extent));
  const int64_t element = bytes_of(call.type);

  ColumnMajorProduct product;
  product.batch = loop->extent;
  const std::optional<ColumnMajor> c = lying({call.m, call.c_m}, {call.n, call.c_n});
  const std::optional<ColumnMajor> c_transposed = lying({call.n, call.c_n}, {call.m, call.c_m});
  product.swapped = better(c_transposed, c, element);
  if (const Result<Done> sound = check_activation(call); !sound) return sound.error();
  if (call.vector != GemmVector::none) {
    if (const Result<Done> placed = place_vector(call, *loop, element, product); !placed) return placed.error();
  }
  const std::optional<ColumnMajor>& result = product.swapped ? c_transposed : c;
  std::optional<ColumnMajor> first = operand({call.m, call.a_m}, {call.k, call.a_k}, element);
  std::optional<ColumnMajor> second = operand({call.k, call.b_k}, {call.n, call.b_n}, element);
  if (product.swapped) {
    first = operand({call.n, call.b_n}, {call.k, call.b_k}, element);
    second = operand({call.k, call.a_k}, {call.m, call.a_m}, element);
  }
  if (!first || !second || !result) return refused("a matrix has no unit stride, or its rows overlap");
  product.a = *first;
  product.b = *second;
  product.c = *result;
  const int64_t first_of_first = product.swapped ? call.b_first : call.a_first;
  const int64_t first_of_second = product.swapped ? call.a_first : call.b_first;
  set_batch(product.a, product.batch, product.swapped ? loop->b : loop->a, element, first_of_first);
  set_batch(product.b, product.batch, product.swapped ? loop->a : loop->b, element, first_of_second);
  set_batch(product.c, product.batch, loop->c, element);
  if (call.has_auxiliary && (product.c.leading % kAuxiliaryStep != 0 || product.c.batch_stride % kAuxiliaryStep != 0))
    return refused(concat("the column stride of its auxiliary matrix is not a multiple of ", kAuxiliaryStep));
  return product;
}

}  // namespace millrace
