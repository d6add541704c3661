// Random measurements, small enough to try every selection of them.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "measure/measurements.h"

namespace millrace {

class RandomMeasurements {
 public:
  explicit RandomMeasurements(unsigned seed) : random_(seed), coarse_(below(2) == 0), share_of_conversions_(below(4)) {}

  Measurements make() {
    const int given = 1 + below(3);
    for (int k = 0; k < given; ++k) readable_.push_back(new_tensor());
    const int choice_points = 1 + below(4);
    for (int k = 0; k < choice_points && made_.partitions.size() < 6; ++k) add_choice_point();
    for (MeasuredTensor& tensor : made_.tensors) {
      if (below(4) == 0 && !absentable(tensor)) tensor.pinned = below(static_cast<int>(tensor.layouts.size()));
    }
    add_conversions();
    return std::move(made_);
  }

 private:
  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  // Coarse times tie often.
  double seconds(int largest) { return coarse_ ? below(largest) : below(1'000'000) * 1e-6 * largest; }

  int new_tensor() {
    MeasuredTensor tensor;
    tensor.name = concat("t", made_.tensors.size());
    const int layouts = 1 + below(4);
    for (int k = 0; k < layouts; ++k) tensor.layouts.push_back(concat("L", k));
    made_.tensors.push_back(std::move(tensor));
    return static_cast<int>(made_.tensors.size()) - 1;
  }

  bool absentable(const MeasuredTensor& tensor) const {
    return std::find(only_somewhere_.begin(), only_somewhere_.end(), tensor.name) != only_somewhere_.end();
  }

  std::vector<int> some_readable() {
    std::vector<int> reads;
    const int count = 1 + below(3);
    for (int k = 0; k < count; ++k) {
      // Usually the newest, which makes chains.
      const int back = below(2) == 0 ? 0 : below(static_cast<int>(readable_.size()));
      const int tensor = readable_[readable_.size() - 1 - static_cast<size_t>(back)];
      if (std::find(reads.begin(), reads.end(), tensor) == reads.end()) reads.push_back(tensor);
    }
    return reads;
  }

  int add_partition(std::vector<int> reads, std::vector<int> writes) {
    MeasuredPartition partition;
    partition.name = concat("p", made_.partitions.size());
    partition.backward = backward_;
    partition.reads = std::move(reads);
    partition.writes = std::move(writes);
    const int candidates = below(40) == 0 ? 0 : 1 + below(5);
    for (int k = 0; k < candidates; ++k) {
      MeasuredCandidate candidate;
      candidate.candidate = concat("c", k);
      for (const auto* list : {&partition.reads, &partition.writes}) {
        for (const int tensor : *list)
          candidate.layouts.push_back(
              below(static_cast<int>(made_.tensors[static_cast<size_t>(tensor)].layouts.size())));
      }
      candidate.seconds = candidate.low = candidate.high = seconds(10);
      partition.candidates.push_back(std::move(candidate));
    }
    made_.partitions.push_back(std::move(partition));
    return static_cast<int>(made_.partitions.size()) - 1;
  }

  void add_choice_point() {
    backward_ = backward_ || below(3) == 0;
    const std::vector<int> reads = some_readable();
    std::vector<int> writes = {new_tensor()};
    if (below(4) == 0) writes.push_back(new_tensor());
    MeasuredChoicePoint choice_point;
    const int kind = below(5);
    if (kind < 3) {
      choice_point.alternatives.push_back({add_partition(reads, writes)});
    } else {
      const int inner = new_tensor();
      only_somewhere_.push_back(made_.tensors[static_cast<size_t>(inner)].name);
      std::vector<int> second = some_readable();
      second.push_back(inner);
      const int first_partition = add_partition(reads, {inner});
      const int other_first = kind == 4 ? add_partition(some_readable(), {inner}) : -1;
      const int second_partition = add_partition(second, writes);
      const int fused = add_partition(below(2) == 0 ? reads : some_readable(), writes);
      choice_point.alternatives = {{fused}, {first_partition, second_partition}};
      if (below(2) == 0) std::swap(choice_point.alternatives[0], choice_point.alternatives[1]);
      // A third alternative shares a partition with another.
      if (kind == 4) choice_point.alternatives.push_back({other_first, second_partition});
      // Other partitions may read a tensor that only one alternative writes.
      if (below(8) == 0) readable_.push_back(inner);
    }
    if (below(6) == 0 && kind < 3) choice_point.alternatives.push_back({add_partition(reads, writes)});
    made_.choice_points.push_back(std::move(choice_point));
    readable_.insert(readable_.end(), writes.begin(), writes.end());
  }

  void add_conversions() {
    for (size_t t = 0; t < made_.tensors.size(); ++t) {
      const int layouts = static_cast<int>(made_.tensors[t].layouts.size());
      for (int from = 0; from < layouts; ++from) {
        for (int to = 0; to < layouts; ++to) {
          if (from != to && below(4) < share_of_conversions_)
            made_.conversions.push_back({static_cast<int>(t), from, to, seconds(4)});
        }
      }
    }
  }

  std::mt19937 random_;
  bool coarse_;
  int share_of_conversions_;
  bool backward_ = false;
  Measurements made_;
  std::vector<int> readable_;
  std::vector<std::string> only_somewhere_;
};

// Depends only on the seed, on every machine. Chains, diamonds, tensors with several readers, choice points of up to
// three alternatives, tensors that only one alternative has, pins, missing conversions; some have no valid selection.
inline Measurements random_measurements(unsigned seed) { return RandomMeasurements(seed).make(); }

}  // namespace millrace
