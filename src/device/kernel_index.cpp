#include "device/kernel_index.h"

#include "base/sha256.h"
#include "base/text.h"

namespace millrace {

std::string object_name(std::string_view sha256, std::string_view suffix) {
  return concat("o_", sha256.substr(0, 32), suffix);
}

std::string to_text(const IndexEntry& entry) {
  const std::string lines =
      concat("millrace kernel 1\nname ", entry.name, "\nobject ", entry.object, "\nsha256 ", entry.sha256, "\n");
  return concat(lines, "check ", sha256(lines), "\n");
}

std::optional<IndexEntry> parse_index_entry(std::string_view text, std::string_view name, std::string_view suffix) {
  constexpr std::string_view kBefore = "\nsha256 ";
  const size_t at = text.find(kBefore);
  if (at == std::string_view::npos) return std::nullopt;
  IndexEntry entry;
  entry.name = name;
  entry.sha256 = text.substr(at + kBefore.size(), 64);
  entry.object = object_name(entry.sha256, suffix);
  // Everything else follows from these two: an entry that does not print as it was read is damaged.
  if (entry.sha256.find_first_not_of("0123456789abcdef") != std::string::npos || to_text(entry) != text)
    return std::nullopt;
  return entry;
}

}  // namespace millrace
