#include "report/table.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {
namespace {

// Names are ASCII; only our own punctuation needs counting in characters.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string shortened(const std::string& text, size_t width) {
  if (width_of(text) <= width || width < 5) return text;
  const size_t tail = (width - 1) / 2;
  const size_t head = width - 1 - tail;
  return concat(text.substr(0, head), "…", text.substr(text.size() - tail));
}

}  // namespace

std::string Table::text(size_t width) const {
  std::vector<size_t> widths(columns_.size(), 0);
  for (const std::vector<std::string>& cells : rows_) {
    if (cells.size() == 1) continue;
    for (size_t k = 0; k < cells.size(); ++k) widths[k] = std::max(widths[k], width_of(cells[k]));
  }
  size_t total = 0;
  for (const size_t w : widths) total += w + 2;
  total -= 2;
  constexpr size_t kNarrowest = 16;
  if (total > width && widths[0] > kNarrowest)
    widths[0] = std::max(kNarrowest, widths[0] - std::min(widths[0], total - width));
  std::string text;
  for (const std::vector<std::string>& cells : rows_) {
    std::string line;
    if (cells.size() == 1) {
      line = cells[0];
    } else {
      for (size_t k = 0; k < cells.size(); ++k) {
        const std::string cell = k == 0 ? shortened(cells[k], widths[0]) : cells[k];
        const std::string space(widths[k] - std::min(widths[k], width_of(cell)), ' ');
        if (k > 0) line += "  ";
        line += columns_[k] == Align::left ? cell + space : space + cell;
      }
      line.erase(line.find_last_not_of(' ') + 1);
    }
    text += line + "\n";
  }
  return text;
}

Unit unit_for(double largest) {
  if (largest >= 1e8) return {1e9, "G"};
  if (largest >= 1e5) return {1e6, "M"};
  if (largest >= 1e3) return {1e3, "k"};
  return {1, ""};
}

}  // namespace millrace
