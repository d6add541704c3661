// The document for a terminal.
#include <algorithm>

#include "base/quote.h"
#include "base/text.h"
#include "report/html/document.h"
#include "report/html/svg.h"
#include "report/table.h"
#include "report/wrap.h"

namespace millrace {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kSlowest = 8;

std::string lines_of(std::string_view text, const std::string& indent) {
  return wrapped(without_controls(text, '?'), {kColumns, indent, indent});
}

const DataTable* launches_of(const Document& document) {
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (block.table && block.table->id == "launches") return &*block.table;
    }
  }
  return nullptr;
}

size_t column_of(const DataTable& table, std::string_view key) {
  const auto found =
      std::find_if(table.columns.begin(), table.columns.end(), [&](const Column& column) { return column.key == key; });
  return static_cast<size_t>(found - table.columns.begin());
}

std::string slowest(const DataTable& launches) {
  const size_t by = column_of(launches, "seconds");
  std::vector<const std::vector<Cell>*> rows;
  for (const std::vector<Cell>& row : launches.rows) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(), [&](const std::vector<Cell>* l, const std::vector<Cell>* r) {
    return (*l)[by].value.value_or(0) > (*r)[by].value.value_or(0);
  });
  rows.resize(std::min(rows.size(), kSlowest));
  Table table({Align::left, Align::left, Align::right, Align::right, Align::right, Align::left});
  table.row({"slowest launches", "pass", "time", "speed-up", "MUE %", "limited by"});
  for (const std::vector<Cell>* row : rows) {
    const auto text = [&](const char* key) { return without_controls((*row)[column_of(launches, key)].text, '?'); };
    table.row(
        {shortened(text("launch"), 34), text("pass"), text("seconds"), text("speed_up"), text("mue"), text("limit")});
  }
  return table.text(kColumns);
}

}  // namespace

std::string document_text(const Document& document, bool colours) {
  const std::string strong = colours ? "\033[1m" : "";
  const std::string good = colours ? "\033[32m" : "";
  const std::string plain = colours ? "\033[0m" : "";
  std::string text =
      concat(strong, without_controls(document.title, '?'), plain, "\n", lines_of(document.subtitle, ""), "\n");
  for (const Fact& fact : document.facts) {
    const std::string arrow = fact.before.empty() ? fact.after : concat(fact.before, " → ", fact.after);
    text += concat(good, arrow, plain, "  ", fact.title, "\n");
    if (!fact.remark.empty()) text += lines_of(fact.remark, "    ");
  }
  if (const DataTable* launches = launches_of(document); launches != nullptr) text += concat("\n", slowest(*launches));
  text += "\n";
  for (const NextStep& step : document.next) text += lines_of(step.all(), "");
  return text;
}

}  // namespace millrace
