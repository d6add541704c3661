// The compiled kernels of a GPU plan in one file: a cubin for each kernel. So kernels that the cache has need not be
// compiled again, and the others are compiled in parallel. Test: tests/device/cubin_bundle_test.cpp
//
// The format: a line of JSON, [{"kernel": ..., "name": ..., "bytes": N}, ...], then the cubins in that order.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "millrace/result.h"

namespace millrace {

struct BundledCubin {
  std::string name;   // of the kernel's functions in the cubin: it replaces MILLRACE_KERNEL
  std::string bytes;  // of the cubin
};

// Keyed by the kernel's name in the plan.
using CubinBundle = std::map<std::string, BundledCubin>;

std::string write_bundle(const CubinBundle& bundle);

// An error if the text is no bundle: it may come from anywhere.
Result<CubinBundle> read_bundle(std::string_view text);

}  // namespace millrace
