#include "report/html/graphviz_layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/process.h"
#include "base/temporary_directory.h"
#include "base/text.h"
#include "report/html/graph_layout.h"

namespace millrace {
namespace {

const std::vector<LayeredNode> kNodes = {{72, 36}, {72, 36}, {144, 36}};
const std::vector<LayeredEdge> kEdges = {{0, 1}, {0, 1}, {1, 2}};
constexpr const char* kPlain =
    "graph 1 2 3\n"
    "node 0 1 2.75 1 0.5 \"\" solid box black lightgrey\n"
    "node 1 1 1.75 1 0.5 \"\" solid box black lightgrey\n"
    "node 2 1 0.25 2 0.5 \"\" solid box black lightgrey\n"
    "edge 0 1 4 1 2.5 1 2.4 1 2.1 1 2 solid black\n"
    "edge 0 1 4 0.9 2.5 0.9 2.4 0.9 2.1 0.9 2 solid black\n"
    "edge 1 2 7 1 1.5 1 1.4 1 1.1 1 1 1 0.9 1 0.6 1 0.5 solid black\n"
    "stop\n";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

// A PATH that contains only a fake dot, for one test.
class PretendedDot {
 public:
  explicit PretendedDot(const std::string& script) : folder_(TemporaryDirectory::make("/tmp")) {
    const std::string path = folder_->path() + "/dot";
    if (!script.empty()) {
      std::ofstream(path) << "#!/bin/sh\n" << script;
      std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    }
    if (const char* before = std::getenv("PATH")) before_ = before;
    setenv("PATH", folder_->path().c_str(), 1);
  }
  PretendedDot(const PretendedDot&) = delete;
  PretendedDot& operator=(const PretendedDot&) = delete;
  ~PretendedDot() { setenv("PATH", before_.c_str(), 1); }

 private:
  Result<TemporaryDirectory> folder_;
  std::string before_;
};

TEST(GraphvizLayout, ReadsTheOutputOfDot) {
  const Result<LayeredDrawing> drawing = parse_plain(kPlain, kNodes, kEdges);
  ASSERT_TRUE(drawing);
  EXPECT_TRUE(drawing->splines);
  EXPECT_EQ(drawing->width, 144 + 16);
  EXPECT_EQ(drawing->height, 216 + 16);
  EXPECT_EQ(drawing->nodes[0].x, 8 + 36);
  EXPECT_EQ(drawing->nodes[0].y, 8);  // upwards in Graphviz, downwards here
  EXPECT_EQ(drawing->nodes[2].y, 8 + 180);
  ASSERT_EQ(drawing->edges[2].size(), 7U);
  EXPECT_NE(drawing->edges[0].front().x, drawing->edges[1].front().x);
  EXPECT_LT(drawing->edges[2].front().y, drawing->edges[2].back().y);
}

TEST(GraphvizLayout, RejectsInvalidDrawings) {
  const std::vector<std::pair<std::string, std::string>> damages = {
      {"stop\n", ""},                                          // cut off
      {"graph 1 2 3\n", ""},                                   // no size
      {"graph 1 2 3", "graph 1 2 nan"},                        //
      {"graph 1 2 3", "graph 1 2 1e300"},                      //
      {"graph 1 2 3", "graph 2 2 3"},                          // scaled
      {"node 0 1 2.75", "node 1 1 2.75"},                      // one twice, one missing
      {"node 0 1 2.75", "node 7 1 2.75"},                      // unknown
      {"node 0 1 2.75", "node -1 1 2.75"},                     //
      {"node 0 1 2.75", "node 0 1 inf"},                       //
      {"node 0 1 2.75", "node 0 500 2.75"},                    // outside
      {"node 0 1 2.75", "node 0 one 2.75"},                    //
      {"edge 0 1 4 1 2.5", "edge 0 2 4 1 2.5"},                // an edge that does not exist
      {"edge 0 1 4 1 2.5", "edge 0 1 5 1 2.5"},                // not a cubic spline
      {"edge 0 1 4 1 2.5", "edge 0 1 4 x 2.5"},                //
      {"edge 0 1 4 1 2.5", "edge 0 1 99999999 1 2.5"},         //
      {"edge 1 2 7 1 1.5", "edge 1 2 10 1 1.5"},               // fewer points than announced
      {"edge 0 1 4 1 2.5 1 2.4 1 2.1 1 2 solid black\n", ""},  // one missing
  };
  for (const auto& [what, with] : damages)
    EXPECT_FALSE(parse_plain(replaced(kPlain, what, with), kNodes, kEdges)) << what << " -> " << with;
  EXPECT_FALSE(parse_plain("", kNodes, kEdges));
  EXPECT_FALSE(parse_plain(std::string("\0\0\xff garbage \n", 12), kNodes, kEdges));
}

TEST(GraphvizLayout, ThereIsADrawingWhateverDotDoes) {
  const std::vector<std::pair<std::string, std::string>> dots = {
      {"", "not installed"},
      {"echo nonsense\n", "not a drawing"},
      {"exit 3\n", "failed"},
      {"kill -SEGV $$\n", "failed"},
      {"while :; do echo node 0 1 2 3; done\n", "took too long"},
  };
  for (const auto& [script, reason] : dots) {
    const PretendedDot pretended(script);
    GraphLayout layout;
    for (int again = 0; again < 3; ++again) {
      const LayeredDrawing drawing = layout.draw(kNodes, kEdges);
      EXPECT_EQ(drawing.nodes.size(), kNodes.size());
      EXPECT_EQ(drawing.edges.size(), kEdges.size());
      EXPECT_FALSE(drawing.splines);
    }
    EXPECT_NE(layout.note().find("Millrace laid out"), std::string::npos) << layout.note();
    EXPECT_NE(layout.note().find(reason), std::string::npos) << layout.note();
  }
}

// A report has several drawings, and each used to get two seconds of its own.
TEST(GraphvizLayout, AllDrawingsShareItsTime) {
  const PretendedDot pretended(concat("/bin/sleep 1.2\nprintf '%s' '", kPlain, "'\n"));
  GraphLayout layout;
  for (int again = 0; again < 2; ++again) (void)layout.draw(kNodes, kEdges);
  EXPECT_NE(layout.note().find("Millrace laid out"), std::string::npos) << layout.note();
}

TEST(GraphvizLayout, TheDrawingOfDotIsUsed) {
  const PretendedDot pretended(
      concat("[ \"$*\" = -Tplain ] || exit 1\nread first\n[ \"$first\" = 'digraph {' ] || exit 1\nprintf '%s' '",
             kPlain, "'\n"));
  GraphLayout layout;
  EXPECT_TRUE(layout.draw(kNodes, kEdges).splines) << layout.note();
  EXPECT_NE(layout.note().find("Graphviz laid out"), std::string::npos);
}

TEST(GraphvizLayout, BoxesOfTheRealDotDoNotOverlap) {
  if (!find_program("dot")) GTEST_SKIP() << "no Graphviz here: its dot is not asked";
  std::vector<LayeredNode> nodes;
  std::vector<LayeredEdge> edges;
  for (size_t k = 0; k < 30; ++k) {
    nodes.push_back({30.0 + 17.0 * static_cast<double>(k % 7), 22});
    if (k > 0) edges.push_back({k / 2, k});
    if (k > 4) edges.push_back({k - 4, k});
  }
  const Result<LayeredDrawing> drawing = draw_by_graphviz(nodes, edges, 60);
  ASSERT_TRUE(drawing) << to_string(drawing.error());
  for (size_t a = 0; a < nodes.size(); ++a) {
    for (size_t b = a + 1; b < nodes.size(); ++b) {
      const Point p = drawing->nodes[a];
      const Point q = drawing->nodes[b];
      EXPECT_FALSE(p.x < q.x + nodes[b].width && q.x < p.x + nodes[a].width && p.y < q.y + nodes[b].height &&
                   q.y < p.y + nodes[a].height)
          << a << " and " << b;
    }
  }
  for (size_t e = 0; e < edges.size(); ++e) {
    EXPECT_LT(drawing->edges[e].front().y, drawing->edges[e].back().y);
    const Point end = drawing->edges[e].back();
    const Point corner = drawing->nodes[edges[e].to];
    const LayeredNode& box = nodes[edges[e].to];
    EXPECT_TRUE(end.x > corner.x - 2 && end.x < corner.x + box.width + 2 && end.y > corner.y - 2 &&
                end.y < corner.y + box.height + 2)
        << "a line ends at its box";
  }
}

}  // namespace
}  // namespace millrace
