#include <algorithm>

#include "base/id.h"
#include "select/eliminator.h"

namespace millrace {

// The least that the unjoined partitions of an alternative cost, prices included.
double Eliminator::choice_point_rest(size_t choice_point, size_t alternative, const Joined& joined) const {
  if (!open_[choice_point][alternative]) return kInfinity;
  double sum = 0;
  for (const size_t p : problem_.choice_points[choice_point][alternative]) {
    if (!is_joined(joined, p)) sum += dual_.partition_minimum(p);
  }
  return sum;
}

double Eliminator::choice_point_minimum(size_t choice_point) const {
  double least = kInfinity;
  for (size_t a = 0; a < problem_.choice_points[choice_point].size(); ++a)
    least = std::min(least, choice_point_rest(choice_point, a, {kNoTable, kNoTable}));
  return least;
}

double Eliminator::alternative_rest(size_t t, const ChoicePointTouch& choice_point, size_t alternative, size_t base,
                                    const Usage& usage, const Joined& joined) const {
  const ProblemTensor& tensor = problem_.tensors[t];
  if (!open_[choice_point.choice_point][alternative]) return kInfinity;
  double sum = 0;
  bool written = false;
  for (const size_t k : choice_point.touches[alternative]) {
    const Touch& touch = tensor.touches[k];
    if (is_joined(joined, touch.partition)) continue;
    double least = dual_.touch_minimum(t, k, base);
    if (!touch.writes) {
      for (const int l : usage.read) least = std::min(least, dual_.touch_free(t, k, as_index(l)));
    }
    written |= touch.writes;
    sum += least;
  }
  const bool writers = contains(choice_point.writes, true);
  if (writers && base < tensor.layouts && !written && usage.base < 0) return kInfinity;
  return sum;
}

// The least that an open tensor still costs, given what the joined partitions already need from it.
double Eliminator::tensor_rest(size_t t, const Usage& usage, const Joined& joined,
                               const std::vector<size_t>& choice_points, const int* choices) const {
  if (!is_bounded()) return 0;
  const ProblemTensor& tensor = problem_.tensors[t];
  const bool pin = tensor.written && tensor.pinned != kNoLayout;
  double result = kInfinity;
  for (size_t b = 0; b < tensor.bases(); ++b) {
    const bool absent = b == tensor.layouts;
    if (!dual_.allows(t, b) || (usage.base >= 0 && as_index(usage.base) != b) || (absent && !usage.read.empty()))
      continue;
    double sum = 0;
    bool pin_made = pin && !absent && b == as_index(tensor.pinned);
    for (const int l : usage.read) {
      sum += tensor.conversion(b, as_index(l));
      pin_made |= pin && l == tensor.pinned;
    }
    if (pin && !pin_made) sum += dual_.pin_minimum(t, b);
    for (const ChoicePointTouch& choice_point : tensor.choice_points) {
      if (sum == kInfinity) break;
      const auto column = std::find(choice_points.begin(), choice_points.end(), choice_point.choice_point);
      double least = kInfinity;
      if (column != choice_points.end()) {
        least = alternative_rest(t, choice_point, as_index(choices[column - choice_points.begin()]), b, usage, joined);
      } else {
        for (size_t a = 0; a < choice_point.touches.size(); ++a)
          least = std::min(least, alternative_rest(t, choice_point, a, b, usage, joined));
      }
      sum += least;
    }
    result = std::min(result, sum);
  }
  return result;
}

// The conversions of a tensor whose partitions are all joined.
double Eliminator::closing_cost(size_t t, const Usage& usage) const {
  const ProblemTensor& tensor = problem_.tensors[t];
  if (tensor.written && usage.base < 0) return usage.read.empty() && tensor.can_be_absent ? 0.0 : kInfinity;
  double result = kInfinity;
  for (size_t b = 0; b < tensor.layouts; ++b) {
    if (!dual_.allows(t, b) || (usage.base >= 0 && as_index(usage.base) != b)) continue;
    double sum = 0;
    for (const int l : usage.read) sum += tensor.conversion(b, as_index(l));
    const bool pin = tensor.written && tensor.pinned != kNoLayout && !contains(usage.read, tensor.pinned);
    if (pin) sum += tensor.conversion(b, as_index(tensor.pinned));
    result = std::min(result, sum);
  }
  return result;
}

// An upper bound on the cost of the conversions that a row with `usage` of a tensor needs and a row with the usage
// `other` does not. Infinite if it is unknown.
double Eliminator::surplus(size_t t, const Usage& usage, const Usage& other) const {
  const ProblemTensor& tensor = problem_.tensors[t];
  if (usage.base != other.base) return kInfinity;
  double sum = 0;
  for (const int l : usage.read) {
    if (contains(other.read, l) || (tensor.written && l == tensor.pinned)) continue;
    if (usage.base < 0 && tensor.can_be_absent) return kInfinity;
    double most = 0;
    for (size_t b = 0; b < tensor.layouts; ++b) {
      if (usage.base < 0 ? dual_.allows(t, b) : as_index(usage.base) == b)
        most = std::max(most, tensor.conversion(b, as_index(l)));
    }
    sum += most;
  }
  return sum;
}

}  // namespace millrace
