// Measurements of a choice point whose alternatives are multiplied: a chain of stages, each computed by two partitions
// or by one, and a partition that computes all of them. Attention that absorbs the operators before it has such a
// choice point.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "measure/measurements.h"

namespace millrace {

struct MultipliedOptions {
  int stages = 6;             // there are 2 to this power plus one alternatives
  int layouts = 12;           // of each tensor
  int candidates = 500;       // of each partition
  double converted = 1;       // share of the conversions that exist
  double most_seconds = 0.2;  // of a conversion; candidates take 1 to 2
};

class MultipliedMeasurements {
 public:
  MultipliedMeasurements(unsigned seed, const MultipliedOptions& options) : random_(seed), options_(options) {}

  Measurements make() {
    const int first = tensor();
    int from = first;
    made_.choice_points = {{{{}}}};
    for (int k = 0; k < options_.stages; ++k) from = add_stage(from);
    made_.choice_points[0].alternatives.push_back({add_partition({first}, from)});
    made_.choice_points.push_back({{{add_partition({from}, tensor())}}});
    made_.tensors[0].pinned = 0;
    return std::move(made_);
  }

 private:
  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  double below_one() { return below(1'000'000) * 1e-6; }

  int tensor() {
    const int number = static_cast<int>(made_.tensors.size());
    MeasuredTensor tensor;
    tensor.name = concat("t", number);
    for (int l = 0; l < options_.layouts; ++l) tensor.layouts.push_back(concat("L", l));
    made_.tensors.push_back(std::move(tensor));
    for (int from = 0; from < options_.layouts; ++from) {
      for (int to = 0; to < options_.layouts; ++to) {
        if (from != to && below_one() < options_.converted)
          made_.conversions.push_back({number, from, to, (0.5 + below_one() / 2) * options_.most_seconds});
      }
    }
    return number;
  }

  // Two partitions with a tensor between them, or one without.
  int add_stage(int from) {
    const int between = tensor();
    const int to = tensor();
    const int weight = tensor();
    const std::vector<int> both = {add_partition({from, weight}, between), add_partition({between}, to)};
    const std::vector<int> one = {add_partition({from, weight}, to)};
    std::vector<std::vector<int>> multiplied;
    for (const std::vector<int>* ways : {&both, &one}) {
      for (std::vector<int> alternative : made_.choice_points[0].alternatives) {
        alternative.insert(alternative.end(), ways->begin(), ways->end());
        multiplied.push_back(std::move(alternative));
      }
    }
    made_.choice_points[0].alternatives = std::move(multiplied);
    return to;
  }

  int add_partition(const std::vector<int>& reads, int writes) {
    MeasuredPartition partition;
    partition.name = concat("p", made_.partitions.size());
    partition.reads = reads;
    partition.writes = {writes};
    for (int k = 0; k < options_.candidates; ++k) {
      MeasuredCandidate candidate;
      candidate.candidate = concat("c", k);
      for (size_t slot = 0; slot <= reads.size(); ++slot) candidate.layouts.push_back(below(options_.layouts));
      candidate.seconds = candidate.low = candidate.high = 1 + below_one();
      partition.candidates.push_back(std::move(candidate));
    }
    made_.partitions.push_back(std::move(partition));
    return static_cast<int>(made_.partitions.size()) - 1;
  }

  std::mt19937 random_;
  const MultipliedOptions options_;
  Measurements made_;
};

// Depends only on the seed and the options, on every machine.
inline Measurements multiplied_measurements(unsigned seed, const MultipliedOptions& options = {}) {
  return MultipliedMeasurements(seed, options).make();
}

}  // namespace millrace
