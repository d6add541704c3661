// Tensors in and out of the safetensors format; hostile files are refused, never trusted. Test:
// tests/base/safetensors_test.cpp
//
// The format: 8 bytes, little-endian, the length N of the header; N bytes of a JSON object
//   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {"key": "text"}}
// and then the data, into which the offsets point. The tensors cover the data without holes and without overlap, each
// beginning at a multiple of its element's size.
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
  // Row-major. Exact for every type but I64, which is rounded beyond 2^53; a BOOL is 0 or 1.
  std::vector<double> values;
};

// The tensors in the order of the header; the metadata is checked and dropped.
Result<std::vector<StoredTensor>> parse_safetensors(std::string_view bytes);

// The same for a file of at most 16 GiB; complaints name the file.
Result<std::vector<StoredTensor>> read_safetensors(const std::string& path);

// The bytes of a file that parse_safetensors reads back in the same order. Values are rounded to the nearest of their
// type, ties to even; integers saturate and take NaN as 0. Names must be distinct and not "__metadata__", and a tensor
// must have as many values as its shape says: anything else is a bug of the caller.
std::string serialize_safetensors(const std::vector<StoredTensor>& tensors);

}  // namespace millrace
