#include "report/html/layered_layout.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace {
namespace {

struct Sample {
  std::vector<LayeredNode> nodes;
  std::vector<LayeredEdge> edges;
};

Sample random_graph(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned end) { return static_cast<unsigned>(random() % end); };
  Sample made;
  const unsigned count = 2 + below(60);
  for (unsigned k = 0; k < count; ++k) made.nodes.push_back({20.0 + below(200), 15.0 + below(30)});
  for (unsigned to = 1; to < count; ++to) {
    for (unsigned tries = below(4); tries > 0; --tries) made.edges.push_back({below(to), to});
  }
  return made;
}

bool overlap(const Sample& sample, const LayeredDrawing& drawing, size_t a, size_t b) {
  const Point p = drawing.nodes[a];
  const Point q = drawing.nodes[b];
  return p.x < q.x + sample.nodes[b].width && q.x < p.x + sample.nodes[a].width && p.y < q.y + sample.nodes[b].height &&
         q.y < p.y + sample.nodes[a].height;
}

TEST(LayeredLayout, NoTwoNodesOverlapAndEdgesGoDown) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Sample sample = random_graph(seed);
    const LayeredDrawing drawing = draw_layered(sample.nodes, sample.edges);
    ASSERT_EQ(drawing.nodes.size(), sample.nodes.size());
    ASSERT_EQ(drawing.edges.size(), sample.edges.size());
    for (size_t a = 0; a < sample.nodes.size(); ++a) {
      EXPECT_GE(drawing.nodes[a].x, 0);
      EXPECT_LE(drawing.nodes[a].x + sample.nodes[a].width, drawing.width);
      EXPECT_LE(drawing.nodes[a].y + sample.nodes[a].height, drawing.height);
      for (size_t b = a + 1; b < sample.nodes.size(); ++b)
        EXPECT_FALSE(overlap(sample, drawing, a, b)) << "seed " << seed << ": " << a << " and " << b;
    }
    for (const std::vector<Point>& edge : drawing.edges) {
      for (size_t k = 1; k < edge.size(); ++k) EXPECT_GT(edge[k].y, edge[k - 1].y) << "seed " << seed;
    }
  }
}

// Inside a layer an edge goes straight down, and nothing is in its path.
TEST(LayeredLayout, EdgesCrossNoNode) {
  size_t vertical = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Sample sample = random_graph(seed);
    const LayeredDrawing drawing = draw_layered(sample.nodes, sample.edges);
    for (size_t e = 0; e < drawing.edges.size(); ++e) {
      const std::vector<Point>& edge = drawing.edges[e];
      for (size_t k = 1; k < edge.size(); ++k) {
        if (edge[k].x != edge[k - 1].x) continue;
        ++vertical;
        for (size_t n = 0; n < sample.nodes.size(); ++n) {
          if (n == sample.edges[e].from || n == sample.edges[e].to) continue;
          const Point corner = drawing.nodes[n];
          const bool across = edge[k].x > corner.x && edge[k].x < corner.x + sample.nodes[n].width;
          const bool along = edge[k].y > corner.y && edge[k - 1].y < corner.y + sample.nodes[n].height;
          EXPECT_FALSE(across && along) << "seed " << seed << ": edge " << e << ", node " << n;
        }
      }
    }
  }
  EXPECT_GT(vertical, 0U);
}

// The report of a chain of 300 operators that all read one tensor took minutes.
TEST(LayeredLayout, ALargeGraphTakesTimeInProportion) {
  Sample sample;
  for (size_t k = 0; k < 3000; ++k) {
    sample.nodes.push_back({20, 15});
    if (k > 0) sample.edges.push_back({k - 1, k});
    if (k > 1) sample.edges.push_back({0, k});
  }
  const LayeredDrawing drawing = draw_layered(sample.nodes, sample.edges);
  ASSERT_EQ(drawing.edges.size(), sample.edges.size());
  size_t points = 0;
  for (const std::vector<Point>& edge : drawing.edges) points += edge.size();
  EXPECT_LT(points, 1'000'000U);
}

TEST(LayeredLayout, ASourceIsJustAboveItsReader) {
  // 0 → 1 → 2 → 3, and 4 → 3.
  const std::vector<LayeredNode> nodes(5, {10, 10});
  const LayeredDrawing drawing = draw_layered(nodes, {{0, 1}, {1, 2}, {2, 3}, {4, 3}});
  EXPECT_EQ(drawing.nodes[4].y, drawing.nodes[2].y);
}

TEST(LayeredLayout, AnEmptyGraphGivesAnEmptyDrawing) {
  const LayeredDrawing drawing = draw_layered({}, {});
  EXPECT_TRUE(drawing.nodes.empty());
}

}  // namespace
}  // namespace millrace
