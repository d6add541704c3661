#include "report/wrap.h"

#include "base/text.h"

namespace millrace {

std::string wrapped(const std::vector<std::string>& parts, std::string_view separator, const Wrapping& wrapping) {
  const std::string_view at_the_end = separator.substr(0, separator.find_last_not_of(' ') + 1);
  std::string lines;
  std::string line;
  for (const std::string& part : parts) {
    if (line.empty()) {
      line = concat(wrapping.first_indent, part);
    } else if (line.size() + separator.size() + part.size() > wrapping.columns) {
      lines += concat(line, at_the_end, "\n");
      line = concat(wrapping.indent, part);
    } else {
      line += concat(separator, part);
    }
  }
  return parts.empty() ? "" : concat(lines, line, "\n");
}

std::string wrapped(std::string_view text, const Wrapping& wrapping) {
  if (text.empty()) return "";
  std::vector<std::string> words;
  for (const std::string& word : split(text, ' ')) {
    if (word.starts_with('%') && !words.empty())
      words.back() += concat(" ", word);
    else
      words.push_back(word);
  }
  return wrapped(words, " ", wrapping);
}

}  // namespace millrace
