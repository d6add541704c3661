#include "base/text.h"

#include <algorithm>
#include <array>

namespace millrace {

std::string fixed(double value, int decimals) {
  std::array<char, 512> buffer{};
  // Not printf, which would write a comma in many locales.
  const std::to_chars_result end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, decimals);
  return {buffer.data(), end.ptr};
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xC2 && lead < 0xE0 ? 2
                          : lead >= 0xE0 && lead < 0xF0 ? 3
                          : lead >= 0xF0 && lead < 0xF5 ? 4
                                                        : 0;
    if (length == 0 || at + length > text.size()) return at;
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[at + k]);
      if ((next & 0xC0) != 0x80) return at;
      // The second byte shows overlong forms, surrogates and values above U+10FFFF.
      if (k == 1 && ((lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) || (lead == 0xF0 && next < 0x90) ||
                     (lead == 0xF4 && next > 0x8F)))
        return at;
    }
    at += length;
  }
  return at;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_edits = std::min(word.size(), (word.size() + 1) / 3 + 1);  // fewer than this
  constexpr size_t kLookedAt = 500;                                      // a long list is not worth a long search
  for (size_t at = 0; at < std::min(candidates.size(), kLookedAt); ++at) {
    const std::string& candidate = candidates[at];
    if (word.size() > 64 || candidate.size() > 64) continue;
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t k = 0; k < row.size(); ++k) row[k] = k;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t k = 1; k < row.size(); ++k) {
        const size_t above = row[k];
        row[k] = std::min({row[k] + 1, row[k - 1] + 1, diagonal + (word[i - 1] == candidate[k - 1] ? 0U : 1U)});
        diagonal = above;
      }
    }
    if (row.back() < best_edits) {
      best_edits = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace millrace
