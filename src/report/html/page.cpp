#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "report/html/assets.h"
#include "report/html/document.h"
#include "report/html/escape.h"
#include "report/html/exact.h"
#include "report/html/legend.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

constexpr size_t kShort = 16;      // bytes of a text that stays on one line
constexpr size_t kMostText = 600;  // characters of a cell
constexpr size_t kMostOpen = 120;  // characters below a cell's text; more of them are folded
constexpr size_t kMostFolded = 48;

// How much of a document the page shows; JSON, CSV and picture files contain all of it.
struct Shown {
  size_t rows;  // of a table
  bool details;
  bool folded_pictures;
};
// The first limits that make the page small enough.
constexpr std::array<Shown, 6> kShown = {{{2000, true, true},
                                          {500, true, true},
                                          {100, true, true},
                                          {100, false, true},
                                          {100, false, false},
                                          {20, false, false}}};
constexpr size_t kMostBytes = 5'000'000;

std::string tag(std::string_view name, std::string_view classes, std::string_view text) {
  return concat("<", name, classes.empty() ? "" : concat(" class=\"", classes, "\""), ">", escape_html(text), "</",
                name, ">");
}

// Collapsed until opened.
std::string folded(bool is, const std::string& caption, const std::string& content) {
  return is ? concat("<details><summary>", escape_html(caption), "</summary>", content, "</details>\n") : content;
}

std::string more_html(const std::string& more) {
  const std::string html = concat("<small>", escape_html(more), "</small>");
  if (more.size() <= kMostOpen) return html;
  return concat("<details class=\"more\"><summary>", escape_html(shortened(more, kMostFolded)), "</summary>", html,
                "</details>");
}

std::string cell_html(const Cell& cell, const Column& column) {
  const bool is_short = cell.text.size() <= kShort;
  std::string html = concat("<td", column.number ? " class=\"number\"" : is_short ? " class=\"short\"" : "");
  if (cell.value) html += concat(" data-v=\"", exact(*cell.value), "\"");
  html += concat(">", escape_html(shortened(cell.text, kMostText)));
  if (!cell.more.empty()) html += more_html(shortened(cell.more, kMostText));
  return html + "</td>";
}

std::string table_html(const DataTable& table, const Shown& most) {
  if (table.rows.empty()) return "";
  std::string html = table.folded ? "" : tag("p", "caption", table.caption);
  html += concat("<div class=\"scroll\"><table id=\"table_", escape_html(table.id), "\"><thead><tr>");
  for (const Column& column : table.columns)
    html += concat("<th", column.number ? " class=\"number\"" : "", "><button type=\"button\">",
                   escape_html(column.title), "</button></th>");
  html += "</tr></thead><tbody>\n";
  const size_t shown = std::min(table.rows.size(), most.rows);
  for (size_t r = 0; r < shown; ++r) {
    const std::vector<Cell>& row = table.rows[r];
    html += "<tr>";
    for (size_t k = 0; k < row.size(); ++k) html += cell_html(row[k], table.columns[k]);
    html += "</tr>\n";
  }
  html += "</tbody></table></div>\n";
  if (shown < table.rows.size())
    html += tag("p", "caption",
                concat("… and ", table.rows.size() - shown, " more: millrace report --csv DIR writes all of them."));
  return folded(table.folded, table.caption, html);
}

std::string left_out(const Picture& picture) {
  return tag("p", "caption",
             concat(picture.caption, " Left out, to keep the page small: millrace report --svg DIR writes it."));
}

std::string figure_html(const Picture& picture, const std::string& attributes, const std::string& more) {
  return concat("<figure id=\"picture_", escape_html(picture.id), "\"", attributes, ">",
                picture.folded && !picture.tab ? "" : tag("figcaption", "", picture.caption), "<div class=\"scroll\">",
                picture.svg, "</div>", more, legend_html(picture.legend), "</figure>\n");
}

std::string picture_html(const Picture& picture, const Shown& most) {
  if (picture.folded && !most.folded_pictures) return left_out(picture);
  return folded(picture.folded, picture.caption, figure_html(picture, "", ""));
}

// JSON in a script element: no text in it may end the element.
std::string script_data(std::string json) {
  size_t at = 0;
  while ((at = json.find('<', at)) != std::string::npos) json.replace(at, 1, "\\u003c");
  return concat("<script type=\"application/json\">", json, "</script>");
}

// Several pictures that the script shows as one, with tabs, zoom, search and details.
std::string viewer_html(const std::vector<const Picture*>& pictures, const Shown& most) {
  std::string html = "<div class=\"viewer\">\n";
  std::string missing;
  for (const Picture* picture : pictures) {
    if (picture->folded && !most.folded_pictures) {
      missing += left_out(*picture);
      continue;
    }
    html += figure_html(*picture,
                        concat(" data-step=\"", escape_html(picture->tab->step), "\" data-pass=\"",
                               escape_html(picture->tab->pass), "\""),
                        most.details ? script_data(picture->tab->details) : "");
  }
  return concat(html, "</div>\n", missing);
}

std::string section_html(const Section& section, const Shown& most) {
  std::string html = concat("<section id=\"", escape_html(section.id), "\">", tag("h2", "", section.title),
                            tag("p", "", section.caption), "\n");
  std::vector<const Picture*> tabs;
  for (size_t k = 0; k < section.blocks.size(); ++k) {
    const Block& block = section.blocks[k];
    if (!block.paragraph.empty()) html += tag("p", "", block.paragraph) + "\n";
    if (block.table) html += table_html(*block.table, most);
    if (!block.picture) continue;
    if (!block.picture->tab) {
      html += picture_html(*block.picture, most);
      continue;
    }
    tabs.push_back(&*block.picture);
    const bool more =
        k + 1 < section.blocks.size() && section.blocks[k + 1].picture && section.blocks[k + 1].picture->tab;
    if (!more) html += viewer_html(std::exchange(tabs, {}), most);
  }
  return html + "</section>\n";
}

std::string facts_html(const Document& document) {
  std::string html =
      concat("<div class=\"scroll\"><table class=\"facts\" id=\"facts\"><thead><tr><th></th><th class=\"number\">",
             escape_html(document.before), "</th><th class=\"number\">", escape_html(document.after),
             "</th><th></th></tr></thead><tbody>\n");
  const auto value = [](const std::optional<double>& number) {
    return number ? concat(" data-v=\"", exact(*number), "\"") : std::string();
  };
  for (const Fact& fact : document.facts) {
    html += concat("<tr data-key=\"", escape_html(fact.key), "\"><td>", escape_html(fact.title),
                   "</td><td class=\"number\"", value(fact.before_value), ">", escape_html(fact.before),
                   "</td><td class=\"number after\"", value(fact.after_value), ">", escape_html(fact.after), "</td>",
                   tag("td", "", fact.remark), "</tr>\n");
  }
  return html + "</tbody></table></div>\n";
}

std::string answers_html(const Document& document) {
  if (document.answers.empty()) return "";
  std::string html = "<dl class=\"answers\">";
  for (const auto& [question, answer] : document.answers)
    html += concat(tag("dt", "", question), tag("dd", "", answer));
  return html + "</dl>\n";
}

std::string page_html(const Document& document, const Shown& most) {
  std::string html = concat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      // The page fetches nothing, even if a name contains markup.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src "
      "'unsafe-inline'; img-src data:\">",
      tag("title", "", document.title), "<style>\n", report_style(), "</style></head>\n<body>\n",
      tag("h1", "", document.title), tag("p", "weak subtitle", document.subtitle), "\n<section id=\"answer\">",
      facts_html(document), answers_html(document), "<dl>");
  for (const auto& [name, value] : document.origin) html += concat(tag("dt", "", name), tag("dd", "", value));
  html += "</dl>\n";
  if (!document.next.empty()) {
    html += concat(tag("p", "", document.next_title), "<ul>");
    for (const NextStep& step : document.next)
      html += concat("<li>", step.command.empty() ? "" : tag("code", "", step.command) + " ", escape_html(step.text),
                     "</li>\n");
    html += "</ul>";
  }
  html += "</section>\n<nav>";
  for (const Section& section : document.sections)
    html += concat("<a href=\"#", escape_html(section.id), "\">", escape_html(section.title), "</a> ");
  html += "</nav>\n";
  for (const Section& section : document.sections) html += section_html(section, most);
  return concat(html, "<div id=\"tip\" role=\"status\" hidden></div>\n<script>\n", report_script(),
                "</script>\n</body></html>\n");
}

}  // namespace

std::string document_html(const Document& document) {
  std::string html;
  for (const Shown& most : kShown) {
    html = page_html(document, most);
    if (html.size() < kMostBytes) break;
  }
  return html;
}

std::string picture_svg(const Picture& picture) {
  const std::string svg = with_legend(picture);
  const size_t end = svg.find('>');
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\"", svg.substr(4, end - 3), "<style>\n", report_style(),
                "</style>", svg.substr(end + 1), "\n");
}

}  // namespace millrace
