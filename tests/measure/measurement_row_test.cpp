#include "measure/measurement_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/text.h"

namespace millrace {
namespace {

MeasurementRow some_row() {
  return {{"H200 driver 1", "softmax[4,8]", "c1 BJI"},
          Outcome::measured,
          1e-3,
          0.9e-3,
          1.1e-3,
          30,
          "",
          "2024-05-31T23:59:59Z"};
}

TEST(MeasurementRow, LinesAreSortedAndReadBackExactly) {
  MeasurementRow awkward = some_row();
  awkward.key.candidate = "a \"quoted\" ± candidate\n2nd line";
  awkward.seconds = awkward.low = 0.1 + 0.2;
  awkward.high = 5e-324 + 1;
  awkward.detail = "d_x[17] is 0.3, expected 0.5 ± 1e-06";
  MeasurementRow wrong = some_row();
  wrong.key.partition = "gelu[4]";
  wrong.outcome = Outcome::wrong;
  const std::string text = to_lines({some_row(), wrong, awkward});
  EXPECT_EQ(text, to_lines({awkward, some_row(), wrong}));
  const Result<std::vector<MeasurementRow>> read = from_lines(text);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(*read, (std::vector<MeasurementRow>{wrong, awkward, some_row()}));
  EXPECT_EQ(
      to_lines({some_row()}),
      "{\"schema_version\":2,\"device\":\"H200 driver 1\",\"partition\":\"softmax[4,8]\",\"candidate\":\"c1 BJI\","
      "\"outcome\":\"measured\",\"seconds\":0.001,\"low\":0.0009,\"high\":0.0011,\"samples\":30,\"detail\":\"\","
      "\"when\":\"2024-05-31T23:59:59Z\"}\n");
}

TEST(MeasurementRow, EmptyLinesAndWindowsLineEndsAreAllowed) {
  std::string line = to_lines({some_row()});
  line.pop_back();
  const Result<std::vector<MeasurementRow>> read = from_lines(concat("\n  \n", line, "\r\n\n", line));
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(read->size(), 2U);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST(MeasurementRow, BadLinesAreNamedByTheirNumber) {
  const std::string good = to_lines({some_row()});
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"nonsense", "not a JSON object"},
      {"[1]", "not a JSON object"},
      {"{}", "'schema_version' is missing"},
      {std::string(100'000, '['), "not a JSON object"},
      {std::string(1, '\0'), "not a JSON object"},
      {"\xFF", "not a JSON object"},
      {replaced(good, "\"detail\":\"\"", "\"detail\":{\"a\":1}"), "not a JSON object"},
      {replaced(good, "\"detail\"", "\"when\""), "not a JSON object"},  // a name twice
      {replaced(good, "\"detail\":\"\"", "\"detail\":\"\",\"more\":1"), "an unknown field"},
      {replaced(good, "version\":2", "version\":3"), "'schema_version' is not 2"},
      {replaced(good, "version\":2", "version\":2.0"), "'schema_version' is not a non-negative integer"},
      {replaced(good, "measured", "guessed"), "'outcome' is not one of measured, wrong"},
      {replaced(good, "0.001", "-0.001"), "negative or not finite"},
      {replaced(good, "0.001", "1e999"), "not a JSON object"},
      {replaced(good, "0.001", "\"1\""), "'seconds' is not a number"},
      {replaced(good, "0.001", "0.002"), "not between low and high"},
      {replaced(good, ":30", ":0"), "no samples"},
      {replaced(good, ":30", ":-3"), "'samples' is not a non-negative integer"},
      {replaced(good, ":30", ":9223372036854775808"), "'samples' is not a non-negative integer"},
      {replaced(good, "H200 driver 1", ""), "is empty"},
      {replaced(good, "H200 driver 1", "a\\u0000b"), "not UTF-8 text"},
      {replaced(good, "31T23", "31 23"), "when is not a time"},
      {replaced(good, "05-31T23", "02-30T23"), "when is not a time"},
      {replaced(good, "05-31T23", "99-99T23"), "when is not a time"},
      {replaced(good, "31T23", "31T24"), "when is not a time"},
      {replaced(good, "\"detail\":\"\"", concat("\"detail\":\"", std::string(5000, 'x'), "\"")),
       "the detail is longer"},
  };
  for (const auto& [line, message] : bad) {
    const Result<std::vector<MeasurementRow>> read = from_lines(concat(good, "\n", line));
    ASSERT_FALSE(read) << line;
    EXPECT_EQ(read.error().kind, ErrorKind::bad_input);
    EXPECT_EQ(read.error().diagnostics.front().line, 3);
    EXPECT_NE(to_string(read.error()).find(message), std::string::npos) << line << "\n" << to_string(read.error());
  }
}

TEST(MeasurementRow, ComplaintsAreBounded) {
  std::string text;
  for (int k = 0; k < 1000; ++k) text += "x\n";
  EXPECT_EQ(from_lines(text).error().diagnostics.size(), 20U);
}

TEST(MeasurementRow, InvalidValuesAreRefused) {
  EXPECT_EQ(complaint_about(some_row()), "");
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0, -0.0}) {
    MeasurementRow row = some_row();
    row.low = bad;
    EXPECT_NE(complaint_about(row), "") << bad;
  }
  MeasurementRow refused = some_row();
  refused.outcome = Outcome::hung;
  refused.seconds = refused.low = refused.high = 0;
  refused.samples = 0;
  EXPECT_EQ(complaint_about(refused), "");
}

TEST(MeasurementRow, DetailsAreMadeStorable) {
  EXPECT_EQ(storable_detail("a ± b\n\tc"), "a ± b\n\tc");
  EXPECT_EQ(storable_detail(std::string("\x1B[31m\xFF\xC3(\0)", 10)), concat("?[31m?", "?(?)"));
  EXPECT_EQ(storable_detail(std::string(10'000, 'x')).size(), 4096U);
  const std::string wide = concat(std::string(4095, 'x'), "±");
  EXPECT_EQ(storable_detail(wide), std::string(4095, 'x'));
  EXPECT_EQ(storable_detail(storable_detail(wide)), storable_detail(wide));
}

TEST(MeasurementRow, TheLaterReplacesAndTiesAreSymmetric) {
  MeasurementRow later = some_row();
  later.when = "2024-06-01T00:00:00Z";
  EXPECT_TRUE(replaces(later, some_row()));
  EXPECT_FALSE(replaces(some_row(), later));
  MeasurementRow tie = some_row();
  tie.samples = 31;
  EXPECT_NE(replaces(tie, some_row()), replaces(some_row(), tie));
  EXPECT_FALSE(replaces(tie, tie));
}

TEST(MeasurementRow, TheClockGivesAValidTime) {
  MeasurementRow row = some_row();
  row.when = utc_now();
  EXPECT_EQ(complaint_about(row), "");
  EXPECT_TRUE(replaces(row, some_row()));
}

}  // namespace
}  // namespace millrace
