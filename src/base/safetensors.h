// Reads and writes the safetensors format. Files are untrusted. Test: tests/base/safetensors_test.cpp
//
// The format: 8 bytes, little-endian, the length N of the header; N bytes of a JSON object
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {"key": "text"}}
// and then the data; the offsets are relative to its begin. The tensors cover the data without holes or overlaps, and
// each begins at a multiple of its element's size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/stored_type.h"
#include "millrace/result.h"

namespace millrace {

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<int64_t> shape;
  // Row-major. Exact, except that I64 is rounded beyond 2^53; a BOOL is 0 or 1.
  std::vector<double> values;
};

// The tensors in the order of the header; the metadata is checked and ignored.
Result<std::vector<StoredTensor>> parse_safetensors(std::string_view bytes);

// The same for a file of at most 16 GiB; errors name the file.
Result<std::vector<StoredTensor>> read_safetensors(const std::string& path);

// The bytes of a file that parse_safetensors reads back in the same order. Values are rounded to the nearest of their
// type, ties to even; integers saturate, and NaN becomes 0. Names must be distinct and not "__metadata__", and the
// number of values must match the shape: anything else is a bug of the caller.
std::string serialize_safetensors(const std::vector<StoredTensor>& tensors);

}  // namespace millrace
