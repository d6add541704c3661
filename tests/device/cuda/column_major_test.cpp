#include "device/cuda/column_major.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/text.h"

namespace millrace {
namespace {

// A call with row-major or column-major matrices, with `padding` elements between rows or columns.
GemmCall call_of(int64_t m, int64_t n, int64_t k, int order, int64_t padding) {
  GemmCall call;
  call.library = GemmLibrary::cublaslt;
  call.type = StoredType::f16;
  call.m = m;
  call.n = n;
  call.k = k;
  const auto lie = [&](int bit, int64_t rows, int64_t columns, int64_t& row, int64_t& column) {
    const bool by_rows = ((order >> bit) & 1) != 0;
    row = by_rows ? columns + padding : 1;
    column = by_rows ? 1 : rows + padding;
  };
  lie(0, m, k, call.a_m, call.a_k);
  lie(1, k, n, call.b_k, call.b_n);
  lie(2, m, n, call.c_m, call.c_n);
  return call;
}

std::vector<double> numbers(size_t count, int seed) {
  std::vector<double> values(count);
  for (size_t k = 0; k < count; ++k) values[k] = static_cast<double>((k * 7 + static_cast<size_t>(seed) * 13) % 11) - 5;
  return values;
}

// The product as the call defines it.
std::vector<double> by_call(const GemmCall& call, const std::vector<double>& a, const std::vector<double>& b,
                            size_t room) {
  std::vector<double> c(room, -99);
  const GemmLoop loop = call.loops.empty() ? GemmLoop{} : call.loops.front();
  for (int64_t step = 0; step < loop.extent; ++step)
    for (int64_t i = 0; i < call.m; ++i)
      for (int64_t j = 0; j < call.n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < call.k; ++l)
          sum += a.at(static_cast<size_t>(step * loop.a + i * call.a_m + l * call.a_k)) *
                 b.at(static_cast<size_t>(step * loop.b + l * call.b_k + j * call.b_n));
        c.at(static_cast<size_t>(step * loop.c + i * call.c_m + j * call.c_n)) = sum;
      }
  return c;
}

// The product as cuBLASLt defines it by its descriptors.
std::vector<double> by_library(const ColumnMajorProduct& product, std::vector<double> a, std::vector<double> b,
                               size_t room) {
  if (product.swapped) std::swap(a, b);
  for (const ColumnMajor* matrix : {&product.a, &product.b, &product.c}) EXPECT_GE(matrix->leading, matrix->rows);
  EXPECT_FALSE(product.c.transposed);
  const int64_t k = product.a.transposed ? product.a.rows : product.a.columns;
  EXPECT_EQ(product.a.transposed ? product.a.columns : product.a.rows, product.c.rows);
  EXPECT_EQ(product.b.transposed ? product.b.columns : product.b.rows, k);
  EXPECT_EQ(product.b.transposed ? product.b.rows : product.b.columns, product.c.columns);
  const auto at = [](const std::vector<double>& values, const ColumnMajor& matrix, int64_t step, int64_t row,
                     int64_t column) {
    if (matrix.transposed) std::swap(row, column);
    return values.at(static_cast<size_t>(step * matrix.batch_stride + row + column * matrix.leading));
  };
  std::vector<double> c(room, -99);
  for (int64_t step = 0; step < product.batch; ++step)
    for (int64_t i = 0; i < product.c.rows; ++i)
      for (int64_t j = 0; j < product.c.columns; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) sum += at(a, product.a, step, i, l) * at(b, product.b, step, l, j);
        c.at(static_cast<size_t>(step * product.c.batch_stride + i + j * product.c.leading)) = sum;
      }
  return c;
}

void compare(const GemmCall& call, const std::string& where) {
  const Result<ColumnMajorProduct> product = column_major(call);
  ASSERT_TRUE(product) << where << to_string(product.error());
  constexpr size_t kRoom = 4096;
  const std::vector<double> a = numbers(kRoom, 1);
  const std::vector<double> b = numbers(kRoom, 2);
  EXPECT_EQ(by_library(*product, a, b, kRoom), by_call(call, a, b, kRoom)) << where;
}

TEST(ColumnMajor, EveryOrderAndExtentMeansTheSameProduct) {
  for (int order = 0; order < 8; ++order)
    for (const int64_t m : {1, 2, 5})
      for (const int64_t n : {1, 3, 4})
        for (const int64_t k : {1, 2, 6})
          for (const int64_t padding : {0, 3})
            compare(call_of(m, n, k, order, padding), concat(order, " ", m, " ", n, " ", k, " ", padding));
}

TEST(ColumnMajor, ABatchWithStridesBroadcastsAndInterleaves) {
  for (int order = 0; order < 8; ++order) {
    GemmCall call = call_of(3, 4, 5, order, 0);
    call.loops = {{7, 15, 20, 12}};
    compare(call, concat("dense ", order));
    call.loops = {{7, 0, 20, 12}};
    compare(call, concat("one A ", order));
    call.loops = {{7, 15, 0, 12}, {1, 9, 9, 0}};
    compare(call, concat("one B ", order));
    // The loop's index is the innermost: rows of 5 steps each.
    call = call_of(3, 4, 5, order, 20);
    call.loops = {{4, 6, 6, 6}};
    compare(call, concat("inside ", order));
  }
}

TEST(ColumnMajor, StridesOfExtentsOfOneSayNothing) {
  GemmCall call = call_of(1, 4, 6, 0, 0);
  call.a_m = 0;
  call.c_m = 77;
  compare(call, "m");
  call = call_of(4, 1, 6, 7, 0);
  call.b_n = 5;
  call.c_n = 0;
  compare(call, "n");
  call = call_of(4, 3, 1, 5, 0);
  call.a_k = 0;
  call.b_k = 0;
  compare(call, "k");
}

TEST(ColumnMajor, AVectorUsesTheFastestOrder) {
  const Result<ColumnMajorProduct> product = column_major(call_of(1, 64, 128, 7, 0));
  ASSERT_TRUE(product);
  for (const ColumnMajor* matrix : {&product->a, &product->b, &product->c}) EXPECT_EQ(matrix->alignment, 16);
}

TEST(ColumnMajor, AlignmentIsThatOfTheWorstAddress) {
  GemmCall call = call_of(8, 8, 8, 0, 0);  // columns of 16 bytes
  EXPECT_EQ(column_major(call)->a.alignment, 16);
  call.loops = {{3, 65, 0, 68}};
  EXPECT_EQ(column_major(call)->a.pointer_alignment, 2);
  EXPECT_EQ(column_major(call)->b.pointer_alignment, 16);
  EXPECT_EQ(column_major(call)->c.pointer_alignment, 8);
  call.loops.clear();
  call.a_k = 10;
  EXPECT_EQ(column_major(call)->a.pointer_alignment, 16);
  EXPECT_EQ(column_major(call)->a.alignment, 4);
}

TEST(ColumnMajor, UnsupportedCallsAreRefusedWithAReason) {
  const auto why = [](const GemmCall& call) {
    const Result<ColumnMajorProduct> product = column_major(call);
    return product ? "" : to_string(product.error());
  };
  GemmCall call = call_of(4, 4, 4, 0, 0);
  call.loops = {{2, 16, 16, 16}, {2, 32, 32, 32}};
  EXPECT_NE(why(call).find("more than one loop"), std::string::npos);
  call.loops = {{2, 16, 16, 0}};
  EXPECT_NE(why(call).find("sums"), std::string::npos);
  call = call_of(4, 4, 4, 0, 0);
  call.a_m = 2;
  EXPECT_NE(why(call).find("no unit stride"), std::string::npos);
  call = call_of(4, 4, 4, 0, 0);
  call.a_k = 3;  // columns overlap
  EXPECT_NE(why(call).find("overlap"), std::string::npos);
  call = call_of(4, 4, 4, 0, 0);
  call.c_n = 0;
  EXPECT_NE(why(call), "");
  call = call_of(4, 4, 4, 0, 0);
  call.k = int64_t{1} << 31;
  EXPECT_NE(why(call).find("extent"), std::string::npos);
}

// --- Vectors ---

GemmCall with_vector(GemmCall call, GemmVector vector, bool along_m) {
  call.vector = vector;
  call.v_m = along_m ? 1 : 0;
  call.v_n = along_m ? 0 : 1;
  return call;
}

TEST(ColumnMajorVector, ABiasRunsAlongTheRows) {
  for (const bool along_m : {false, true}) {
    for (int order = 0; order < 8; ++order) {
      const bool by_rows = ((order >> 2) & 1) != 0;  // elements of a row of C are adjacent
      const Result<ColumnMajorProduct> product =
          column_major(with_vector(call_of(5, 4, 6, order, 0), GemmVector::bias, along_m));
      ASSERT_EQ(static_cast<bool>(product), by_rows != along_m) << order << " " << along_m;
      if (!product) continue;
      EXPECT_EQ(product->vector, ColumnVector::bias);
      EXPECT_EQ(product->swapped, !along_m);
      EXPECT_EQ(product->c.rows, along_m ? 5 : 4);
      EXPECT_EQ(product->vector_alignment, 16);
      compare(with_vector(call_of(5, 4, 6, order, 0), GemmVector::bias, along_m), concat(order, " ", along_m));
    }
    // A vector C is both row-major and column-major; the order of the bias decides.
    const GemmCall call =
        with_vector(along_m ? call_of(64, 1, 8, 0, 0) : call_of(1, 64, 8, 7, 0), GemmVector::bias, along_m);
    const Result<ColumnMajorProduct> product = column_major(call);
    ASSERT_TRUE(product);
    EXPECT_EQ(product->c.rows, 64);
  }
}

TEST(ColumnMajorVector, SumsTheMatrixThatTheLibraryExpects) {
  for (int order = 0; order < 8; ++order) {
    for (const bool of_a : {false, true}) {
      const GemmVector vector = of_a ? GemmVector::gradient_of_a : GemmVector::gradient_of_b;
      const Result<ColumnMajorProduct> product = column_major(with_vector(call_of(5, 4, 6, order, 0), vector, of_a));
      ASSERT_TRUE(product);
      EXPECT_EQ(product->vector == ColumnVector::gradient_of_a, of_a != product->swapped);
      EXPECT_FALSE(column_major(with_vector(call_of(5, 4, 6, order, 0), vector, !of_a)));
    }
  }
}

TEST(ColumnMajorVector, OfABatch) {
  GemmCall call = with_vector(call_of(8, 4, 6, 0, 0), GemmVector::bias, true);
  call.loops = {{3, 48, 24, 32, 8}};
  EXPECT_EQ(column_major(call)->vector_batch_stride, 8);
  EXPECT_EQ(column_major(call)->vector_alignment, 16);
  call.loops = {{3, 48, 24, 32, 6}};
  EXPECT_EQ(column_major(call)->vector_alignment, 4);
  call.loops = {{3, 48, 24, 32, 0}};
  EXPECT_EQ(column_major(call)->vector_batch_stride, 0) << "all batches share one vector";
  call.vector = GemmVector::gradient_of_a;
  EXPECT_FALSE(column_major(call)) << "all batches would write one vector";
  call.loops = {{3, 48, 24, 32, 8}};
  EXPECT_TRUE(column_major(call));
}

TEST(ColumnMajorVector, AnOperandThatIsNotAVectorIsRefused) {
  GemmCall call = with_vector(call_of(5, 4, 6, 0, 0), GemmVector::bias, true);
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 0}, {1, 1}, {2, 0}, {-1, 0}, {1, 3}, {0, 5}}) {
    call.v_m = m;
    call.v_n = n;
    EXPECT_FALSE(column_major(call)) << m << " " << n;
  }
  call = with_vector(call_of(5, 4, 6, 0, 0), GemmVector::gradient_of_a, true);
  call.activation = Activation::relu;
  EXPECT_FALSE(column_major(call)) << "the library has no such epilogue";
}

// --- Auxiliary matrices ---

TEST(ColumnMajorAuxiliary, HasTheResultsOrderWithColumnsOfMultiplesOfEight) {
  GemmCall call = call_of(16, 24, 4, 0, 0);
  call.activation = Activation::gelu;
  call.has_auxiliary = true;
  for (const int order : {0, 4}) {
    call.c_m = order == 0 ? 1 : 24;
    call.c_n = order == 0 ? 16 : 1;
    ASSERT_TRUE(column_major(call));
    EXPECT_EQ(column_major(call)->c.leading, order == 0 ? 16 : 24);
  }
  call.loops = {{3, 64, 96, 400}};
  EXPECT_EQ(column_major(call)->c.batch_stride, 400);
  call.loops = {{3, 64, 96, 404}};
  EXPECT_FALSE(column_major(call)) << "the batch stride is not a multiple of 8";
  call = call_of(12, 24, 4, 0, 0);
  call.activation = Activation::gelu;
  EXPECT_TRUE(column_major(call)) << "without the auxiliary matrix";
  call.has_auxiliary = true;
  const Result<ColumnMajorProduct> odd = column_major(call);
  ASSERT_FALSE(odd);
  EXPECT_NE(to_string(odd.error()).find("multiple of 8"), std::string::npos);
}

TEST(ColumnMajorAuxiliary, UnsupportedEpiloguesAreRefused) {
  GemmCall call = call_of(16, 24, 4, 0, 0);
  call.activation = Activation::gelu_gradient;
  EXPECT_FALSE(column_major(call)) << "without its matrix";
  call.has_auxiliary = true;
  EXPECT_TRUE(column_major(call));
  EXPECT_FALSE(column_major(with_vector(call, GemmVector::bias, true))) << "with a bias";
  call.adds = true;
  EXPECT_FALSE(column_major(call)) << "after an addition";
  call.adds = false;
  for (const Activation activation : {Activation::none, Activation::relu}) {
    call.activation = activation;
    EXPECT_FALSE(column_major(call)) << "an auxiliary matrix that nothing uses";
  }
  call.activation = Activation::gelu;
  EXPECT_TRUE(column_major(with_vector(call, GemmVector::bias, true)));
  EXPECT_FALSE(column_major(with_vector(call, GemmVector::gradient_of_a, true))) << "with the sum of a matrix";
}

}  // namespace
}  // namespace millrace
