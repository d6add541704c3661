// Errors for programs that read --json.
#include <nlohmann/json.hpp>

#include "base/printed_diagnostic.h"
#include "millrace/millrace.h"
#include "report/message_json.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_input: return "bad_input";
    case ErrorKind::unavailable: return "unavailable";
    case ErrorKind::no_configuration: return "no_candidate";
    case ErrorKind::failed: break;
  }
  return "failed";
}

}  // namespace

std::string error_json(const Error& error, int exit_code) {
  Json messages = Json::array();
  for (const Diagnostic& diagnostic : error.diagnostics) messages.push_back(message_json(diagnostic));
  const Json root = {{"schema_version", 1},
                     {"error", {{"kind", kind_name(error.kind)}, {"exit_code", exit_code}, {"messages", messages}}}};
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";  // a path may contain any bytes
}

std::string warning_text(const Diagnostic& warning) { return printed(warning, "warning"); }

}  // namespace millrace
