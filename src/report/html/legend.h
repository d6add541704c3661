// Legends: under a picture in the page, inside the picture in a file of its own. Test: tests/report/legend_test.cpp
#pragma once

#include <string>
#include <vector>

#include "report/html/document.h"

namespace millrace {

// A list for the page; empty if there is nothing to explain.
std::string legend_html(const std::vector<LegendItem>& legend);

// The picture with its legend below it.
std::string with_legend(const Picture& picture);

// The classes of operators, as all pictures colour them.
std::vector<LegendItem> class_legend(LegendItem::Shape shape);

}  // namespace millrace
