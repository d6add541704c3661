#include "report/html/legend.h"

#include <gtest/gtest.h>

#include "report/html/svg.h"

namespace millrace {
namespace {

Picture legend_sample() {
  Svg svg(400, 100, "a picture");
  Picture picture{"sample", "A sample.", std::move(svg).finish(), false};
  picture.legend = {{LegendItem::Shape::box, "node", "<a> box"}, {LegendItem::Shape::line, "flow", "a line"}};
  return picture;
}

TEST(Legend, IsAListOfEscapedTextsInThePage) {
  const std::string html = legend_html(legend_sample().legend);
  EXPECT_NE(html.find("&lt;a&gt; box</li>"), std::string::npos) << html;
  EXPECT_NE(html.find("<rect"), std::string::npos);
  EXPECT_NE(html.find("<line"), std::string::npos);
  EXPECT_NE(html.find("aria-hidden"), std::string::npos) << "screen readers read the texts only";
  EXPECT_EQ(legend_html({}), "");
}

TEST(Legend, IsBelowThePictureInItsFile) {
  const std::string svg = with_legend(legend_sample());
  EXPECT_NE(svg.find("<svg y=\"100.0\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("&lt;a&gt; box</text>"), std::string::npos);
  EXPECT_EQ(svg.rfind("<svg viewBox=\"0 0 400.0 124.0\"", 0), 0U) << svg;
  Picture plain = legend_sample();
  plain.legend.clear();
  EXPECT_EQ(with_legend(plain), plain.svg);
}

TEST(Legend, WrapsToThePicturesWidth) {
  Picture picture = legend_sample();
  for (int k = 0; k < 6; ++k) picture.legend.push_back({LegendItem::Shape::disc, "dot", "a text of some length"});
  const std::string svg = with_legend(picture);
  EXPECT_EQ(svg.find("0 0 400.0 124.0"), std::string::npos) << "several rows are higher";
}

}  // namespace
}  // namespace millrace
