// A lower bound on every selection, and prices that prove it: what each partition pays for the layout in which it
// touches each tensor. Partitions and tensors are then minimised apart, and the sum of their minima is the bound.
//
// A partition pays price(touch, layout) to the tensor, which gets it back: whatever the prices are, a selection costs
// the same. A tensor that lies in `base` first has every reader pay a share of each conversion that it makes; the
// shares of readers that can occur together never add up to more than the conversion. The prices and shares are
// improved by block coordinate ascent, one partition and one tensor at a time, which never lowers the bound.
#pragma once

#include <vector>

#include "select/problem.h"

namespace millrace {

class DualBound {
 public:
  explicit DualBound(const Problem& problem);

  // Until it hardly rises any more.
  void improve();

  double bound() const;
  // Where it is infinite: tensors whose layouts cannot be brought together.
  std::vector<size_t> stuck() const;
  // The least that a partition pays, prices included.
  double partition_minimum(size_t partition) const { return partition_minima_[partition]; }
  // The least that a tensor costs, what it gets back taken off, when nothing of it is decided.
  double tensor_minimum(size_t tensor) const;
  // The least that a touch adds to its tensor when that lies in `base` first.
  double touch_minimum(size_t tensor, size_t touch, size_t base) const { return touches_[tensor][touch].minima[base]; }
  // What a touch adds when `layout` costs no conversion.
  double touch_free(size_t tensor, size_t touch, size_t layout) const {
    const TouchPrices& prices = touches_[tensor][touch];
    return prices.used[layout] ? -prices.price[layout] : kInfinity;
  }
  // The share of the pinned layout's conversion that falls to the pin itself; 0 where there is nothing to convert.
  double pin_minimum(size_t tensor, size_t base) const {
    return pin_shares_[tensor].empty() ? 0.0 : pin_shares_[tensor][base];
  }
  // Whether the tensor may lie in `base` first, as far as writing and giving go.
  bool can_lie(size_t tensor, size_t base) const { return bases_[tensor][base]; }

 private:
  struct TouchPrices {
    std::vector<double> price;   // by layout
    std::vector<double> share;   // by base and layout; only of readers
    std::vector<double> minima;  // by base
    std::vector<bool> used;      // by layout: whether a way uses it that others leave room for
    std::vector<size_t> uses;    // the layouts that are used
  };

  void split_conversions(size_t tensor);
  void refresh_touch(size_t tensor, size_t touch);
  void refresh_partition(size_t partition);
  double alternative_value(size_t tensor, const ChoicePointTouch& choice_point, size_t alternative, size_t base,
                           size_t without) const;
  // The tensor's cost by base, of all choice points but `choice point`.
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
  std::vector<std::vector<double>> reduced_;  // by partition and way: seconds and prices
  std::vector<double> partition_minima_;
};

}  // namespace millrace
