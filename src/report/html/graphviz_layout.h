// Where Graphviz's dot draws the nodes of an acyclic graph. It gets sizes and numbers, never a name of a program, and
// its answer is checked like any input. Test: tests/report/graphviz_layout_test.cpp
#pragma once

#include <string_view>
#include <vector>

#include "millrace/result.h"
#include "report/html/layered_layout.h"

namespace millrace {

// An error says why there is no drawing: there is no dot on the PATH, or it failed, or did not answer in time.
Result<LayeredDrawing> draw_by_graphviz(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges);

// What `dot -Tplain` printed of the nodes and edges that it was given.
Result<LayeredDrawing> parse_plain(std::string_view text, const std::vector<LayeredNode>& nodes,
                                   const std::vector<LayeredEdge>& edges);

}  // namespace millrace
