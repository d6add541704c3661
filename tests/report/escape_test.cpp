#include "report/html/escape.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(Escape, HtmlMarkupBecomesText) {
  EXPECT_EQ(escape_html("<script>alert('x' & \"y\")</script>"),
            "&lt;script&gt;alert(&#39;x&#39; &amp; &quot;y&quot;)&lt;/script&gt;");
  EXPECT_EQ(escape_html("größer µs → ×"), "größer µs → ×");
}

TEST(Escape, InvalidBytesBecomeQuestionMarks) {
  EXPECT_EQ(escape_html("a\xFF\xFEz"), "a??z");
  EXPECT_EQ(escape_html(std::string("a\0b\x1b[31m", 8)), "a?b?[31m");
  EXPECT_EQ(escape_html("two\nlines"), "two\nlines");
}

TEST(Escape, CsvFieldsAreQuotedIfNecessary) {
  EXPECT_EQ(csv_field("plain"), "plain");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"so\""), "\"say \"\"so\"\"\"");
  EXPECT_EQ(csv_field("two\nlines"), "\"two\nlines\"");
}

TEST(Escape, CsvFieldsAreNotFormulas) {
  EXPECT_EQ(csv_field("=HYPERLINK(1)"), "'=HYPERLINK(1)");
  EXPECT_EQ(csv_field("@x"), "'@x");
}

}  // namespace
}  // namespace millrace
