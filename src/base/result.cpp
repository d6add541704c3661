#include "millrace/result.h"

#include "base/printed_diagnostic.h"
#include "base/quote.h"
#include "base/text.h"

namespace millrace {

Error Error::make(ErrorKind kind, std::string message, std::string remedy) {
  Diagnostic diagnostic;
  diagnostic.message = std::move(message);
  diagnostic.remedy = std::move(remedy);
  return {kind, {std::move(diagnostic)}};
}

std::string printed(const Diagnostic& diagnostic, const char* severity) {
  std::string text;
  if (!diagnostic.file.empty()) text += printable_line(diagnostic.file) + ":";
  if (diagnostic.line > 0) text += concat(diagnostic.line, ":", diagnostic.column, ":");
  text += concat(text.empty() || text.back() != ':' ? "" : " ", severity, ": ", indented(printable(diagnostic.message)),
                 "\n");
  if (!diagnostic.excerpt.empty()) {
    text += concat("    ", diagnostic.excerpt, "\n    ");
    text += std::string(static_cast<size_t>(diagnostic.caret), ' ') + "^\n";
  }
  if (!diagnostic.remedy.empty()) text += concat("  ", indented(printable(diagnostic.remedy)), "\n");
  return text;
}

std::string to_string(const Error& error) {
  std::string text;
  for (const Diagnostic& diagnostic : error.diagnostics) text += printed(diagnostic, "error");
  return text;
}

}  // namespace millrace
