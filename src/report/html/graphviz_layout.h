// Lays out an acyclic graph with Graphviz's dot. It receives sizes and numbers, never a name from a program, and its
// answer is checked like any input. Test: tests/report/graphviz_layout_test.cpp
#pragma once

#include <string_view>
#include <vector>

#include "millrace/result.h"
#include "report/html/layered_layout.h"

namespace millrace {

// Fails if there is no dot on the PATH, if it fails, or if it does not answer within this many seconds.
Result<LayeredDrawing> draw_by_graphviz(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges,
                                        double seconds);

// Parses what `dot -Tplain` printed for these nodes and edges.
Result<LayeredDrawing> parse_plain(std::string_view text, const std::vector<LayeredNode>& nodes,
                                   const std::vector<LayeredEdge>& edges);

}  // namespace millrace
