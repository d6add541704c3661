// Violin plots: the distribution of the times of all measured candidates of a partition. Test:
// tests/report/violin_test.cpp
#pragma once

#include <string>
#include <vector>

#include "report/html/document.h"
#include "report/html/svg.h"

namespace millrace {

// The estimated density of `samples` at `count` points from the smallest to the largest, scaled to a maximum of 1: a
// Gaussian kernel with Silverman's bandwidth. Empty for fewer than four samples or if all are equal.
std::vector<double> density_of(const std::vector<double>& samples, size_t count);

// Fewer candidates are drawn as single points: they say nothing about a distribution.
inline constexpr size_t kFewestOfAShape = 8;

// The times of one kind of implementation: one library's, or all generated kernels'.
struct ViolinSide {
  std::string name;
  std::string classes;  // of the style
  std::vector<double> seconds;
};

struct Violin {
  std::string name;
  std::vector<ViolinSide> sides;  // one, drawn on both sides, or two, one on each side
  double selected = 0;            // seconds; 0: the partition is not in the plan
  double heuristic = 0;           // the fastest that a library's heuristic chose; 0: it has no heuristic
  std::string selected_candidate;
  std::string fastest_candidate;
  std::string reason;  // why the selected one is not the fastest; empty: it is
};

// One row per violin, on one axis: multiples of the partition's fastest time.
std::string draw_violins(const std::vector<Violin>& violins, const std::string& label);

}  // namespace millrace
