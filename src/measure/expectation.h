// How long a way will take, before it is tried: what the byte model says, corrected by how long ways like it took.
// Test: tests/measure/expectation_test.cpp
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "candidates/candidates.h"

namespace millrace {

// Ways that are alike, by number.
struct ConfigKind {
  int family = 0;         // ways that the byte model misjudges alike
  int shape = 0;          // a narrower one; the family's number where there is none
  int timing_class = -1;  // under layouts that are alike, too; -1: nothing says which are

  int narrowest() const { return timing_class >= 0 ? timing_class : shape; }
};

class ConfigKinds {
 public:
  // `alike`: the text of timing_class.h, or nothing.
  ConfigKind of(const Candidate& candidate, const std::string& timing_class = "");

 private:
  int number_of(const std::string& text);

  std::map<std::string, int> numbers_;  // of families, shapes and texts
};

// Of measured and estimated seconds, by family or shape. Kept in order: a middle is asked for far more often than a
// ratio is added.
class Ratios {
 public:
  void add(int kind, double ratio);
  // Nothing where none is known.
  std::optional<double> middle(int kind) const;
  bool empty() const { return sorted_.empty(); }

 private:
  std::map<int, std::vector<double>> sorted_;
};

// What the model's seconds are multiplied by: as ways that are alike took so far, else those of this shape, else of
// this family; of this partition, else of any. Worked out when asked for, and kept: one is of use for as long as
// nothing new is measured. Both ratios live longer.
class Expectation {
 public:
  Expectation(const Ratios& of_partition, const Ratios& of_any) : of_partition_(of_partition), of_any_(of_any) {}

  double seconds(const ConfigKind& kind, double estimate);

 private:
  double correction(const ConfigKind& kind) const;

  const Ratios& of_partition_;
  const Ratios& of_any_;
  std::unordered_map<int, double> corrections_;  // by the narrowest kind
};

}  // namespace millrace
