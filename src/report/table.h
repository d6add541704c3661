// Aligned columns of text: names to the left, numbers to the right.
// Test: tests/golden/golden_test.cpp
#pragma once

#include <string>
#include <vector>

namespace millrace {

enum class Align { left, right };

class Table {
 public:
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}

  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // A line outside the columns.
  void line(std::string text) { rows_.push_back({std::move(text)}); }

  // At most `width` columns if possible: the first column is shortened in its middle.
  std::string text(size_t width) const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// A unit that keeps the largest number of a column readable: Gflop or kflop.
struct Unit {
  double divisor = 1;
  std::string prefix;
};
Unit unit_for(double largest);

}  // namespace millrace
