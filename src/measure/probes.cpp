#include "measure/probes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/parallel.h"
#include "base/position.h"
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
      for (const TensorId tensor : tensors) positions_[operand].push_back(position_in(list, tensor));
      origins_[operand] = origin_of(graph, product, operand, written_layout(graph, tensors.front()));
      for (size_t index = 0; index < product.indices.size(); ++index) {
        const bool stacks = product.is_stacked_along(operand, product.indices[index]);
        if (stacks) stack_ = index;
        const Layout layout = written_layout(graph, tensors.front());
        strides_[operand].push_back(stacks ? 0 : stride_along(graph, product, operand, index, layout));
      }
    }
    const std::vector<TensorId>& list = product.writes_auxiliary() ? partition.writes : partition.reads;
    epilogue_position_ = position_in(list, product.companion());
  }

  std::vector<Probe> run(size_t count) {
    constexpr int64_t kSlice = 16;  // probes per thread
    std::vector<Point> points;
    for (size_t k = 0; k < count; ++k) points.push_back(random_point());
    std::vector<std::vector<Probe>> made(count);
    in_parallel(static_cast<int64_t>(count), kSlice, [&](int64_t begin, int64_t end) {
      for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) probe(points[k], made[k]);
    });
    std::vector<Probe> probes;
    for (const std::vector<Probe>& each : made) probes.insert(probes.end(), each.begin(), each.end());
    return probes;
  }

 private:
  using Point = std::vector<int64_t>;

  Point random_point() {
    Point point;
    for (const ProductIndex& index : partition_.product.indices) {
      state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
      point.push_back(index.reduced ? 0 : static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(index.extent)));
    }
    return point;
  }

  // The position of one of the operand's tensors, and the element in it.
  size_t position(size_t operand, const Point& point) const {
    return positions_[operand][positions_[operand].size() > 1 ? static_cast<size_t>(point[stack_]) : 0];
  }
  size_t element(size_t operand, const Point& point) const {
    int64_t at = origins_[operand];
    for (size_t index = 0; index < point.size(); ++index) at += strides_[operand][index] * point[index];
    return static_cast<size_t>(at);
  }

  double input(size_t operand, const Point& point) const {
    return reference_data_.inputs[position(operand, point)][element(operand, point)];
  }

  double epilogue_input(const Point& point) const {
    return reference_data_.inputs[epilogue_position_][element(2, point)];
  }

  // Computes an element of the result, of the auxiliary matrix, and of the bias's gradient, as far as they are written.
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
    if (partition_.product.adds()) add(made, epilogue_input(point));
    made.output = position(2, point);
    made.element = element(2, point);
    if (partition_.product.writes_auxiliary()) {
      probes.push_back(made);
      probes.back().output = epilogue_position_;
    }
    activate(made, point);
    probes.push_back(made);
    if (!vector || !vector->written()) return;
    summed.output = position(kVectorOperand, point);
    summed.element = element(kVectorOperand, point);
    probes.push_back(summed);
  }

  // Applies the activation to the value, and to the magnitude as if that were the product.
  void activate(Probe& made, const Point& point) const {
    switch (partition_.product.activation) {
      case Activation::none: return;
      case Activation::relu: made.value = std::max(made.value, 0.0); return;
      case Activation::exact_gelu:
        made.value *= normal_cdf(made.value);
        made.magnitude *= normal_cdf(made.magnitude);
        return;
      case Activation::gelu:
        made.value = gelu_tanh(made.value);
        made.magnitude = gelu_tanh(made.magnitude);
        return;
      case Activation::gelu_gradient:
        made.value = gelu_tanh_dx(epilogue_input(point), made.value);
        made.magnitude = gelu_tanh_dx(std::abs(epilogue_input(point)), made.magnitude);
        return;
    }
  }

  const Partition& partition_;
  const ReferenceData& reference_data_;
  double scale_;
  std::array<std::vector<size_t>, 4> positions_;  // of each operand's tensors among the partition's reads or writes
  std::array<std::vector<int64_t>, 4> strides_;   // row-major
  std::array<int64_t, 4> origins_{};
  size_t epilogue_position_ = 0;  // of the added tensor or the auxiliary matrix
  size_t stack_ = 0;              // the index that counts stacked tensors
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
  // Each result is within (depth + 2)·u·Σ|a||b| of the exact sum: the products and their sum, the scale factor, and the
  // bias or added tensor. The sum is not rounded before these are added, and a ReLU does not increase a difference.
  const DType dtype = graph.tensor(tensor).dtype;
  const double roundoff = dtype == DType::float64 ? 0x1p-53 : 0x1p-24;
  double sum_error = (depth_of(partition) + 2) * roundoff * std::abs(magnitude);
  // The GELU of the sum of magnitudes is at least half that sum, and the gradient's slope there is at least 1/2.
  const bool is_result = tensor == partition.product.tensors[2].front();
  const Activation activation = is_result ? partition.product.activation : Activation::none;
  if (is_gelu(activation) || activation == Activation::gelu_gradient) sum_error *= 2 * kSteepestGelu;
  // The GELU of a positive sum is at least half the sum.
  if (is_gelu(activation)) sum_error += kTanhError * std::abs(value) + library_gelu_error(-kMostNegative);
  if (activation == Activation::gelu_gradient) sum_error += kGradientError * 2 * std::abs(magnitude);
  return 2 * sum_error + 2 * storage_error(dtype, value);
}

}  // namespace millrace
