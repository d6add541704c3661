#include "device/cpu/copy_strided.h"

#include <algorithm>
#include <cstring>

#include "device/cpu/openmp_settings.h"

namespace millrace {
namespace {

constexpr int64_t kElementsOfOneThread = 1 << 14;  // fewer are not worth a second thread

// The innermost axis is a run; the other axes count like the digits of a number.
template <class Element>
class Runs {
 public:
  explicit Runs(const StridedCopy& copy) : outer_(copy.axes.begin(), copy.axes.end() - 1), run_(copy.axes.back()) {}

  int64_t count() const {
    int64_t runs = 1;
    for (const CopyAxis& axis : outer_) runs *= axis.extent;
    return runs;
  }

  // `from`: where all indices are zero.
  void copy(int64_t first, int64_t last, const Element* from, Element* to) const {
    std::vector<int64_t> at(outer_.size(), 0);
    int64_t rest = first;
    for (size_t axis = outer_.size(); axis-- > 0; rest /= outer_[axis].extent) {
      at[axis] = rest % outer_[axis].extent;
      from += at[axis] * outer_[axis].stride;
    }
    to += first * run_.extent;
    for (int64_t run = first; run < last; ++run, to += run_.extent) {
      copy_run(from, to);
      step(at, from);
    }
  }

 private:
  void copy_run(const Element* from, Element* to) const {
    if (run_.stride == 1) {
      std::memcpy(to, from, static_cast<size_t>(run_.extent) * sizeof(Element));
      return;
    }
    for (int64_t k = 0; k < run_.extent; ++k) to[k] = from[k * run_.stride];
  }

  void step(std::vector<int64_t>& at, const Element*& from) const {
    for (size_t axis = outer_.size(); axis-- > 0;) {
      from += outer_[axis].stride;
      if (++at[axis] < outer_[axis].extent) return;
      from -= outer_[axis].stride * outer_[axis].extent;
      at[axis] = 0;
    }
  }

  std::vector<CopyAxis> outer_;
  CopyAxis run_;
};

template <class Element>
void copy_elements(const StridedCopy& copy, const void* from, void* to, int threads) {
  const Runs<Element> runs(copy);
  const int64_t count = runs.count();
  const int64_t useful = std::clamp<int64_t>(copy.elements() / kElementsOfOneThread, 1, threads);
  const auto* const first = static_cast<const Element*>(from) + copy.first;
#pragma omp parallel for num_threads(static_cast <int>(useful)) if (useful > 1) schedule(static)
  for (int64_t share = 0; share < useful; ++share)
    runs.copy(count * share / useful, count * (share + 1) / useful, first, static_cast<Element*>(to));
}

}  // namespace

void copy_strided(const StridedCopy& copy, int64_t bytes, const void* from, void* to, int threads) {
  const OpenMpSettings settings;
  switch (bytes) {
    case 1: return copy_elements<uint8_t>(copy, from, to, threads);
    case 2: return copy_elements<uint16_t>(copy, from, to, threads);
    case 4: return copy_elements<uint32_t>(copy, from, to, threads);
    default: return copy_elements<uint64_t>(copy, from, to, threads);
  }
}

}  // namespace millrace
