// Large contractions in blocks, on all cores: the same sums as the interpreter's loops, in another order. A bound of
// Bounded holds for any order. Tests: tests/reference/contraction_test.cpp compares both.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "ir/graph.h"
#include "reference/bounded.h"
#include "reference/interpreter.h"
#include "reference/operands.h"
#include "reference/panels.h"

namespace millrace {

// The offsets of all points of some indices, in each of a contraction's two inputs and its output.
struct OffsetTable {
  std::vector<Offsets<3>> offsets = {{0, 0, 0}};

  void add(int64_t extent, const Offsets<3>& strides);
  int64_t size() const { return static_cast<int64_t>(offsets.size()); }
  const Offsets<3>& operator[](int64_t k) const { return offsets[static_cast<size_t>(k)]; }
};

// The indices of a contraction by what they do in a matrix product.
struct ProductTables {
  OffsetTable batches;  // in both inputs
  OffsetTable rows;     // not in the second input
  OffsetTable columns;  // in the second input only
  OffsetTable inner;    // summed

  ProductTables(const Graph& graph, const Operator& op);
};

// Whether blocks are faster than loops: there must be many points, and rows, columns and terms to fill the blocks.
bool is_large_product(const Graph& graph, const Operator& op);

// The sum for a result: a list of products of a plane of the first input and a plane of the second.
template <class Scalar>
struct ProductPlanes;

template <>
struct ProductPlanes<double> {
  static constexpr int64_t kPlanes = 1;
  static constexpr int64_t kSums = 1;
  static constexpr int64_t sum_of(int64_t) { return 0; }
  static bool is_exact(double) { return true; }
  static constexpr bool is_needed(int64_t, bool, bool) { return true; }
  static double first(int64_t, double x) { return x; }
  static double second(int64_t, double x) { return x; }
  static bool is_moderate(double x) { return std::abs(x) < 0x1p300; }  // no product or sum overflows
  static double result(const double* sums, int64_t) { return sums[0]; }
};

// Σ ab, Σ |a||b|, and Σ (|a| Δb + Δa (|b| + Δb)), the propagated error.
template <int kDigits>
struct ProductPlanes<Bounded<kDigits>> {
  using Number = Bounded<kDigits>;
  static constexpr int64_t kPlanes = 4;
  static constexpr int64_t kSums = 3;
  static constexpr int64_t sum_of(int64_t plane) { return std::min<int64_t>(plane, 2); }
  static bool is_exact(const Number& x) { return x.error == 0; }
  static constexpr bool is_needed(int64_t plane, bool first_exact, bool second_exact) {
    return plane < 2 || !(plane == 2 ? second_exact : first_exact);
  }
  static double first(int64_t plane, const Number& x) {
    return plane == 0 ? x.value : plane == 3 ? x.error : std::abs(x.value);
  }
  static double second(int64_t plane, const Number& x) {
    switch (plane) {
      case 0: return x.value;
      case 1: return std::abs(x.value);
      case 2: return x.error;
      default: return std::abs(x.value) + x.error;
    }
  }
  static bool is_moderate(const Number& x) { return std::abs(x.value) < 0x1p300 && x.error < 0x1p300; }
  static Number result(const double* sums, int64_t terms) {
    return Number::sum_of_products(sums[0], sums[1], sums[2], static_cast<double>(terms));
  }
};

// One contraction without its scale factors.
template <class Scalar>
class BlockedContraction {
 public:
  BlockedContraction(const Graph& graph, const Operator& op, Values<Scalar>& values)
      : tables_(graph, op),
        first_(values[op.inputs[0].tensor.at()]),
        second_(values[op.inputs[1].tensor.at()]),
        out_(values[op.outputs[0].tensor.at()]),
        begin_{first_element(graph, op.inputs[0]), first_element(graph, op.inputs[1]), 0} {
    const bool first_exact = is_exact(first_);
    const bool second_exact = is_exact(second_);
    for (int64_t plane = 0; plane < Planes::kPlanes; ++plane) {
      if (Planes::is_needed(plane, first_exact, second_exact)) planes_.push_back(plane);
    }
  }

  // Whether all values are finite and no sum overflows: only then does the order of a sum not matter.
  bool is_moderate() const {
    const auto moderate = [](const Scalar& x) { return Planes::is_moderate(x); };
    return std::all_of(first_.begin(), first_.end(), moderate) && std::all_of(second_.begin(), second_.end(), moderate);
  }

  void run() const {
    const int64_t row_blocks = blocks(tables_.rows.size(), kRows);
    const int64_t column_blocks = blocks(tables_.columns.size(), kColumns);
    in_parallel(tables_.batches.size() * row_blocks * column_blocks, 1, [&](int64_t begin, int64_t end) {
      Memory memory;
      for (int64_t item = begin; item < end; ++item) {
        const Offsets<3> batch = moved(begin_, tables_.batches[item / (row_blocks * column_blocks)]);
        run_block(batch, item / column_blocks % row_blocks * kRows, item % column_blocks * kColumns, memory);
      }
    });
  }

 private:
  using Planes = ProductPlanes<Scalar>;

  static constexpr int64_t kRows = 16 * kPanelRows;
  static constexpr int64_t kColumns = 16 * kPanelColumns;
  static constexpr int64_t kDepth = 128;
  static constexpr int64_t kPanelSums = kPanelRows * kPanelColumns;

  // The buffers of one thread. Panels follow each other: `depth` groups of kPanelRows or kPanelColumns values each.
  struct Memory {
    std::vector<double> first = std::vector<double>(static_cast<size_t>(kRows * kDepth));
    std::vector<double> second = std::vector<double>(static_cast<size_t>(kColumns * kDepth));
    std::vector<double> sums = std::vector<double>(static_cast<size_t>(kRows * kColumns * Planes::kSums));
  };

  static bool is_exact(const std::vector<Scalar>& input) {
    return std::all_of(input.begin(), input.end(), [](const Scalar& x) { return Planes::is_exact(x); });
  }

  static int64_t blocks(int64_t count, int64_t size) { return (count + size - 1) / size; }
  static Offsets<3> moved(const Offsets<3>& a, const Offsets<3>& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }

  void run_block(const Offsets<3>& batch, int64_t row, int64_t column, Memory& memory) const {
    const int64_t rows = std::min(kRows, tables_.rows.size() - row);
    const int64_t columns = std::min(kColumns, tables_.columns.size() - column);
    std::fill(memory.sums.begin(), memory.sums.end(), 0.0);
    for (int64_t k = 0; k < tables_.inner.size(); k += kDepth) {
      const int64_t depth = std::min(kDepth, tables_.inner.size() - k);
      for (const int64_t plane : planes_) {
        pack<kPanelRows, 0>(batch, tables_.rows, row, rows, k, depth, plane, memory.first);
        pack<kPanelColumns, 1>(batch, tables_.columns, column, columns, k, depth, plane, memory.second);
        multiply(blocks(rows, kPanelRows), blocks(columns, kPanelColumns), depth, Planes::sum_of(plane), memory);
      }
    }
    store(batch, row, rows, column, columns, memory);
  }

  // Writes a plane of one input as panels of kWidth positions, zero beyond the last position.
  template <int64_t kWidth, size_t kInput>
  void pack(const Offsets<3>& batch, const OffsetTable& positions, int64_t position, int64_t count, int64_t k,
            int64_t depth, int64_t plane, std::vector<double>& into) const {
    const Scalar* const from = (kInput == 0 ? first_ : second_).data() + batch[kInput];
    double* to = into.data();
    for (int64_t panel = 0; panel < count; panel += kWidth) {
      for (int64_t j = k; j < k + depth; ++j) {
        const Scalar* const row = from + tables_.inner[j][kInput];
        for (int64_t i = panel; i < panel + kWidth; ++i)
          *to++ = i < count ? plane_of<kInput>(plane, row[positions[position + i][kInput]]) : 0;
      }
    }
  }

  template <size_t kInput>
  static double plane_of(int64_t plane, const Scalar& x) {
    return kInput == 0 ? Planes::first(plane, x) : Planes::second(plane, x);
  }

  static void multiply(int64_t row_panels, int64_t column_panels, int64_t depth, int64_t sum, Memory& memory) {
    for (int64_t i = 0; i < row_panels; ++i) {
      for (int64_t j = 0; j < column_panels; ++j)
        multiply_panels(memory.first.data() + i * depth * kPanelRows, memory.second.data() + j * depth * kPanelColumns,
                        depth, memory.sums.data() + sums_of(i, j, sum));
    }
  }

  static int64_t sums_of(int64_t row_panel, int64_t column_panel, int64_t sum) {
    return ((row_panel * (kColumns / kPanelColumns) + column_panel) * Planes::kSums + sum) * kPanelSums;
  }

  void store(const Offsets<3>& batch, int64_t row, int64_t rows, int64_t column, int64_t columns,
             const Memory& memory) const {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t within = i % kPanelRows * kPanelColumns + j % kPanelColumns;
        std::array<double, Planes::kSums> sums{};
        for (size_t sum = 0; sum < sums.size(); ++sum)
          sums[sum] = memory.sums[static_cast<size_t>(
              sums_of(i / kPanelRows, j / kPanelColumns, static_cast<int64_t>(sum)) + within)];
        const int64_t at = batch[2] + tables_.rows[row + i][2] + tables_.columns[column + j][2];
        out_[static_cast<size_t>(at)] = Planes::result(sums.data(), tables_.inner.size());
      }
    }
  }

  ProductTables tables_;
  const std::vector<Scalar>& first_;
  const std::vector<Scalar>& second_;
  std::vector<Scalar>& out_;
  Offsets<3> begin_;
  std::vector<int64_t> planes_;  // those that are not zero
};

}  // namespace millrace
