// Any text is rejected with a message or becomes a graph that the verifier accepts.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "frontend/frontend.h"
#include "fuzz/counted.h"
#include "ir/verify.h"

namespace {

[[noreturn]] void report(const std::string& what) {
  std::fprintf(stderr, "frontend_fuzzer: %s\n", what.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::counted_bytes.add(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto graph = millrace::parse_program(text, millrace::ProgramOptions{});
  if (!graph) {
    // Printing is part of the test: locations and excerpts must match the text.
    const std::string message = millrace::to_string(graph.error());
    if (message.empty()) report("an error without a message");
    return 0;
  }
  const auto verified = millrace::verify(*graph);
  if (!verified) report("the graph is not valid: " + millrace::to_string(verified.error()));
  return 0;
}
