// A report before it is written: sections of paragraphs, tables and pictures. HTML, JSON, CSV and picture files are all
// made from this, so that they show the same numbers.
// Test: tests/report/document_test.cpp
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace millrace {

// A cell shows a text. If it has a number, tables sort by it, and JSON and CSV contain it.
struct Cell {
  Cell() = default;
  Cell(std::string shown) : text(std::move(shown)) {}  // NOLINT(google-explicit-constructor): rows are lists of these
  Cell(std::string shown, double number) : text(std::move(shown)), value(number) {}

  std::string text;
  std::optional<double> value;
  std::string more;  // under the text, smaller
};

struct NextStep {
  NextStep(std::string told) : text(std::move(told)) {}  // NOLINT(google-explicit-constructor): most have no command
  NextStep(std::string pasted, std::string told) : command(std::move(pasted)), text(std::move(told)) {}

  std::string all() const { return command.empty() ? text : command + " " + text; }

  std::string command;  // to be pasted; empty: none
  std::string text;     // what it does
};

struct Column {
  std::string key;    // in JSON and CSV
  std::string title;  // for people
  bool number = true;
};

struct DataTable {
  std::string id;
  std::string caption;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  bool folded = false;  // collapsed at first
};

// An entry of a legend: how a mark looks, and what it means.
struct LegendItem {
  enum class Shape { box, disc, diamond, line, bar };
  Shape shape = Shape::box;
  std::string classes;  // of the style
  std::string text;
};

// One of several pictures that a reader switches between, and can zoom, move and search.
struct Tab {
  std::string step;     // "before" or "after"
  std::string pass;     // "forward" or "backward"
  std::string details;  // of its boxes and lines, as JSON
};

struct Picture {
  std::string id;
  std::string caption;
  std::string svg;      // by the Svg builder: all texts in it are escaped
  bool folded = false;  // collapsed at first
  std::vector<LegendItem> legend = {};
  std::optional<Tab> tab = {};
};

// One of the three, in the order of a section.
struct Block {
  std::string paragraph;
  std::optional<DataTable> table;
  std::optional<Picture> picture;
};

struct Section {
  std::string id;
  std::string title;
  std::string caption;  // explains the section to a reader who has not seen the paper
  std::vector<Block> blocks;

  void add(std::string paragraph) { blocks.push_back({std::move(paragraph), {}, {}}); }
  void add(DataTable table) { blocks.push_back({"", std::move(table), {}}); }
  void add(Picture picture) { blocks.push_back({"", {}, std::move(picture)}); }
};

// A number of the headline: "step" "1.20 ms" "0.80 ms" "1.50 times as fast".
struct Fact {
  std::string key;  // in JSON
  std::string title;
  std::string before;
  std::string after;
  std::string remark;
  std::optional<double> before_value;
  std::optional<double> after_value;
};

struct Document {
  std::string title;
  std::string subtitle;
  std::vector<Fact> facts;
  std::string before = "before";  // the titles of the facts' two columns
  std::string after = "after";
  std::vector<std::pair<std::string, std::string>> origin;   // machine, version, date, …
  std::vector<std::pair<std::string, std::string>> answers;  // questions of a reader, answered in a sentence or two
  std::string next_title = "What to do next:";
  std::vector<NextStep> next;  // what to do
  std::vector<Section> sections;
};

// The whole page, with no external resources. Under 5 MB: long tables are cut.
std::string document_html(const Document& document);
std::string document_json(const Document& document);
// For a terminal of 100 columns: the facts, the slowest launches, what to do next.
std::string document_text(const Document& document, bool colours);

std::string table_csv(const DataTable& table);
// A picture as its own file.
std::string picture_svg(const Picture& picture);

}  // namespace millrace
