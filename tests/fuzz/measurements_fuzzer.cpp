// Any text is rejected with a message, or becomes measurements that survive being written.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/counted.h"
#include "measure/measurements_json.h"

namespace {

[[noreturn]] void report(const std::string& what) {
  std::fprintf(stderr, "measurements_fuzzer: %s\n", what.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::counted_bytes.add(size);
  const auto first = millrace::parse_measurements({reinterpret_cast<const char*>(data), size}, "m.json");
  if (!first) {
    if (millrace::to_string(first.error()).empty()) report("an error without a message");
    return 0;
  }
  const std::string written = millrace::measurements_json(*first);
  const auto again = millrace::parse_measurements(written, "m.json");
  if (!again || millrace::measurements_json(*again) != written) report("the measurements changed");
  return 0;
}
