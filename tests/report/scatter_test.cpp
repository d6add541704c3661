#include "report/html/scatter.h"

#include <gtest/gtest.h>

#include "report/html/label_places.h"
#include "report/html/svg.h"

namespace millrace {
namespace {

size_t times_in(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST(LabelPlaces, NoLabelCoversAnother) {
  LabelPlaces places({0, 0}, {300, 300});
  places.occupy({100, 100}, 6);
  const std::optional<LabelPlace> first = places.place({100, 100}, "one");
  const std::optional<LabelPlace> second = places.place({100, 100}, "two");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->anchor, "start");
  EXPECT_EQ(second->anchor, "end") << "the right side is taken";
  EXPECT_TRUE(places.place({100, 100}, "three"));
  EXPECT_TRUE(places.place({100, 100}, "four"));
  EXPECT_FALSE(places.place({100, 100}, "five")) << "all sides are taken";
  EXPECT_FALSE(places.place({5, 5}, "a label that is far too long for three hundred pixels of width"));
}

TEST(LabelPlaces, NoLabelCrossesALine) {
  LabelPlaces places({0, 0}, {300, 300});
  places.occupy({150, 150}, 6);
  places.occupy_line({0, 225}, {300, 75});
  const std::optional<LabelPlace> place = places.place({150, 150}, "on the line");
  ASSERT_TRUE(place) << "there is room below the line";
  EXPECT_EQ(place->anchor, "start");
  EXPECT_GT(place->at.y - 10, 150) << "the whole label is below the point";
}

TEST(Scatter, DrawsEachPointOnceAndLabelsWhereThereIsRoom) {
  const std::vector<ScatterPoint> points = {{1e-3, 2e-3, "violin", "below", ""},
                                            {1e-3, 2e-3, "selected", "on top", "chosen"},
                                            {1e-1, 1e-1, "violin", "<tip>", ""}};
  const std::string svg = draw_scatter(points, {"across", "up", "label"});
  EXPECT_EQ(times_in(svg, "<circle"), 2U) << "one covers another";
  EXPECT_EQ(svg.find("below"), std::string::npos);
  EXPECT_NE(svg.find(">chosen<"), std::string::npos);
  EXPECT_NE(svg.find("&lt;tip&gt;"), std::string::npos);
  EXPECT_NE(svg.find(">1 ms<"), std::string::npos) << "the axes have units";
}

TEST(Scatter, OnePointAndNoneAreDrawn) {
  EXPECT_EQ(times_in(draw_scatter({{1, 1, "violin", "", ""}}, {"a", "b", "c"}), "<circle"), 1U);
  EXPECT_EQ(times_in(draw_scatter({}, {"a", "b", "c"}), "<circle"), 0U);
}

TEST(WrappedLines, KeepTheWholeText) {
  EXPECT_EQ(wrapped_lines("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped_lines("multiply-negate-add (kk)", 12),
            (std::vector<std::string>{"multiply-", "negate-add", "(kk)"}));
  EXPECT_EQ(wrapped_lines("äöüäöüäöü", 4), (std::vector<std::string>{"äöüä", "öüäö", "ü"}));
  EXPECT_TRUE(wrapped_lines("", 4).empty());
}

}  // namespace
}  // namespace millrace
