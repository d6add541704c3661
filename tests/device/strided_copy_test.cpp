// Dense copies of strided operands, against the definition.
#include "device/strided_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "device/cpu/copy_strided.h"

namespace millrace {
namespace {

// The source's element at each position of the copy.
std::vector<int64_t> positions_of(const StridedCopy& copy) {
  std::vector<int64_t> positions = {copy.first};
  for (const CopyAxis& axis : copy.axes) {
    std::vector<int64_t> next;
    for (const int64_t position : positions)
      for (int64_t k = 0; k < axis.extent; ++k) next.push_back(position + k * axis.stride);
    positions = std::move(next);
  }
  return positions;
}

template <class Element>
void expect_copied(const StridedCopy& copy, int threads) {
  std::vector<Element> source(4000);
  std::iota(source.begin(), source.end(), Element{1});
  std::vector<Element> expected;
  for (const int64_t position : positions_of(copy)) expected.push_back(source[static_cast<size_t>(position)]);
  std::vector<Element> found(expected.size() + 1, Element{0});
  copy_strided(copy, sizeof(Element), source.data(), found.data(), threads);
  EXPECT_EQ(found.back(), Element{0}) << "writes after the copy";
  found.pop_back();
  EXPECT_EQ(found, expected);
}

const std::vector<StridedCopy>& copies() {
  static const std::vector<StridedCopy> kCopies = {
      {0, {{1, 0}}},
      {5, {{7, 1}}},
      {3, {{5, 10}, {3, 10}, {4, 1}}},                        // windows
      {100, {{6, 20}, {3, -1}, {9, 2}}},                      // read backwards
      {0, {{20, 60}, {5, 1}, {5, 10}, {8, 1}, {11, 1}}},      // enough for several threads
      {2000, {{12, -7}, {3, 1}, {4, 0}, {30, 3}, {8, -11}}},  // an index that does not move
  };
  return kCopies;
}

TEST(StridedCopies, HaveTheSourcesElementsInOrder) {
  for (const StridedCopy& copy : copies()) {
    for (const int threads : {1, 2, 3}) {
      expect_copied<uint8_t>(copy, threads);
      expect_copied<uint16_t>(copy, threads);
      expect_copied<uint32_t>(copy, threads);
      expect_copied<uint64_t>(copy, threads);
    }
  }
}

TEST(StridedCopies, MergeAxesThatFollowEachOther) {
  StridedCopy copy;
  for (const CopyAxis& axis : {CopyAxis{2, 60}, CopyAxis{3, 20}, CopyAxis{4, 6}, CopyAxis{2, 2}, CopyAxis{2, 1}})
    copy.add(axis);
  EXPECT_EQ(copy.axes, (std::vector<CopyAxis>{{6, 20}, {4, 6}, {4, 1}}));
  EXPECT_EQ(copy.elements(), 96);
}

}  // namespace
}  // namespace millrace
