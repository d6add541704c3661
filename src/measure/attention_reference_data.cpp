#include "measure/attention_reference_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"

namespace millrace {
namespace {

constexpr double kRoundoff = 0x1p-24;     // of float32
constexpr double kAddition = 0x1p-23;     // of tensor cores
constexpr double kExponential = 0x1p-21;  // relative
constexpr double kSteps = 4;              // roundings beside the sums: factors, differences, quotients
constexpr double kFewestKeys = 16;        // between two times that a row's maximum grows

// A matrix, row by row.
struct Matrix {
  Matrix(int64_t of_rows, int64_t of_columns)
      : rows(of_rows), columns(of_columns), values(static_cast<size_t>(of_rows * of_columns), 0.0) {}

  double* row(int64_t number) { return values.data() + number * columns; }
  const double* row(int64_t number) const { return values.data() + number * columns; }
  double& at(int64_t row_number, int64_t column) { return values[static_cast<size_t>(row_number * columns + column)]; }
  double at(int64_t row_number, int64_t column) const {
    return values[static_cast<size_t>(row_number * columns + column)];
  }

  int64_t rows;
  int64_t columns;
  std::vector<double> values;
};

// What is computed, and how far from it a kernel's may lie.
struct Sums {
  Sums(int64_t rows, int64_t columns) : value(rows, columns), tolerance(rows, columns) {}

  Matrix value;
  Matrix tolerance;
};

// One factor of a sum of products, and its error.
struct Factor {
  double value = 0;
  double error = 0;
};

// row += factor · x
void add(const Factor& factor, const double* x, int64_t row, Sums& to) {
  double* const value = to.value.row(row);
  double* const tolerance = to.tolerance.row(row);
  for (int64_t c = 0; c < to.value.columns; ++c) {
    value[c] += factor.value * x[c];
    tolerance[c] += factor.error * std::abs(x[c]);
  }
}

Matrix transposed(const Matrix& of) {
  Matrix made(of.columns, of.rows);
  for (int64_t r = 0; r < of.rows; ++r) {
    for (int64_t c = 0; c < of.columns; ++c) made.at(c, r) = of.at(r, c);
  }
  return made;
}

// The products of a row with all rows of a matrix, which is given transposed.
void multiply(const double* row, const Matrix& by, double* products) {
  std::fill(products, products + by.columns, 0.0);
  for (int64_t r = 0; r < by.rows; ++r) {
    const double factor = row[r];
    const double* const of = by.row(r);
    for (int64_t c = 0; c < by.columns; ++c) products[c] += factor * of[c];
  }
}

double sum_of_magnitudes(const double* row, int64_t count, const std::vector<double>& weights) {
  double sum = 0;
  for (int64_t c = 0; c < count; ++c) sum += std::abs(row[c]) * weights[static_cast<size_t>(c)];
  return sum;
}

// Of each column of a matrix.
std::vector<double> largest_magnitudes(const Matrix& of) {
  std::vector<double> largest(static_cast<size_t>(of.columns), 0.0);
  for (int64_t r = 0; r < of.rows; ++r) {
    for (int64_t c = 0; c < of.columns; ++c)
      largest[static_cast<size_t>(c)] = std::max(largest[static_cast<size_t>(c)], std::abs(of.at(r, c)));
  }
  return largest;
}

// Where an operand's elements lie, row-major.
struct Strides {
  std::vector<int64_t> batch;
  int64_t row = 0;
  int64_t column = 0;
};

int64_t stride_along(const Graph& graph, TensorId tensor, int axis) {
  const std::vector<DimId>& dims = graph.tensor(tensor).dims;
  int64_t stride = axis < 0 ? 0 : 1;
  for (size_t k = dims.size(); axis >= 0 && k-- > static_cast<size_t>(axis) + 1;) stride *= graph.extent(dims[k]);
  return stride;
}

Strides strides_of(const Graph& graph, TensorId tensor, const std::vector<int>& batch, int row, int column) {
  Strides made;
  for (const int axis : batch) made.batch.push_back(stride_along(graph, tensor, axis));
  made.row = stride_along(graph, tensor, row);
  made.column = stride_along(graph, tensor, column);
  return made;
}

// The heads of one partition: each batch point is an attention by itself.
class Heads {
 public:
  Heads(const Graph& graph, const Partition& partition, ReferenceData& reference_data)
      : graph_(graph),
        partition_(partition),
        of_(partition.attention),
        reference_data_(reference_data),
        scale_(factor_of(graph, of_.scales, reference_data)) {
    for (size_t operand = 0; operand < Attention::kOperands; ++operand) {
      const Attention::Axes& axes = of_.axes[operand];
      strides_[operand] = of_.tensors[operand].valid()
                              ? strides_of(graph, of_.tensors[operand], axes.batch, axes.row(), axes.column)
                              : Strides();
    }
    type_ = graph.tensor(of_.tensors[Attention::q]).dtype;
    tiny_ = storage_error(type_, 0);
  }

  void run() {
    spread_queries();
    if (of_.mask.valid()) draw_mask();
    make_outputs();
    int64_t points = 1;
    for (const int64_t extent : of_.batch) points *= extent;
    in_parallel(points, 1, [&](int64_t begin, int64_t end) {
      for (int64_t point = begin; point < end; ++point) one(point);
    });
    for (size_t k = 0; k < partition_.writes.size(); ++k) {
      Expected& expected = reference_data_.outputs[k];
      const DType dtype = graph_.tensor(partition_.writes[k]).dtype;
      in_parallel(static_cast<int64_t>(expected.values.size()), kSlice, [&](int64_t begin, int64_t end) {
        for (auto e = static_cast<size_t>(begin); e < static_cast<size_t>(end); ++e)
          expected.tolerances[e] += storage_error(dtype, expected.values[e]);
      });
    }
  }

 private:
  static constexpr int64_t kSlice = 1 << 18;  // elements that are worth a thread

  template <class List>
  static size_t place(const List& list, TensorId tensor) {
    return static_cast<size_t>(std::find(list.begin(), list.end(), tensor) - list.begin());
  }
  std::vector<double>& input(Attention::Operand operand) {
    return reference_data_.inputs[place(partition_.reads, of_.tensors[operand])];
  }
  Expected& output(Attention::Operand operand) {
    return reference_data_.outputs[place(partition_.writes, of_.tensors[operand])];
  }
  // Elements of two that are drawn have a product of variance 1/9: so the scores vary by about 1.5. A power of two
  // leaves the queries what they can be.
  void spread_queries() {
    const double spread = std::abs(scale_) * std::sqrt(static_cast<double>(of_.inner)) / 3;
    const int power = spread > 0 ? static_cast<int>(std::lround(std::log2(1.5 / spread))) : 0;
    for (double& x : input(Attention::q)) x = std::ldexp(x, std::clamp(power, -4, 8));
  }

  void draw_mask() {
    mask_ = partition_.pass == Pass::forward
                ? drawn_mask(*dropout_of(graph_, of_.mask), static_cast<size_t>(elements_of(graph_, of_.mask)),
                             reference_data_.random)
                : reference_data_.inputs[place(partition_.reads, of_.mask)];
    mask_strides_ = strides_of(graph_, of_.mask, of_.mask_axes.batch, of_.mask_axes.query, of_.mask_axes.key);
  }

  void make_outputs() {
    reference_data_.outputs.assign(partition_.writes.size(), {});
    for (size_t k = 0; k < partition_.writes.size(); ++k) {
      const auto elements = static_cast<size_t>(elements_of(graph_, partition_.writes[k]));
      reference_data_.outputs[k] = {std::vector<double>(elements, 0.0), std::vector<double>(elements, 0.0)};
      if (partition_.writes[k] == of_.mask) reference_data_.outputs[k].values = mask_;
    }
  }

  int64_t offset_of(const Strides& strides, int64_t point) const {
    int64_t offset = 0;
    for (size_t k = of_.batch.size(); k-- > 0;) {
      offset += point % of_.batch[k] * strides.batch[k];
      point /= of_.batch[k];
    }
    return offset;
  }

  size_t element(Attention::Operand operand, int64_t point, int64_t row, int64_t column) const {
    const Strides& strides = strides_[operand];
    return static_cast<size_t>(offset_of(strides, point) + row * strides.row + column * strides.column);
  }

  Matrix gathered(Attention::Operand operand, int64_t point, int64_t rows, int64_t columns) {
    Matrix made(rows, columns);
    const std::vector<double>& from = input(operand);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) made.at(r, c) = from[element(operand, point, r, c)];
    }
    return made;
  }

  void scatter(const Sums& made, Attention::Operand operand, int64_t point) {
    Expected& to = output(operand);
    for (int64_t r = 0; r < made.value.rows; ++r) {
      for (int64_t c = 0; c < made.value.columns; ++c) {
        const size_t at = element(operand, point, r, c);
        to.values[at] = made.value.at(r, c);
        to.tolerances[at] = made.tolerance.at(r, c);
      }
    }
  }

  // What backward reads, as it is stored.
  void give(const Matrix& made, Attention::Operand operand, int64_t point) {
    std::vector<double>& to = input(operand);
    const DType dtype = graph_.tensor(of_.tensors[operand]).dtype;
    for (int64_t r = 0; r < made.rows; ++r) {
      for (int64_t c = 0; c < made.columns; ++c) to[element(operand, point, r, c)] = rounded_to(dtype, made.at(r, c));
    }
  }

  // One row of the weights.
  struct Row {
    explicit Row(int64_t keys) : weights(static_cast<size_t>(keys)), mask(static_cast<size_t>(keys), 1.0) {}

    std::vector<double> weights;  // the softmax
    std::vector<double> mask;
    double log_sum = 0;
    double score_error = 0;  // of each score, at most
  };

  // One batch point, and what is made of it.
  struct Head {
    Matrix q;
    Matrix k;
    Matrix v;
    Matrix k_transposed;
    std::vector<double> largest_k;
    Sums o;
    Sums log_sums;
  };

  void find_row(int64_t point, int64_t query, const Head& head, Row& row) const {
    multiply(head.q.row(query), head.k_transposed, row.weights.data());
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t key = 0; key < of_.keys; ++key) {
      double& score = row.weights[static_cast<size_t>(key)];
      score = of_.causal && key > query ? -std::numeric_limits<double>::infinity() : score * scale_;
      largest = std::max(largest, score);
    }
    double sum = 0;
    for (double& weight : row.weights) sum += weight = std::exp(weight - largest);
    for (double& weight : row.weights) weight /= sum;
    row.log_sum = largest + std::log(sum);
    const double magnitude = std::abs(scale_) * sum_of_magnitudes(head.q.row(query), of_.inner, head.largest_k);
    row.score_error = (static_cast<double>(of_.inner) + kSteps) * kAddition * magnitude +
                      kSteps * kRoundoff * (magnitude + std::abs(row.log_sum));
    if (!of_.mask.valid()) return;
    const int64_t first = offset_of(mask_strides_, point) + query * mask_strides_.row;
    for (int64_t key = 0; key < of_.keys; ++key)
      row.mask[static_cast<size_t>(key)] = mask_[static_cast<size_t>(first + key * mask_strides_.column)];
  }

  // A weight behind the dropout, rounded; `relative` is its error before.
  Factor dropped(const Row& row, int64_t key, double relative) const {
    const double mask = row.mask[static_cast<size_t>(key)];
    const double value = row.weights[static_cast<size_t>(key)] * mask;
    if (value == 0) return {};
    return {value, value * relative + storage_error(type_, value) + mask * tiny_};
  }

  // How often a row's maximum can grow.
  double growths() const { return static_cast<double>(of_.keys) / kFewestKeys + 1; }

  struct Gradients {
    Matrix d_o;
    Matrix v_transposed;
    std::vector<double> largest_v;
    Sums d_q;
    Sums d_k;
    Sums d_v;
  };

  void one(int64_t point) {
    Head head{gathered(Attention::q, point, of_.queries, of_.inner),
              gathered(Attention::k, point, of_.keys, of_.inner),
              gathered(Attention::v, point, of_.keys, of_.values),
              Matrix(0, 0),
              {},
              Sums(of_.queries, of_.values),
              Sums(of_.queries, 1)};
    head.k_transposed = transposed(head.k);
    head.largest_k = largest_magnitudes(head.k);
    Row row(of_.keys);
    if (!of_.backward) {
      for (int64_t query = 0; query < of_.queries; ++query) {
        find_row(point, query, head, row);
        add_output(query, row, head);
      }
      scatter(head.o, Attention::o, point);
      scatter(head.log_sums, Attention::log_sums, point);
      return;
    }
    Gradients gradients{gathered(Attention::d_o, point, of_.queries, of_.values),
                        transposed(head.v),
                        largest_magnitudes(head.v),
                        Sums(of_.queries, of_.inner),
                        Sums(of_.keys, of_.inner),
                        Sums(of_.keys, of_.values)};
    for (int64_t query = 0; query < of_.queries; ++query) {
      find_row(point, query, head, row);
      add_output(query, row, head);
      add_gradients(query, row, head, gradients);
    }
    give(head.o.value, Attention::o, point);
    give(head.log_sums.value, Attention::log_sums, point);
    scatter(gradients.d_q, Attention::d_q, point);
    scatter(gradients.d_k, Attention::d_k, point);
    scatter(gradients.d_v, Attention::d_v, point);
  }

  void add_output(int64_t query, const Row& row, Head& head) const {
    const double sum_error = (static_cast<double>(of_.keys) + growths() + kSteps) * kAddition;
    const double exponential_error = row.score_error + (growths() + 1) * kExponential;
    // A weight is an exponential divided by their sum; then they are added up again.
    const double relative = 2 * exponential_error + 2 * sum_error;
    for (int64_t key = 0; key < of_.keys; ++key) add(dropped(row, key, relative), head.v.row(key), query, head.o);
    head.log_sums.value.at(query, 0) = row.log_sum;
    head.log_sums.tolerance.at(query, 0) = exponential_error + sum_error;
  }

  // d_scores = p ∘ (g - Σ p·g) with g = m ∘ (d_o vᵀ), where Σ p·g is d_o·o.
  void add_gradients(int64_t query, const Row& row, const Head& head, Gradients& to) const {
    const double* const d_o = to.d_o.row(query);
    std::vector<double> gradients(row.weights.size());
    multiply(d_o, to.v_transposed, gradients.data());
    double inner = 0;
    for (size_t key = 0; key < gradients.size(); ++key) inner += row.weights[key] * (gradients[key] *= row.mask[key]);

    const double values_error = (static_cast<double>(of_.values) + kSteps) * kAddition;
    const double gradient_error = values_error * sum_of_magnitudes(d_o, of_.values, to.largest_v);
    double inner_error = 0;
    const DType stored = graph_.tensor(of_.tensors[Attention::o]).dtype;
    for (int64_t c = 0; c < of_.values; ++c) {
      const double o = head.o.value.at(query, c);
      inner_error += std::abs(d_o[c]) * (storage_error(stored, o) + values_error * std::abs(o));
    }
    const double weight_error =
        row.score_error + kExponential + storage_error(DType::float32, row.log_sum) + kSteps * kRoundoff;
    const double sum_error = (static_cast<double>(std::max(of_.queries, of_.keys)) + kSteps) * kAddition;
    for (int64_t key = 0; key < of_.keys; ++key) {
      const auto at = static_cast<size_t>(key);
      const double p = row.weights[at];
      if (p == 0) continue;  // behind the query, or as good as
      const double difference = gradients[at] - inner;
      const double d_score = p * difference;
      const double difference_error = row.mask[at] * gradient_error + inner_error +
                                      kSteps * kRoundoff * (std::abs(gradients[at]) + std::abs(inner));
      const double error =
          std::abs(d_score) * (weight_error + sum_error) + p * difference_error + storage_error(type_, d_score);
      const Factor scaled{scale_ * d_score, std::abs(scale_) * error + tiny_};
      add(scaled, head.k.row(key), query, to.d_q);
      add(scaled, head.q.row(query), key, to.d_k);
      add(dropped(row, key, weight_error + sum_error), d_o, key, to.d_v);
    }
  }

  const Graph& graph_;
  const Partition& partition_;
  const Attention& of_;
  ReferenceData& reference_data_;
  double scale_;
  std::array<Strides, Attention::kOperands> strides_;
  DType type_ = DType::float32;  // of the operands
  double tiny_ = 0;              // what a number of it may lose that is almost zero
  std::vector<double> mask_;
  Strides mask_strides_;
};

}  // namespace

void complete_attention(const Graph& graph, const Partition& partition, ReferenceData& reference_data) {
  Heads(graph, partition, reference_data).run();
}

}  // namespace millrace
