// The search over time: best step, lower bound and candidates tried. Test: tests/report/search_section_test.cpp
#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/pictures.h"
#include "report/report_sections.h"

namespace millrace {

Section search_section(const std::vector<ExplorationPoint>& points) {
  Section section{"search",
                  "The search over time",
                  "What the time was worth: if the best step stopped falling long before the end, a smaller --budget "
                  "does as well; if it still falls, a larger one does better.",
                  {}};
  section.add(search_picture(points));
  DataTable table{
      "search_points",
      "The same as numbers.",
      {{"seconds", "seconds"}, {"tried", "tried"}, {"step_seconds", "best step"}, {"bound_seconds", "bound"}},
      {},
      true};
  for (const ExplorationPoint& point : points)
    table.rows.push_back({Cell(fixed(point.seconds, 1), point.seconds), Cell(with_commas(point.tried), point.tried),
                          seconds_cell(point.step), seconds_cell(point.bound)});
  section.add(std::move(table));
  return section;
}

}  // namespace millrace
