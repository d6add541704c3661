// A lower bound on the cost of every selection, and the prices that prove it. A price is what a partition pays for the
// layout in which it touches a tensor. Given prices, each partition and each tensor is minimised separately, and the
// sum of their minima is the bound. Test: tests/select/select_test.cpp
//
// A partition pays price(touch, layout), and the tensor receives it, so prices never change the cost of a selection. A
// tensor whose first layout is `base` makes every reader pay a share of each conversion that it needs; the shares of
// readers that can occur together never exceed the conversion's cost. Prices and shares are improved by block
// coordinate ascent, one partition and one tensor at a time, which never lowers the bound.
#pragma once

#include <cstdint>
#include <vector>

#include "select/problem.h"

namespace millrace {

class DualBound {
 public:
  explicit DualBound(const Problem& problem);

  // Improves until ten sweeps raise the bound by less than this fraction of it, or until this time on the clock of
  // base/clock.h.
  void improve(double rise, double until);

  double bound() const;
  // For each candidate of a partition: the bound of the selections that contain it.
  std::vector<double> bounds_with(size_t partition) const;
  // Where the bound is infinite: the tensors whose layouts cannot be reconciled.
  std::vector<size_t> stuck() const;
  // The least that a partition pays, prices included.
  double partition_minimum(size_t partition) const { return partition_minima_[partition]; }
  // The least that a tensor costs, less the prices it receives, while nothing about it is decided.
  double tensor_minimum(size_t tensor) const;
  // The least that a touch adds to its tensor's cost when the tensor's first layout is `base`.
  double touch_minimum(size_t tensor, size_t touch, size_t base) const { return touches_[tensor][touch].minima[base]; }
  // The cost that a touch adds when `layout` needs no conversion.
  double touch_free(size_t tensor, size_t touch, size_t layout) const {
    const TouchPrices& prices = touches_[tensor][touch];
    return prices.used[layout] ? -prices.price[layout] : kInfinity;
  }
  // The pin's own share of the conversion to the pinned layout; 0 if there is nothing to convert.
  double pin_minimum(size_t tensor, size_t base) const {
    return pin_shares_[tensor].empty() ? 0.0 : pin_shares_[tensor][base];
  }
  // Whether `base` can be the tensor's first layout: some writer writes it, or the caller gives it.
  bool allows(size_t tensor, size_t base) const { return bases_[tensor][base]; }

 private:
  struct TouchPrices {
    std::vector<double> price;   // by layout; infinite if no remaining candidate uses it
    std::vector<double> share;   // by base and layout; only of readers
    std::vector<double> minima;  // by base
    std::vector<bool> used;      // by layout: whether some remaining candidate uses it
    std::vector<size_t> uses;    // the layouts that are used
  };

  // The least that a choice point's partitions pay in an alternative, without one of them.
  double alternative_minimum(size_t choice_point, size_t alternative, size_t without) const;
  double choice_point_minimum(size_t choice_point) const;
  void split_conversions(size_t tensor);
  void refresh_touch(size_t tensor, size_t touch);
  void refresh_partition(size_t partition);
  double alternative_value(size_t tensor, const ChoicePointTouch& choice_point, size_t alternative, size_t base,
                           size_t without) const;
  // The tensor's cost by base, over all choice points except this one.
  std::vector<double> without_choice_point(size_t tensor, size_t choice_point) const;
  void update_partition(size_t partition);
  void pull(size_t partition, size_t slot);
  void push(size_t partition);
  void update_shares(size_t tensor);
  void share_again(size_t tensor, size_t base, size_t layout);

  const Problem& problem_;
  std::vector<std::vector<TouchPrices>> touches_;  // by tensor and touch
  std::vector<std::vector<size_t>> touch_of_;      // by partition and slot: position in the tensor's touches
  std::vector<std::vector<double>> pin_shares_;    // by tensor and base
  std::vector<std::vector<bool>> bases_;
  // By partition: the layouts of its candidates in one list, candidate by candidate, and their seconds plus prices.
  std::vector<std::vector<uint32_t>> layouts_;
  std::vector<std::vector<double>> reduced_;
  std::vector<double> partition_minima_;
};

}  // namespace millrace
