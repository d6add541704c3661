#include "measure/probes.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace millrace {
namespace {

constexpr uint64_t kSeed = 20210101;

class Prober {
 public:
  Prober(const Graph& graph, const Part& part, const Truth& truth) : part_(part), truth_(truth) {
    const Product& product = part.product;
    for (const TensorId tensor : product.scales) {
      const auto at = std::find(graph.arguments.begin(), graph.arguments.end(), tensor);
      scale_ *= graph.tensor(tensor).role == TensorRole::constant
                    ? graph.tensor(tensor).value
                    : truth.arguments[static_cast<size_t>(at - graph.arguments.begin())];
    }
    stack_ = product.indices.size();
    for (size_t operand = 0; operand < 3; ++operand) {
      const std::vector<TensorId>& list = operand == 2 ? part.writes : part.reads;
      for (const TensorId tensor : product.tensors[operand])
        places_[operand].push_back(static_cast<size_t>(std::find(list.begin(), list.end(), tensor) - list.begin()));
      for (size_t index = 0; index < product.indices.size(); ++index) {
        const bool stacks = product.indices[index].stacks[operand];
        if (stacks) stack_ = index;
        const TensorId tensor = product.tensors[operand].front();
        steps_[operand].push_back(stacks ? 0
                                         : step_along(graph, product, operand, index, written_layout(graph, tensor)));
      }
    }
  }

  std::vector<Probe> run(size_t count) {
    std::vector<Probe> probes;
    for (size_t k = 0; k < count; ++k) probes.push_back(probe());
    return probes;
  }

 private:
  using Point = std::vector<int64_t>;

  // Which of an operand's tensors, and which element of it.
  size_t place(size_t operand, const Point& point) const {
    return places_[operand][places_[operand].size() > 1 ? static_cast<size_t>(point[stack_]) : 0];
  }
  size_t element(size_t operand, const Point& point) const {
    int64_t at = 0;
    for (size_t index = 0; index < point.size(); ++index) at += steps_[operand][index] * point[index];
    return static_cast<size_t>(at);
  }

  Probe probe() {
    const std::vector<ProductIndex>& indices = part_.product.indices;
    Point point;
    for (const ProductIndex& index : indices) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      point.push_back(index.reduced ? 0 : static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(index.extent)));
    }
    Probe made;
    bool more = true;
    while (more) {
      const double term = truth_.inputs[place(0, point)][element(0, point)] *
                          truth_.inputs[place(1, point)][element(1, point)] * scale_;
      made.value += term;
      made.magnitude += std::abs(term);
      more = false;
      for (size_t index = point.size(); index-- > 0 && !more;) {
        if (!indices[index].reduced) continue;
        more = ++point[index] < indices[index].extent;
        if (!more) point[index] = 0;
      }
    }
    made.output = place(2, point);
    made.element = element(2, point);
    return made;
  }

  const Part& part_;
  const Truth& truth_;
  double scale_ = 1;
  std::array<std::vector<size_t>, 3> places_;
  std::array<std::vector<int64_t>, 3> steps_;  // row-major ones
  size_t stack_ = 0;                           // the index that counts stacked tensors
  uint64_t state_ = kSeed;
};

}  // namespace

std::vector<Probe> probes_of(const Graph& graph, const Part& part, const Truth& truth, size_t count) {
  return Prober(graph, part, truth).run(count);
}

double depth_of(const Part& part) {
  double depth = 1;
  for (const ProductIndex& index : part.product.indices) depth *= index.reduced ? static_cast<double>(index.extent) : 1;
  return depth;
}

double sum_tolerance(DType dtype, double depth, double magnitude, double value) {
  // Each lies within depth·u·Σ|a||b| of the exact sum.
  const double roundoff = dtype == DType::float64 ? 0x1p-53 : 0x1p-24;
  return 2 * (depth + 2) * roundoff * std::abs(magnitude) + 2 * storage_error(dtype, value);
}

}  // namespace millrace
