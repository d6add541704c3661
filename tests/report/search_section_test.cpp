#include <gtest/gtest.h>

#include "report/html/pictures.h"
#include "report/report_sections.h"

namespace millrace {
namespace {

const std::vector<ExplorationPoint> kPoints = {{0.5, 10, 0, 1e-3}, {2, 40, 4e-3, 1.5e-3}, {5, 100, 2e-3, 1.9e-3}};

size_t count_of(const std::string& what, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(SearchSection, TableHasEveryPoint) {
  const Section section = search_section(kPoints);
  const DataTable& table = *section.blocks.at(1).table;
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_EQ(table.rows[2][1].value, 100);
  EXPECT_EQ(table.rows[1][2].value, 4e-3);
  EXPECT_FALSE(table.rows[0][2].value) << "no selection yet";
}

TEST(SearchSection, PictureHasThreeCurvesWithoutWhatIsUnknown) {
  const std::string svg = search_picture(kPoints).svg;
  EXPECT_EQ(count_of("best step after", svg), 2U) << "two lines from the second point on";
  EXPECT_EQ(count_of("lower bound after", svg), 4U);
  EXPECT_EQ(count_of("candidates tried after", svg), 4U);
  EXPECT_EQ(count_of(" at the end", svg), 3U);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(SearchSection, NoPointsAndNoTimeAreNoNumbers) {
  for (const std::vector<ExplorationPoint>& points :
       {std::vector<ExplorationPoint>(), {{0, 0, 0, 0}}, {{0, 5, 1e-3, 1e-3}}}) {
    const std::string svg = search_picture(points).svg;
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace
