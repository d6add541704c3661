// Sugiyama's method: layers by longest path, long edges cut at every layer, orders by barycentres, then positions as
// close to the neighbours as the order allows.
#include "report/html/layered_layout.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace millrace {
namespace {

constexpr double kMargin = 8;
constexpr double kGapAcross = 14;
constexpr double kGapDown = 34;
constexpr int kSweeps = 24;
constexpr size_t kMostVisits = 3'000'000;  // of vertices in all sweeps: a second
constexpr size_t kMostCrossings = 50'000;  // of edges with layers; further edges are drawn as one line

// A node, or the point where a long edge crosses a layer.
struct Vertex {
  double width = 0;
  double height = 0;
  size_t layer = 0;
  double centre = 0;
  std::vector<size_t> above;
  std::vector<size_t> below;
};

// How many pairs of lines cross; a line is a pair of positions, above and below.
size_t inversions(std::vector<double>& below) {
  if (below.size() < 2) return 0;
  const auto middle = static_cast<ptrdiff_t>(below.size() / 2);
  std::vector<double> left(below.begin(), below.begin() + middle);
  std::vector<double> right(below.begin() + middle, below.end());
  size_t count = inversions(left) + inversions(right);
  auto before = left.begin();
  for (const double position : right) {
    while (before != left.end() && *before <= position) ++before;
    count += static_cast<size_t>(left.end() - before);
  }
  below.clear();
  std::merge(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(below));
  return count;
}

size_t crossings_of(std::vector<std::pair<double, double>> lines) {
  std::sort(lines.begin(), lines.end());
  std::vector<double> below;
  for (const auto& line : lines) below.push_back(line.second);
  return inversions(below);
}

class Layering {
 public:
  Layering(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges) : edges_(edges) {
    for (const LayeredNode& node : nodes) vertices_.push_back({node.width, node.height, 0, 0, {}, {}});
    find_layers(nodes.size());
    cut_edges();
    order();
    place();
  }

  LayeredDrawing drawing(size_t nodes) const {
    std::vector<double> tops;
    std::vector<double> bottoms;
    double y = kMargin;
    for (const std::vector<size_t>& layer : layers_) {
      tops.push_back(y);
      double height = 0;
      for (const size_t v : layer) height = std::max(height, vertices_[v].height);
      bottoms.push_back(y + height);
      y += height + kGapDown;
    }
    LayeredDrawing made;
    made.height = layers_.empty() ? 2 * kMargin : y - kGapDown + kMargin;
    const auto top = [&](size_t v) { return tops[vertices_[v].layer]; };
    double left = std::numeric_limits<double>::infinity();
    for (const Vertex& vertex : vertices_) left = std::min(left, vertex.centre - vertex.width / 2);
    const auto centre = [&](size_t v) { return vertices_[v].centre - left + kMargin; };
    for (size_t v = 0; v < nodes; ++v) made.nodes.push_back({centre(v) - vertices_[v].width / 2, top(v)});
    for (size_t v = 0; v < vertices_.size(); ++v)
      made.width = std::max(made.width, centre(v) + vertices_[v].width / 2 + kMargin);
    for (const std::vector<size_t>& chain : chains_) {
      // Straight down through layers, so that edges cross no node there; sideways only between layers.
      std::vector<Point> points{{centre(chain.front()), top(chain.front()) + vertices_[chain.front()].height}};
      for (size_t k = 0; k < chain.size(); ++k) {
        const double bottom = bottoms[vertices_[chain[k]].layer];
        if (k > 0) extend(points, {centre(chain[k]), top(chain[k])});
        if (k + 1 < chain.size() && points.back().y < bottom) extend(points, {centre(chain[k]), bottom});
      }
      made.edges.push_back(std::move(points));
    }
    return made;
  }

 private:
  // Lengthens the last line if it goes straight on.
  static void extend(std::vector<Point>& points, Point to) {
    const bool straight = points.size() > 1 && points.back().x == to.x && points[points.size() - 2].x == to.x;
    if (straight) points.pop_back();
    points.push_back(to);
  }

  // Below everything above it; sources are just above their first reader.
  void find_layers(size_t nodes) {
    std::vector<size_t> left(nodes, 0);
    std::vector<std::vector<size_t>> below(nodes);
    for (const LayeredEdge& edge : edges_) {
      below[edge.from].push_back(edge.to);
      ++left[edge.to];
    }
    const std::vector<size_t> inputs = left;
    std::vector<size_t> ready;
    for (size_t v = 0; v < nodes; ++v) {
      if (left[v] == 0) ready.push_back(v);
    }
    for (size_t k = 0; k < ready.size(); ++k) {
      for (const size_t to : below[ready[k]]) {
        vertices_[to].layer = std::max(vertices_[to].layer, vertices_[ready[k]].layer + 1);
        if (--left[to] == 0) ready.push_back(to);
      }
    }
    for (size_t v = 0; v < nodes; ++v) {
      if (inputs[v] > 0 || below[v].empty()) continue;
      size_t first = vertices_[below[v].front()].layer;
      for (const size_t to : below[v]) first = std::min(first, vertices_[to].layer);
      vertices_[v].layer = first - 1;
    }
  }

  void cut_edges() {
    for (const LayeredEdge& edge : edges_) {
      std::vector<size_t> chain{edge.from};
      const bool cut = vertices_.size() + vertices_[edge.to].layer < kMostCrossings;
      for (size_t layer = vertices_[edge.from].layer + 1; cut && layer < vertices_[edge.to].layer; ++layer) {
        chain.push_back(vertices_.size());
        vertices_.push_back({4, 0, layer, 0, {}, {}});
      }
      chain.push_back(edge.to);
      for (size_t k = 1; k < chain.size(); ++k) {
        vertices_[chain[k - 1]].below.push_back(chain[k]);
        vertices_[chain[k]].above.push_back(chain[k - 1]);
      }
      chains_.push_back(std::move(chain));
    }
    for (size_t v = 0; v < vertices_.size(); ++v) {
      layers_.resize(std::max(layers_.size(), vertices_[v].layer + 1));
      layers_[vertices_[v].layer].push_back(v);
    }
  }

  template <class Value>
  static double mean(const std::vector<size_t>& nodes, const Value& value, double otherwise) {
    if (nodes.empty()) return otherwise;
    double sum = 0;
    for (const size_t v : nodes) sum += value(v);
    return sum / static_cast<double>(nodes.size());
  }

  size_t crossings(const std::vector<double>& position) const {
    size_t count = 0;
    for (size_t layer = 0; layer + 1 < layers_.size(); ++layer) {
      std::vector<std::pair<double, double>> pieces;
      for (const size_t v : layers_[layer]) {
        for (const size_t to : vertices_[v].below) pieces.emplace_back(position[v], position[to]);
      }
      count += crossings_of(std::move(pieces));
    }
    return count;
  }

  // Fewer for a large graph, so that drawing takes time in proportion to it.
  int sweeps() const {
    return static_cast<int>(std::min<size_t>(kSweeps, kMostVisits / std::max<size_t>(vertices_.size(), 1) + 2));
  }

  // Down and up in turns, each layer by the mean position of its neighbours; keeps the order with the fewest crossings.
  void order() {
    std::vector<double> position(vertices_.size());
    const auto number = [&](const std::vector<size_t>& layer) {
      for (size_t k = 0; k < layer.size(); ++k)
        position[layer[k]] = static_cast<double>(k) - static_cast<double>(layer.size()) / 2;
    };
    const auto number_of = [&](size_t v) { return position[v]; };
    for (const std::vector<size_t>& layer : layers_) number(layer);
    std::vector<std::vector<size_t>> best = layers_;
    size_t fewest = crossings(position);
    std::vector<double> wanted(vertices_.size());
    for (int sweep = 0; sweep < sweeps() && fewest > 0; ++sweep) {
      const bool down = sweep % 2 == 0;
      for (size_t k = 0; k < layers_.size(); ++k) {
        std::vector<size_t>& layer = layers_[down ? k : layers_.size() - 1 - k];
        for (const size_t v : layer)
          wanted[v] = mean(down ? vertices_[v].above : vertices_[v].below, number_of, position[v]);
        std::stable_sort(layer.begin(), layer.end(), [&](size_t l, size_t r) { return wanted[l] < wanted[r]; });
        number(layer);
      }
      const size_t count = crossings(position);
      if (count >= fewest) continue;
      fewest = count;
      best = layers_;
    }
    layers_ = std::move(best);
  }

  // The positions closest to the desired ones, by least squares, that keep the order and the gaps: nodes that would
  // overlap are pooled into one block, which goes to the mean of its members' desired positions.
  void settle(const std::vector<size_t>& layer, const std::vector<double>& wanted) {
    struct Pool {
      double sum = 0;
      size_t count = 0;
      double mean() const { return sum / static_cast<double>(count); }
    };
    std::vector<Pool> pools;
    std::vector<double> offsets;
    double offset = 0;
    for (size_t k = 0; k < layer.size(); ++k) {
      if (k > 0) offset += (vertices_[layer[k - 1]].width + vertices_[layer[k]].width) / 2 + kGapAcross;
      offsets.push_back(offset);
      pools.push_back({wanted[layer[k]] - offset, 1});
      while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
        const Pool last = pools.back();
        pools.pop_back();
        pools.back().sum += last.sum;
        pools.back().count += last.count;
      }
    }
    size_t k = 0;
    for (const Pool& pool : pools) {
      for (size_t member = 0; member < pool.count; ++member, ++k) vertices_[layer[k]].centre = pool.mean() + offsets[k];
    }
  }

  void place() {
    std::vector<double> wanted(vertices_.size(), 0);
    const auto centres = [&](size_t v) { return vertices_[v].centre; };
    for (const std::vector<size_t>& layer : layers_) settle(layer, wanted);
    for (int sweep = 0; sweep < sweeps(); ++sweep) {
      const bool down = sweep % 2 == 0;
      for (size_t k = 0; k < layers_.size(); ++k) {
        const std::vector<size_t>& layer = layers_[down ? k : layers_.size() - 1 - k];
        for (const size_t v : layer) {
          const std::vector<size_t>& first = down ? vertices_[v].above : vertices_[v].below;
          const std::vector<size_t>& other = down ? vertices_[v].below : vertices_[v].above;
          wanted[v] = mean(first.empty() ? other : first, centres, vertices_[v].centre);
        }
        settle(layer, wanted);
      }
    }
  }

  const std::vector<LayeredEdge>& edges_;
  std::vector<Vertex> vertices_;
  std::vector<std::vector<size_t>> layers_;
  std::vector<std::vector<size_t>> chains_;
};

}  // namespace

LayeredDrawing draw_layered(const std::vector<LayeredNode>& nodes, const std::vector<LayeredEdge>& edges) {
  return Layering(nodes, edges).drawing(nodes.size());
}

}  // namespace millrace
