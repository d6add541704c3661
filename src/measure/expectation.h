// How long a candidate will take before it is tried: the byte model's estimate, corrected by the measured times of
// similar candidates. Test: tests/measure/expectation_test.cpp
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "candidates/candidates.h"

namespace millrace {

// The groups of similar candidates that a candidate is in, by number, from wide to narrow.
struct ConfigKind {
  int family = 0;         // the config family: the byte model misjudges its members by about the same factor
  int shape = 0;          // part of a family; the family's number if it has no parts
  int timing_class = -1;  // layouts are equivalent too; -1: unknown

  int narrowest() const { return timing_class >= 0 ? timing_class : shape; }
};

class ConfigKinds {
 public:
  // `timing_class`: the key of timing_class.h, or empty.
  ConfigKind kind_of(const Candidate& candidate, const std::string& timing_class = "");

 private:
  int number_of(const std::string& text);

  std::map<std::string, int> numbers_;  // of families, shapes and timing classes
};

// Ratios of measured to estimated seconds, by kind. Kept sorted: medians are read far more often than ratios are added.
class Ratios {
 public:
  void add(int kind, double ratio);
  // Nothing if no ratio is known.
  std::optional<double> median(int kind) const;
  bool empty() const { return sorted_.empty(); }

 private:
  std::map<int, std::vector<double>> sorted_;
};

// Corrects the model's seconds by the median ratio of the candidate's timing class, else of its shape, else of its
// family within this partition class, else of its family in all. Caches the corrections, so it is valid until
// something new is measured. Both ratios must outlive it.
class Expectation {
 public:
  Expectation(const Ratios& partition_ratios, const Ratios& all_ratios)
      : partition_ratios_(partition_ratios), all_ratios_(all_ratios) {}

  double seconds(const ConfigKind& kind, double estimate);

 private:
  double correction(const ConfigKind& kind) const;

  const Ratios& partition_ratios_;
  const Ratios& all_ratios_;
  std::unordered_map<int, double> corrections_;  // by narrowest kind
};

}  // namespace millrace
