// Violin plots: how the times of all measured candidates of a partition are spread. Test: tests/report/violin_test.cpp
#pragma once

#include <string>
#include <vector>

#include "report/html/document.h"
#include "report/html/svg.h"

namespace millrace {

// The estimated density of `samples` at `count` places from the least to the largest, the highest being 1: a Gaussian
// kernel with Silverman's bandwidth. Empty for fewer than four samples or where all are equal.
std::vector<double> density_of(const std::vector<double>& samples, size_t count);

// The times of one family of ways: one library's, or all kernels'.
struct ViolinSide {
  std::string name;
  std::string classes;  // of the style
  std::vector<double> seconds;
};

struct Violin {
  std::string name;
  std::vector<ViolinSide> sides;  // one, drawn on both sides, or two, drawn against each other
  double selected = 0;            // seconds; 0: the partition is not in the plan
  double heuristic = 0;           // the fastest that a library chose by itself; 0: it has no choice
  std::string selected_candidate;
  std::string fastest_candidate;
  std::string reason;  // why the selected one is not the fastest; empty: it is
};

// One row a violin, on one axis: times the fastest of the partition.
std::string draw_violins(const std::vector<Violin>& violins, const std::string& label);

}  // namespace millrace
