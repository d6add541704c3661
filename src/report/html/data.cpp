// The document's numbers for other programs: JSON and CSV.
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/html/document.h"
#include "report/html/escape.h"
#include "report/html/exact.h"
#include "report/json_text.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchemaVersion = 2;

Json value_or_null(const std::optional<double>& value) { return value ? count_json(*value) : Json(nullptr); }

Json table_json(const DataTable& table) {
  Json rows = Json::array();
  for (const std::vector<Cell>& cells : table.rows) {
    Json row = Json::object();
    for (size_t k = 0; k < cells.size(); ++k) {
      const Column& column = table.columns[k];
      row[column.key] = column.number ? value_or_null(cells[k].value) : Json(cells[k].text);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::string exact(double value) {
  std::array<char, 40> text{};
  const std::to_chars_result end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string document_json(const Document& document) {
  Json root = {{"schema_version", kSchemaVersion}, {"title", document.title}};
  for (const auto& [name, value] : document.origin) root["origin"][name] = value;
  for (const Fact& fact : document.facts)
    root["facts"][fact.key] = {{"before", value_or_null(fact.before_value)},
                               {"after", value_or_null(fact.after_value)}};
  for (const auto& [question, answer] : document.answers) root["answers"][question] = answer;
  root["next"] = Json::array();
  for (const NextStep& step : document.next) root["next"].push_back(step.all());
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (block.table) root["tables"][block.table->id] = table_json(*block.table);
    }
  }
  // Names that are not UTF-8 (a file's may not be) are shown with '?'.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string table_csv(const DataTable& table) {
  std::vector<std::string> heads;
  for (const Column& column : table.columns) heads.push_back(csv_field(column.key));
  std::string text = join(heads, ",") + "\r\n";
  for (const std::vector<Cell>& cells : table.rows) {
    std::vector<std::string> fields;
    for (size_t k = 0; k < cells.size(); ++k) {
      if (!table.columns[k].number) {
        fields.push_back(csv_field(cells[k].text));
      } else {
        fields.push_back(cells[k].value ? exact(*cells[k].value) : "");
      }
    }
    text += join(fields, ",") + "\r\n";
  }
  return text;
}

}  // namespace millrace
