// Any text is rejected with a message, or becomes rows that a database may hold and that survive being written.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/counted.h"
#include "measure/measurement_row.h"

namespace {

[[noreturn]] void report(const std::string& what) {
  std::fprintf(stderr, "rows_fuzzer: %s\n", what.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::counted_bytes.add(size);
  const auto rows = millrace::from_lines({reinterpret_cast<const char*>(data), size});
  if (!rows) {
    if (millrace::to_string(rows.error()).empty()) report("an error without a message");
    return 0;
  }
  for (const millrace::MeasurementRow& row : *rows) {
    const std::string wrong = millrace::complaint_about(row);
    if (!wrong.empty()) report(wrong);
  }
  const auto again = millrace::from_lines(millrace::to_lines(*rows));
  if (!again || millrace::to_lines(*again) != millrace::to_lines(*rows)) report("the rows changed");
  return 0;
}
