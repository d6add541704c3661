// Any text is rejected with a message, or is a plan that can be written and read again. The hash in the text is
// computed again, so that altered texts get past it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "fuzz/counted.h"
#include "plan/plan_json.h"

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void report(const std::string& what) {
  std::fprintf(stderr, "plan_fuzzer: %s\n", what.c_str());
  std::abort();
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// The text with the hash that belongs to the rest; the text itself if it is not an object.
std::string sealed(std::string_view text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return std::string(text);
  json.erase("sha256");
  json["sha256"] = millrace::sha256(dumped(json));
  return dumped(json);
}

void check(std::string_view text) {
  const auto plan = millrace::parse_plan(text, "plan.json");
  if (!plan) {
    if (millrace::to_string(plan.error()).empty()) report("an error without a message");
    return;
  }
  const std::string written = millrace::plan_json(*plan);
  const auto again = millrace::parse_plan(written, "plan.json");
  if (!again || millrace::plan_json(*again) != written) report("the plan changed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  millrace::counted_bytes.add(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  if (const std::string fitting = sealed(text); fitting != text) check(fitting);
  return 0;
}
