// The statements of a CUDA kernel while it is generated, by the point of the kernel that they belong to.
// Test: tests/codegen/cuda_kernel_test.cpp
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/kernel_text.h"
#include "codegen/schedule.h"
#include "codegen/statement.h"

namespace millrace::codegen {

struct KernelStatements {
  std::vector<KernelValue> values;
  std::vector<uint32_t> subsequences;
  Statements dropouts;         // constructed once for each thread
  Statements shared;           // declarations of shared memory
  Statements row_arrays;       // declarations that live as long as a row
  Statements next_row_arrays;  // and those for the next row, which is loaded while this one is processed
  Statements next_row_loads;
  Statements row_loads;  // at the beginning of a row
};

// A segment is a loop over vectors of W elements, or is computed once for each row.
struct SegmentStatements {
  const Segment& segment;
  Statements declared = {};  // before the loop
  Statements loads = {};     // of a vector, before anything is computed
  Statements row_loads = {};
  Statements next_row_loads = {};
  Statements arrays = {};                          // arrays and masks of a vector
  Statements lanes = {};                           // for each element l of a vector
  Statements stores = {};                          // of a vector
  Statements reduced = {};                         // after the loop: reductions
  Statements gathered = {};                        // what they need after one barrier for all of them
  std::map<std::string, std::string> loaded = {};  // text of an element, by tensor and indices
};

}  // namespace millrace::codegen
