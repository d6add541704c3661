// Any bytes are rejected or read; tensors that were read survive being written and read again.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/safetensors.h"
#include "fuzz/counted.h"

namespace {

using millrace::StoredTensor;

[[noreturn]] void report(const char* what) {
  std::fprintf(stderr, "safetensors_fuzzer: %s\n", what);
  std::abort();
}

// Compares bits, so that -0 is not 0; all NaNs are equal, since a narrower type cannot hold every payload.
bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool same(const StoredTensor& a, const StoredTensor& b) {
  if (a.name != b.name || a.type != b.type || a.shape != b.shape || a.values.size() != b.values.size()) return false;
  for (size_t k = 0; k < a.values.size(); ++k)
    if (!same(a.values[k], b.values[k])) return false;
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::counted_bytes.add(size);
  const auto first = millrace::parse_safetensors({reinterpret_cast<const char*>(data), size});
  if (!first) {
    if (millrace::to_string(first.error()).size() > 10'000) report("a message as long as the file");
    return 0;
  }
  const auto second = millrace::parse_safetensors(millrace::serialize_safetensors(*first));
  if (!second) report("our own file was refused");
  if (first->size() != second->size()) report("tensors were lost");
  for (size_t k = 0; k < first->size(); ++k)
    if (!same((*first)[k], (*second)[k])) report("a tensor changed");
  return 0;
}
