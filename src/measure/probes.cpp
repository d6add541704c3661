#include "measure/probes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/parallel.h"
#include "measure/library_gelu.h"
#include "reference/activations.h"

namespace millrace {
namespace {

constexpr uint64_t kProbeSeed = 20210101;

class Prober {
 public:
  Prober(const Graph& graph, const Partition& partition, const ReferenceData& reference_data)
      : partition_(partition), reference_data_(reference_data), scale_(factor_of(graph, partition, reference_data)) {
    const Product& product = partition.product;
    stack_ = product.indices.size();
    for (size_t operand = 0; operand < (product.vector ? 4 : 3); ++operand) {
      const std::vector<TensorId>& tensors = product.operand(operand);
      const std::vector<TensorId>& list = product.is_written(operand) ? partition.writes : partition.reads;
      for (const TensorId tensor : tensors)
        places_[operand].push_back(static_cast<size_t>(std::find(list.begin(), list.end(), tensor) - list.begin()));
      for (size_t index = 0; index < product.indices.size(); ++index) {
        const bool stacks = product.is_stacked_along(operand, product.indices[index]);
        if (stacks) stack_ = index;
        const Layout layout = written_layout(graph, tensors.front());
        steps_[operand].push_back(stacks ? 0 : step_along(graph, product, operand, index, layout));
      }
    }
    const std::vector<TensorId>& list = product.writes_auxiliary() ? partition.writes : partition.reads;
    place_beside_ = static_cast<size_t>(std::find(list.begin(), list.end(), product.companion()) - list.begin());
  }

  std::vector<Probe> run(size_t count) {
    constexpr int64_t kSlice = 16;  // probes that are worth a thread
    std::vector<Point> points;
    for (size_t k = 0; k < count; ++k) points.push_back(by_chance());
    std::vector<std::vector<Probe>> made(count);
    in_parallel(static_cast<int64_t>(count), kSlice, [&](int64_t begin, int64_t end) {
      for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) probe(points[k], made[k]);
    });
    std::vector<Probe> probes;
    for (const std::vector<Probe>& of : made) probes.insert(probes.end(), of.begin(), of.end());
    return probes;
  }

 private:
  using Point = std::vector<int64_t>;

  Point by_chance() {
    Point point;
    for (const ProductIndex& index : partition_.product.indices) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      point.push_back(index.reduced ? 0 : static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(index.extent)));
    }
    return point;
  }

  // Which of an operand's tensors, and which element of it.
  size_t place(size_t operand, const Point& point) const {
    return places_[operand][places_[operand].size() > 1 ? static_cast<size_t>(point[stack_]) : 0];
  }
  size_t element(size_t operand, const Point& point) const {
    int64_t at = 0;
    for (size_t index = 0; index < point.size(); ++index) at += steps_[operand][index] * point[index];
    return static_cast<size_t>(at);
  }

  double input(size_t operand, const Point& point) const {
    return reference_data_.inputs[place(operand, point)][element(operand, point)];
  }

  double beside(const Point& point) const { return reference_data_.inputs[place_beside_][element(2, point)]; }

  // An element of the result; one of the sum, where the product sums an operand, and the same of its auxiliary matrix.
  void probe(Point point, std::vector<Probe>& probes) const {
    const std::vector<ProductIndex>& indices = partition_.product.indices;
    const std::optional<ProductVector>& vector = partition_.product.vector;
    Probe made;
    Probe summed;
    const auto add = [](Probe& to, double term) {
      to.value += term;
      to.magnitude += std::abs(term);
    };
    bool more = true;
    while (more) {
      const double a = input(0, point);
      const double b = input(1, point);
      add(made, a * b * scale_);
      add(summed, vector && vector->role == ProductVector::Role::gradient_of_b ? b : a);
      more = false;
      for (size_t index = point.size(); index-- > 0 && !more;) {
        if (!indices[index].reduced) continue;
        more = ++point[index] < indices[index].extent;
        if (!more) point[index] = 0;
      }
    }
    if (vector && !vector->written()) add(made, input(kVectorOperand, point));
    if (partition_.product.adds()) add(made, beside(point));
    made.output = place(2, point);
    made.element = element(2, point);
    if (partition_.product.writes_auxiliary()) {
      probes.push_back(made);
      probes.back().output = place_beside_;
    }
    activate(made, point);
    probes.push_back(made);
    if (!vector || !vector->written()) return;
    summed.output = place(kVectorOperand, point);
    summed.element = element(kVectorOperand, point);
    probes.push_back(summed);
  }

  // The magnitudes as the product of magnitudes makes them.
  void activate(Probe& made, const Point& point) const {
    switch (partition_.product.activation) {
      case Activation::none: return;
      case Activation::relu: made.value = std::max(made.value, 0.0); return;
      case Activation::gelu:
        made.value = gelu_tanh(made.value);
        made.magnitude = gelu_tanh(made.magnitude);
        return;
      case Activation::gelu_gradient:
        made.value = gelu_tanh_dx(beside(point), made.value);
        made.magnitude = gelu_tanh_dx(std::abs(beside(point)), made.magnitude);
        return;
    }
  }

  const Partition& partition_;
  const ReferenceData& reference_data_;
  double scale_;
  std::array<std::vector<size_t>, 4> places_;
  std::array<std::vector<int64_t>, 4> steps_;  // row-major ones
  size_t place_beside_ = 0;                    // of what is added, or auxiliary, among what is read or written
  size_t stack_ = 0;                           // the index that counts stacked tensors
  uint64_t state_ = kProbeSeed;
};

}  // namespace

std::vector<Probe> probes_of(const Graph& graph, const Partition& partition, const ReferenceData& reference_data,
                             size_t count) {
  return Prober(graph, partition, reference_data).run(count);
}

double factor_of(const Graph& graph, const Partition& partition, const ReferenceData& reference_data) {
  return factor_of(graph, partition.product.scales, reference_data);
}

bool is_added(const Partition& partition, TensorId tensor) {
  const std::vector<TensorId>& vectors = partition.product.operand(kVectorOperand);
  return tensor == partition.product.added || std::find(vectors.begin(), vectors.end(), tensor) != vectors.end();
}

double depth_of(const Partition& partition) {
  double depth = 1;
  for (const ProductIndex& index : partition.product.indices)
    depth *= index.reduced ? static_cast<double>(index.extent) : 1;
  return depth;
}

double tolerance_of(const Graph& graph, const Partition& partition, TensorId tensor, double magnitude, double value) {
  // Each lies within (depth + 2)·u·Σ|a||b| of the exact sum: the products and their sum, a factor, a bias or what
  // is added. What that is added to is not rounded before, and a ReLU brings nothing further apart.
  const DType dtype = graph.tensor(tensor).dtype;
  const double roundoff = dtype == DType::float64 ? 0x1p-53 : 0x1p-24;
  double of_sum = (depth_of(partition) + 2) * roundoff * std::abs(magnitude);
  // A GELU of the sum of magnitudes is at least half of it, and so is the gradient's slope there.
  const bool is_result = tensor == partition.product.tensors[2].front();
  const Activation activation = is_result ? partition.product.activation : Activation::none;
  if (activation == Activation::gelu || activation == Activation::gelu_gradient) of_sum *= 2 * kSteepestGelu;
  // Where the sum is positive its GELU is at least half of it.
  if (activation == Activation::gelu) of_sum += kTanhError * std::abs(value) + library_gelu_error(-kMostNegative);
  if (activation == Activation::gelu_gradient) of_sum += kGradientError * 2 * std::abs(magnitude);
  return 2 * of_sum + 2 * storage_error(dtype, value);
}

}  // namespace millrace
