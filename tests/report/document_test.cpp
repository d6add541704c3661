#include "report/html/document.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/html/exact.h"

namespace millrace {
namespace {

const char* const kHostile = "</script><script>alert(1)</script>";

Document sample() {
  Document document;
  document.title = kHostile;
  document.subtitle = std::string("folder\x1b[2J/") + kHostile;
  document.facts = {{"step_seconds", "a step", "2 s", "1 s", "twice as fast", 2.0, 1.0}};
  document.origin = {{"program", kHostile}};
  document.next = {std::string(kHostile), {kHostile, kHostile}};
  Section section{"things", "Things", "All things.", {}};
  DataTable table{"launches",
                  "Things by size.",
                  {{"launch", "launch", false},
                   {"pass", "pass", false},
                   {"seconds", "time"},
                   {"speed_up", "speed-up"},
                   {"mue", "MUE"},
                   {"limit", "held by", false}},
                  {},
                  false};
  table.rows.push_back({Cell(kHostile), Cell("forward"), Cell("0.10 s", 0.1), Cell("–"), Cell("1", 1), Cell("memory")});
  table.rows.push_back(
      {Cell("a, \"b\""), Cell("forward"), Cell("0.33 s", 1.0 / 3), Cell("–"), Cell("1", 1), Cell("flop")});
  section.add(table);
  section.add(Picture{"drawing", "A drawing.", "<svg viewBox=\"0 0 1 1\" width=\"1\"><g/></svg>", false});
  document.sections = {section};
  return document;
}

TEST(Document, NamesAreEscaped) {
  const std::string html = document_html(sample());
  EXPECT_EQ(html.find("alert(1)</script><"), std::string::npos);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_NE(html.find("&lt;/script&gt;&lt;script&gt;alert(1)"), std::string::npos);
  EXPECT_EQ(html.find("http://"), std::string::npos);
  EXPECT_EQ(html.find("https://"), std::string::npos);
}

TEST(Document, JsonHasTheNumbersOfTheCells) {
  const nlohmann::json json = nlohmann::json::parse(document_json(sample()));
  EXPECT_EQ(json.at("facts").at("step_seconds").at("after"), 1.0);
  const nlohmann::json& rows = json.at("tables").at("launches");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].at("seconds").get<double>(), 1.0 / 3);
  EXPECT_TRUE(rows[0].at("speed_up").is_null());
  EXPECT_EQ(rows[0].at("launch"), kHostile);
  EXPECT_NE(document_html(sample()).find("data-v=\"0.3333333333333333\""), std::string::npos);
}

TEST(Document, NumbersSurviveARoundTrip) {
  for (const double value : {0.1, 1.0 / 3, 1e-300, 12345678.9}) EXPECT_EQ(std::stod(exact(value)), value);
}

TEST(Document, CsvHasAHeaderAndOneLinePerRow) {
  const std::string csv = table_csv(*sample().sections[0].blocks[0].table);
  EXPECT_EQ(csv,
            "launch,pass,seconds,speed_up,mue,limit\r\n"
            "</script><script>alert(1)</script>,forward,0.1,,1,memory\r\n"
            "\"a, \"\"b\"\"\",forward,0.3333333333333333,,1,flop\r\n");
}

TEST(Document, PicturesAreSeparateFiles) {
  const std::string svg = picture_svg(*sample().sections[0].blocks[1].picture);
  EXPECT_EQ(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1 1\" width=\"1\"><style>", 0), 0U);
  EXPECT_NE(svg.find("</style><g/></svg>"), std::string::npos);
}

TEST(Document, TextFitsTheTerminalAndHasNoControlCharacters) {
  const std::string text = document_text(sample(), false);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(document_text(sample(), true).find("\x1b[1m"), std::string::npos);
  size_t column = 0;
  for (const char c : text) {
    column = c == '\n' ? 0 : column + ((static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0);
    EXPECT_LE(column, 100U);
  }
  EXPECT_LT(text.find("a, \"b\""), text.find("memory")) << "the slowest launch stands first";
}

}  // namespace
}  // namespace millrace
