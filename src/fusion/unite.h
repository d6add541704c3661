// Tries to unite two groups in one loop nest. Tests: tests/fusion/fuse_test.cpp, explain_test.cpp,
// group_summary_test.cpp.
#pragma once

#include <vector>

#include "base/or_rejected.h"
#include "fusion/group_summary.h"
#include "fusion/label_matching.h"

namespace millrace {

// Limits of a kernel. The largest kernel of our models has 138 operators and 75 tensors in memory (Mamba), and the 4
// KiB of a GPU kernel's parameters have room for 512 pointers. Between these the limits are a choice, not a
// measurement: they bound the work of a merge, and later of a compiler.
inline constexpr size_t kMostMembers = 256;
inline constexpr size_t kMostTensorsInMemory = 256;

// Two groups united, without their members.
struct Union {
  std::vector<DimId> dims;       // one per label
  std::vector<Match> of_b;       // one per label of b: where it is among the common ones
  std::vector<int64_t> moved_a;  // one per label of a: its positions in the common one are larger by this
  MovedOnce once;
  int64_t words = 0;
};

// Both groups under common labels: an axis of a tensor that both access has one label. Without a shared tensor, the
// indices are matched in order. A part of a longer index gets a shift. Rejected if the two access a shared tensor along
// different indices, or if no loop nest runs both.
OrRejected<Union> unite(const Neighbourhood& near, const FusionGroup& a, const FusionGroup& b);

FusionGroup merged(const Neighbourhood& near, FusionGroup a, FusionGroup b, const Union& both);

}  // namespace millrace
