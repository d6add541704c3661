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
  // The number of a family, a shape or a timing class, by its text.
  int number_of(const std::string& text);

 private:
  std::map<std::string, int> numbers_;  // of families, shapes and timing classes
};

// What a measured candidate says about similar ones of any partition and program: how its time compares with the
// estimate. Stored with the measurement.
struct Lesson {
  std::string family;
  std::string shape;
  double estimate = 0;
};
Lesson lesson_of(const Candidate& candidate);
// "estimate 1.25e-05; rows 2; rows 2 8 32 128 0 0", and its parser.
std::string print_lesson(const Lesson& lesson);
std::optional<Lesson> parse_lesson(const std::string& text);

// Ratios of measured to estimated seconds, by kind. Kept sorted: medians are read far more often than ratios are added.
class Ratios {
 public:
  void add(int kind, double ratio);
  // Adds many at once.
  void add_all(const std::map<int, std::vector<double>>& by_kind);
  // Nothing if no ratio is known.
  std::optional<double> median(int kind) const;
  bool empty() const { return sorted_.empty(); }

 private:
  std::map<int, std::vector<double>> sorted_;
};

// Corrects the model's seconds by the median ratio of the candidate's timing class, else of its shape, else of its
// family within this partition class. If the class has no measurement of its family, uses the family's ratio in all
// classes, and what earlier runs, also of other programs, say about its shape. Caches the corrections, so it is valid
// until something new is measured. All ratios must outlive it.
class Expectation {
 public:
  Expectation(const Ratios& partition_ratios, const Ratios& all_ratios, const Ratios* earlier_ratios = nullptr)
      : partition_ratios_(partition_ratios), all_ratios_(all_ratios), earlier_ratios_(earlier_ratios) {}

  double seconds(const ConfigKind& kind, double estimate);

 private:
  double correction(const ConfigKind& kind) const;
  double correction_elsewhere(const ConfigKind& kind) const;

  const Ratios& partition_ratios_;
  const Ratios& all_ratios_;
  const Ratios* earlier_ratios_;                 // null: unknown
  std::unordered_map<int, double> corrections_;  // by narrowest kind
};

}  // namespace millrace
