// Measurements of deep programs, with random times: many layers of partitions with residual connections, and long
// chains. Too large to try every selection of them.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "measure/measurements.h"

namespace millrace {

struct DeepOptions {
  int partitions = 241;
  int layer = 10;       // partitions of a layer; its first tensor is read again in its middle and at its end
  int layouts = 6;      // of each tensor
  int candidates = 60;  // of each partition
  int long_skips = 0;   // tensors that are read once more, anywhere later
};

class DeepMeasurements {
 public:
  DeepMeasurements(unsigned seed, const DeepOptions& options) : random_(seed), options_(options) {}

  Measurements make() {
    const std::vector<std::vector<int>> skips = long_skips();
    add_tensor();
    for (int p = 0; p < options_.partitions; ++p) add_partition(p, skips[static_cast<size_t>(p)]);
    made_.tensors.front().pinned = made_.tensors.back().pinned = 0;
    return std::move(made_);
  }

 private:
  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  double between(double least, double most) { return least + (most - least) * below(1'000'000) * 1e-6; }

  std::vector<std::vector<int>> long_skips() {
    std::vector<std::vector<int>> reads(static_cast<size_t>(options_.partitions));
    for (int k = 0; k < options_.long_skips; ++k) {
      const int reader = below(options_.partitions);
      reads[static_cast<size_t>(reader)].push_back(below(reader + 1));
    }
    return reads;
  }

  // Converting costs about as much as a slow candidate loses.
  void add_tensor() {
    const int number = static_cast<int>(made_.tensors.size());
    MeasuredTensor tensor;
    tensor.name = concat("t", number);
    for (int l = 0; l < options_.layouts; ++l) tensor.layouts.push_back(concat("L", l));
    made_.tensors.push_back(std::move(tensor));
    for (int from = 0; from < options_.layouts; ++from) {
      for (int to = 0; to < options_.layouts; ++to) {
        if (from != to) made_.conversions.push_back({number, from, to, between(0.2, 1)});
      }
    }
  }

  // Partition p reads tensor p and writes tensor p + 1.
  void add_partition(int p, const std::vector<int>& skips) {
    add_tensor();
    MeasuredPartition partition;
    partition.name = concat("p", p);
    partition.reads = {p};
    const int first = p - p % options_.layer;
    if (p % options_.layer == options_.layer / 2 || p % options_.layer == options_.layer - 1)
      partition.reads.push_back(first);
    for (const int skip : skips) {
      if (std::find(partition.reads.begin(), partition.reads.end(), skip) == partition.reads.end())
        partition.reads.push_back(skip);
    }
    partition.writes = {p + 1};
    for (int k = 0; k < options_.candidates; ++k) {
      MeasuredCandidate candidate;
      candidate.candidate = concat("c", k);
      for (size_t slot = 0; slot <= partition.reads.size(); ++slot)
        candidate.layouts.push_back(below(options_.layouts));
      candidate.seconds = candidate.low = candidate.high = between(1, 2);
      partition.candidates.push_back(std::move(candidate));
    }
    made_.partitions.push_back(std::move(partition));
    made_.choice_points.push_back({{{p}}});
  }

  std::mt19937 random_;
  const DeepOptions options_;
  Measurements made_;
};

// Depends only on the seed and the options, on every machine.
inline Measurements deep_measurements(unsigned seed, const DeepOptions& options = {}) {
  return DeepMeasurements(seed, options).make();
}

// Partitions in a row, without residual connections.
inline Measurements chain_measurements(unsigned seed, int partitions) {
  DeepOptions options;
  options.partitions = partitions;
  options.layer = partitions + 1;
  return deep_measurements(seed, options);
}

}  // namespace millrace
