#include "report/html/escape.h"

#include "base/text.h"

namespace millrace {
namespace {

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7F;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const size_t valid = valid_utf8_prefix(rest);
    for (const char c : rest.substr(0, valid)) {
      switch (c) {
        case '&': escaped += "&amp;"; break;
        case '<': escaped += "&lt;"; break;
        case '>': escaped += "&gt;"; break;
        case '"': escaped += "&quot;"; break;
        case '\'': escaped += "&#39;"; break;
        case '\n': escaped += c; break;
        default: escaped += is_control(c) ? '?' : c;
      }
    }
    at += valid;
    if (at < text.size()) {
      escaped += '?';
      ++at;
    }
  }
  return escaped;
}

std::string csv_field(std::string_view text) {
  const bool formula = !text.empty() && std::string_view("=+-@\t").find(text[0]) != std::string_view::npos;
  std::string field = formula ? "'" : "";
  bool quoted = false;
  for (const char c : text) {
    quoted = quoted || c == ',' || c == '"' || c == '\n' || c == '\r';
    if (c == '"') field += '"';
    field += c;
  }
  return quoted ? concat("\"", field, "\"") : field;
}

}  // namespace millrace
