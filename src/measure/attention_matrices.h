// Matrices of one head, with bounds on errors, for the expected values of an attention.
// Test: tests/measure/attention_reference_data_test.cpp
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// A row-major matrix.
struct Matrix {
  Matrix(int64_t row_count, int64_t column_count)
      : rows(row_count), columns(column_count), values(static_cast<size_t>(row_count * column_count), 0.0) {}

  double* row(int64_t number) { return values.data() + number * columns; }
  const double* row(int64_t number) const { return values.data() + number * columns; }
  double& at(int64_t row_number, int64_t column) { return values[as_index(row_number * columns + column)]; }
  double at(int64_t row_number, int64_t column) const { return values[as_index(row_number * columns + column)]; }

  int64_t rows;
  int64_t columns;
  std::vector<double> values;
};

// Expected values, and how far a kernel's values may differ.
struct Sums {
  Sums(int64_t rows, int64_t columns) : value(rows, columns), tolerance(rows, columns) {}

  Matrix value;
  Matrix tolerance;
};

// One factor of a sum of products, and its error.
struct Factor {
  double value = 0;
  double error = 0;
};

// row += factor · x
inline void add(const Factor& factor, const double* x, int64_t row, Sums& to) {
  double* const value = to.value.row(row);
  double* const tolerance = to.tolerance.row(row);
  for (int64_t c = 0; c < to.value.columns; ++c) {
    value[c] += factor.value * x[c];
    tolerance[c] += factor.error * std::abs(x[c]);
  }
}

// The same, where x has errors too.
inline void add(const Factor& factor, const Sums& x, int64_t row_of_x, int64_t row, Sums& to) {
  add(factor, x.value.row(row_of_x), row, to);
  double* const tolerance = to.tolerance.row(row);
  const double* const errors = x.tolerance.row(row_of_x);
  for (int64_t c = 0; c < to.value.columns; ++c) tolerance[c] += (std::abs(factor.value) + factor.error) * errors[c];
}

inline Matrix transposed(const Matrix& matrix) {
  Matrix made(matrix.columns, matrix.rows);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t c = 0; c < matrix.columns; ++c) made.at(c, r) = matrix.at(r, c);
  }
  return made;
}

// The dot products of a row with all rows of a matrix, given its transpose.
inline void multiply(const double* row, const Matrix& by, double* products) {
  std::fill(products, products + by.columns, 0.0);
  for (int64_t r = 0; r < by.rows; ++r) {
    const double factor = row[r];
    const double* const other = by.row(r);
    for (int64_t c = 0; c < by.columns; ++c) products[c] += factor * other[c];
  }
}

inline double sum_of_magnitudes(const double* row, int64_t count, const std::vector<double>& weights) {
  double sum = 0;
  for (int64_t c = 0; c < count; ++c) sum += std::abs(row[c]) * weights[as_index(c)];
  return sum;
}

// The largest magnitude of each column.
inline std::vector<double> largest_magnitudes(const Matrix& matrix) {
  std::vector<double> largest(static_cast<size_t>(matrix.columns), 0.0);
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t c = 0; c < matrix.columns; ++c)
      largest[as_index(c)] = std::max(largest[as_index(c)], std::abs(matrix.at(r, c)));
  }
  return largest;
}

// An operand's row-major strides.
struct Strides {
  std::vector<int64_t> batch;
  int64_t row = 0;
  int64_t column = 0;
};

inline int64_t stride_along(const Graph& graph, TensorId tensor, int axis) {
  const std::vector<DimId>& dims = graph.tensor(tensor).dims;
  int64_t stride = axis < 0 ? 0 : 1;
  for (size_t k = dims.size(); axis >= 0 && k-- > static_cast<size_t>(axis) + 1;) stride *= graph.extent(dims[k]);
  return stride;
}

inline Strides strides_of(const Graph& graph, TensorId tensor, const std::vector<int>& batch, int row, int column) {
  Strides made;
  for (const int axis : batch) made.batch.push_back(stride_along(graph, tensor, axis));
  made.row = stride_along(graph, tensor, row);
  made.column = stride_along(graph, tensor, column);
  return made;
}

}  // namespace millrace
