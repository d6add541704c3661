#include "measure/attention_reference_data.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/parallel.h"
#include "base/position.h"
#include "measure/attention_errors.h"
#include "measure/attention_matrices.h"
#include "measure/row_values.h"
#include "measure/score_values.h"

namespace millrace {
namespace {

// The heads of one partition: each batch point is an attention. Those of a group share keys and values, whose gradients
// are sums over the group.
class Heads {
 public:
  Heads(const Graph& graph, const DrawRules& rules, const Partition& partition, ReferenceData& reference_data)
      : graph_(graph),
        rules_(rules),
        partition_(partition),
        attention_(partition.attention),
        reference_data_(reference_data),
        scale_(factor_of(graph, attention_.scales, reference_data)),
        evaluator_(graph, attention_, reference_data) {
    for (size_t operand = 0; operand < Attention::kOperands; ++operand) {
      const Attention::Axes& axes = attention_.axes[operand];
      strides_[operand] = attention_.tensors[operand].valid()
                              ? strides_of(graph, attention_.tensors[operand], axes.batch, axes.row(), axes.column)
                              : Strides();
    }
    type_ = graph.tensor(attention_.tensors[Attention::q]).dtype;
    tiny_ = storage_error(type_, 0);
  }

  void run() {
    scale_queries();
    show_first_keys();
    if (attention_.mask.valid()) make_mask();
    make_outputs();
    const std::vector<std::vector<int64_t>> groups = points_by_group();
    in_parallel(std::ssize(groups), 1, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        KeyGradients gradients;
        for (const int64_t point : groups[as_index(group)]) compute_head(point, gradients);
        for (const auto& [point, sums] : gradients) store(sums, Attention::d_k, point);
      }
    });
    if (attention_.d_term.valid()) expect_term_gradient();
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
  static constexpr int64_t kSlice = 1 << 18;  // elements per thread

  std::vector<double>& input(Attention::Operand operand) {
    return reference_data_.inputs[position_in(partition_.reads, attention_.tensors[operand])];
  }
  Expected& output(Attention::Operand operand) {
    return reference_data_.outputs[position_in(partition_.writes, attention_.tensors[operand])];
  }
  void scale_queries() {
    const double product = size_of_elements(Attention::q) * size_of_elements(Attention::k);
    const int power = power_of_queries(scale_ * slope_of(graph_, attention_.score), attention_.inner, product);
    for (double& x : input(Attention::q)) x = std::ldexp(x, power);
  }

  // The size of an operand's elements: of the drawn ones, or of the rows that are computed from them.
  double size_of_elements(Attention::Operand operand) {
    return attention_.rows[operand].empty() ? size_of(rules_[attention_.tensors[operand].at()])
                                            : size_of_rows(graph_, partition_, operand, reference_data_);
  }

  // A drawn mask may hide all keys of a query, whose results would be NaN: the first key is visible.
  void show_first_keys() {
    for (size_t k = 0; k < attention_.score.terms.size(); ++k) {
      const std::optional<double> visible = visible_value(graph_, attention_.score, k);
      const AttentionTensor& term = attention_.score.terms[k];
      if (!visible || term.axes.key < 0) continue;
      const auto step = static_cast<size_t>(stride_along(graph_, term.tensor, term.axes.key));
      std::vector<double>& values = reference_data_.inputs[position_in(partition_.reads, term.tensor)];
      for (size_t e = 0; e < values.size(); ++e) {
        if (e / step % static_cast<size_t>(attention_.keys) == 0) values[e] = *visible;
      }
    }
  }

  void make_mask() {
    mask_ = partition_.pass == Pass::forward
                ? dropout_mask(*dropout_of(graph_, attention_.mask),
                               static_cast<size_t>(elements_of(graph_, attention_.mask)), reference_data_.random)
                : reference_data_.inputs[position_in(partition_.reads, attention_.mask)];
    mask_strides_ = strides_of(graph_, attention_.mask, attention_.mask_axes.batch, attention_.mask_axes.query,
                               attention_.mask_axes.key);
  }

  void make_outputs() {
    reference_data_.outputs.assign(partition_.writes.size(), {});
    for (size_t k = 0; k < partition_.writes.size(); ++k) {
      const auto elements = static_cast<size_t>(elements_of(graph_, partition_.writes[k]));
      reference_data_.outputs[k] = {std::vector<double>(elements, 0.0), std::vector<double>(elements, 0.0)};
      if (partition_.writes[k] == attention_.mask) reference_data_.outputs[k].values = mask_;
    }
  }

  // The batch points of each group of heads; all together if heads also share the gradient of a term.
  std::vector<std::vector<int64_t>> points_by_group() const {
    std::map<int64_t, std::vector<int64_t>> groups;  // by the offset of the keys
    for (int64_t point = 0; point < attention_.heads(); ++point)
      groups[attention_.d_term.valid() ? 0 : offset_of(strides_[Attention::k], point)].push_back(point);
    std::vector<std::vector<int64_t>> made;
    for (auto& [offset, points] : groups) made.push_back(std::move(points));
    return made;
  }

  int64_t offset_of(const Strides& strides, int64_t point) const {
    int64_t offset = 0;
    for (size_t k = attention_.batch.size(); k-- > 0;) {
      offset += point % attention_.batch[k] * strides.batch[k];
      point /= attention_.batch[k];
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

  // --- Rows that are not in memory ---

  // q or k, with the errors of kernels that compute its rows, and may round them to the operands' type.
  Sums operand_rows(Attention::Operand operand, int64_t point) {
    const int64_t rows = operand == Attention::q ? attention_.queries : attention_.keys;
    const RowExpression& expression = attention_.rows[operand];
    Sums made(rows, attention_.inner);
    if (expression.empty()) {
      made.value = gathered(operand, point, rows, attention_.inner);
      return made;
    }
    const std::vector<RowNumber> values =
        row_values(graph_, expression, rows, {elements_at(point), nullptr}, reference_data_);
    for (size_t e = 0; e < values.size(); ++e) {
      made.value.values[e] = values[e].value;
      made.tolerance.values[e] = values[e].error + storage_error(type_, values[e].value);
    }
    return made;
  }

  // Writes the gradient of q or k, or what is stored instead.
  void store(const Sums& gradient, Attention::Operand operand, int64_t point) {
    const RowExpression& expression = attention_.rows[operand];
    if (expression.empty()) return scatter(gradient, operand, point);
    const auto given = [&](int64_t row, int64_t column) {
      return RowNumber(gradient.value.at(row, column), gradient.tolerance.at(row, column));
    };
    const std::vector<RowNumber> values =
        row_values(graph_, expression, gradient.value.rows, {elements_at(point), given}, reference_data_);
    Sums made(gradient.value.rows, columns_of(expression));
    for (size_t e = 0; e < values.size(); ++e) {
      made.value.values[e] = values[e].value;
      made.tolerance.values[e] = values[e].error;
    }
    scatter(made, operand, point);
  }

  std::function<RowElements(const AttentionTensor&, const std::vector<RowPosition>&)> elements_at(int64_t point) const {
    return [this, point](const AttentionTensor& term, const std::vector<RowPosition>& positions) {
      const Strides strides = strides_of(graph_, term.tensor, term.axes.batch, -1, -1);
      return row_elements(graph_, term, positions, reference_data_.inputs[position_in(partition_.reads, term.tensor)],
                          offset_of(strides, point));
    };
  }

  // Adds to the outputs, because the heads of a group share the gradients of their keys and values.
  void scatter(const Sums& made, Attention::Operand operand, int64_t point) {
    Expected& to = output(operand);
    for (int64_t r = 0; r < made.value.rows; ++r) {
      for (int64_t c = 0; c < made.value.columns; ++c) {
        const size_t at = element(operand, point, r, c);
        to.values[at] += made.value.at(r, c);
        to.tolerances[at] += made.tolerance.at(r, c);
      }
    }
  }

  // Stores an input of backward, rounded to its type.
  void give(const Matrix& made, Attention::Operand operand, int64_t point) {
    std::vector<double>& to = input(operand);
    const DType dtype = graph_.tensor(attention_.tensors[operand]).dtype;
    for (int64_t r = 0; r < made.rows; ++r) {
      for (int64_t c = 0; c < made.columns; ++c) to[element(operand, point, r, c)] = rounded_to(dtype, made.at(r, c));
    }
  }

  // One row of weights.
  struct Row {
    explicit Row(int64_t keys) : weights(static_cast<size_t>(keys)), mask(static_cast<size_t>(keys), 1.0) {}

    std::vector<double> weights;  // the softmax
    std::vector<double> mask;
    double log_sum = 0;
    double score_error = 0;  // bound for each score
  };

  // One batch point and its outputs.
  struct Head {
    Sums q;
    Sums k;
    Matrix v;
    Matrix k_transposed;
    std::vector<double> largest_k;
    std::vector<double> largest_k_error;
    Sums o;
    Sums log_sums;
    ScoreMatrix scores;
    ScoreMatrix logits;
  };

  // A head's element of a term of the scores.
  ScoreEvaluator::Term term_at(int64_t point) const {
    return [this, point](size_t number, int64_t query, int64_t key) {
      const AttentionTensor& term = attention_.score.terms[number];
      const Strides strides = strides_of(graph_, term.tensor, term.axes.batch, term.axes.query, term.axes.key);
      const auto at = static_cast<size_t>(offset_of(strides, point) + query * strides.row + key * strides.column);
      return reference_data_.inputs[position_in(partition_.reads, term.tensor)][at];
    };
  }

  void find_logits(int64_t point, Head& head) const {
    const double relative = AttentionErrors(attention_).of_scores(scale_).per_magnitude;
    std::vector<double> products(static_cast<size_t>(attention_.keys));
    for (int64_t query = 0; query < attention_.queries; ++query) {
      const double* const q = head.q.value.row(query);
      multiply(q, head.k_transposed, products.data());
      const double error = relative * sum_of_magnitudes(q, attention_.inner, head.largest_k) +
                           std::abs(scale_) * error_of_operands(query, head);
      for (const double product : products) head.scores.emplace_back(product * scale_, error);
    }
    head.logits = evaluator_.logits(head.scores, term_at(point));
  }

  // The error of the product of a query and any key, before the scale.
  double error_of_operands(int64_t query, const Head& head) const {
    const double* const errors = head.q.tolerance.row(query);
    return sum_of_magnitudes(errors, attention_.inner, head.largest_k) +
           sum_of_magnitudes(errors, attention_.inner, head.largest_k_error) +
           sum_of_magnitudes(head.q.value.row(query), attention_.inner, head.largest_k_error);
  }

  void find_row(int64_t point, int64_t query, const Head& head, Row& row) const {
    constexpr double kNoWeight = 0x1p-100;  // the error of such a logit has no effect
    const auto begin = head.logits.begin() + query * attention_.keys;
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t key = 0; key < attention_.keys; ++key) {
      row.weights[as_index(key)] = begin[key].value;
      largest = std::max(largest, begin[key].value);
    }
    double sum = 0;
    for (double& weight : row.weights) sum += weight = std::exp(weight - largest);
    for (double& weight : row.weights) weight /= sum;
    row.log_sum = largest + std::log(sum);
    row.score_error = AttentionErrors(attention_).of_scores(scale_).per_log_sum * std::abs(row.log_sum);
    double logit_error = 0;
    for (int64_t key = 0; key < attention_.keys; ++key) {
      if (row.weights[as_index(key)] >= kNoWeight) logit_error = std::max(logit_error, begin[key].error);
    }
    row.score_error += logit_error;
    if (!attention_.mask.valid()) return;
    const int64_t first = offset_of(mask_strides_, point) + query * mask_strides_.row;
    for (int64_t key = 0; key < attention_.keys; ++key)
      row.mask[as_index(key)] = mask_[as_index(first + key * mask_strides_.column)];
  }

  // A weight after the dropout, rounded; `relative` is its relative error before.
  Factor dropped(const Row& row, int64_t key, double relative) const {
    const double mask = row.mask[as_index(key)];
    const double value = row.weights[as_index(key)] * mask;
    if (value == 0) return {};
    return {value, value * relative + storage_error(type_, value) + mask * tiny_};
  }

  struct Gradients {
    Matrix d_o;
    Matrix v_transposed;
    std::vector<double> largest_v;
    Sums d_q;
    Sums d_k;
    Sums d_v;
    ScoreMatrix d_logits;
  };

  // For each point of each group of heads: the gradients of its keys, summed over its heads. Only for keys whose rows
  // are not stored as they are.
  using KeyGradients = std::map<int64_t, Sums>;

  void compute_head(int64_t point, KeyGradients& key_gradients) {
    Head head{operand_rows(Attention::q, point),
              operand_rows(Attention::k, point),
              gathered(Attention::v, point, attention_.keys, attention_.values),
              Matrix(0, 0),
              {},
              {},
              Sums(attention_.queries, attention_.values),
              Sums(attention_.queries, 1),
              {},
              {}};
    head.k_transposed = transposed(head.k.value);
    head.largest_k = largest_magnitudes(head.k.value);
    head.largest_k_error = largest_magnitudes(head.k.tolerance);
    find_logits(point, head);
    Row row(attention_.keys);
    if (!attention_.backward) {
      for (int64_t query = 0; query < attention_.queries; ++query) {
        find_row(point, query, head, row);
        add_output(query, row, head);
      }
      scatter(head.o, Attention::o, point);
      scatter(head.log_sums, Attention::log_sums, point);
      return;
    }
    Gradients gradients{gathered(Attention::d_o, point, attention_.queries, attention_.values),
                        transposed(head.v),
                        largest_magnitudes(head.v),
                        Sums(attention_.queries, attention_.inner),
                        Sums(attention_.keys, attention_.inner),
                        Sums(attention_.keys, attention_.values),
                        ScoreMatrix(head.logits.size())};
    for (int64_t query = 0; query < attention_.queries; ++query) {
      find_row(point, query, head, row);
      add_output(query, row, head);
      add_gradients(query, row, head, gradients);
    }
    add_score_gradients(point, head, gradients);
    give(head.o.value, Attention::o, point);
    give(head.log_sums.value, Attention::log_sums, point);
    if (attention_.has(Attention::d_q)) store(gradients.d_q, Attention::d_q, point);
    if (attention_.has(Attention::d_k)) add_key_gradient(gradients.d_k, point, key_gradients);
    if (attention_.has(Attention::d_v)) scatter(gradients.d_v, Attention::d_v, point);
  }

  void add_key_gradient(const Sums& made, int64_t point, KeyGradients& to) {
    if (attention_.rows[Attention::d_k].empty()) return scatter(made, Attention::d_k, point);
    const auto same = std::find_if(to.begin(), to.end(), [&](const auto& each) {
      return offset_of(strides_[Attention::d_k], each.first) == offset_of(strides_[Attention::d_k], point);
    });
    if (same == to.end()) {
      to.emplace(point, made);
      return;
    }
    for (size_t e = 0; e < made.value.values.size(); ++e) {
      same->second.value.values[e] += made.value.values[e];
      same->second.tolerance.values[e] += made.tolerance.values[e];
    }
  }

  void add_output(int64_t query, const Row& row, Head& head) const {
    const AttentionErrors errors(attention_);
    const double sum_error = errors.of_sum();
    const double exponential_error = row.score_error + errors.of_exponential();
    // A weight is an exponential divided by the sum of them; then the weights are summed again.
    const double relative = 2 * exponential_error + 2 * sum_error;
    for (int64_t key = 0; key < attention_.keys; ++key)
      add(dropped(row, key, relative), head.v.row(key), query, head.o);
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

    const AttentionErrors errors(attention_);
    const double values_error = errors.of_values();
    const double gradient_error = values_error * sum_of_magnitudes(d_o, attention_.values, to.largest_v);
    double inner_error = 0;
    const DType stored = graph_.tensor(attention_.tensors[Attention::o]).dtype;
    for (int64_t c = 0; c < attention_.values; ++c) {
      const double o = head.o.value.at(query, c);
      inner_error += std::abs(d_o[c]) * (storage_error(stored, o) + values_error * std::abs(o));
    }
    const AttentionErrors::WeightError weight = errors.of_weights();
    const double weight_error = row.score_error + weight.per_log_sum * std::abs(row.log_sum) + weight.constant;
    for (int64_t key = 0; key < attention_.keys; ++key) {
      const auto at = static_cast<size_t>(key);
      const double p = row.weights[at];
      if (p == 0) continue;  // masked as causal, or underflowed
      const double difference = gradients[at] - inner;
      const double d_score = p * difference;
      const double difference_error = row.mask[at] * gradient_error + inner_error +
                                      AttentionErrors::of_steps() * (std::abs(gradients[at]) + std::abs(inner));
      const double error = std::abs(d_score) * weight_error + p * difference_error;
      to.d_logits[as_index(query * attention_.keys + key)] = {d_score, error};
      add(dropped(row, key, weight_error), d_o, key, to.d_v);
    }
  }

  // Continues from the gradients of the logits to those of the queries, the keys and a term.
  void add_score_gradients(int64_t point, const Head& head, Gradients& to) {
    if (!attention_.has(Attention::d_q) && !attention_.has(Attention::d_k) && !attention_.d_term.valid()) return;
    const ScoreEvaluator::Gradients found = evaluator_.gradients(head.scores, to.d_logits, term_at(point));
    for (int64_t query = 0; query < attention_.queries && !found.d_scores.empty(); ++query) {
      for (int64_t key = 0; key < attention_.keys; ++key) {
        const ScoreNumber& d_score = found.d_scores[as_index(query * attention_.keys + key)];
        if (d_score.value == 0 && d_score.error == 0) continue;  // hidden
        const double error = d_score.error + storage_error(type_, d_score.value);
        const Factor scaled{scale_ * d_score.value, std::abs(scale_) * error + tiny_};
        add(scaled, head.k, key, query, to.d_q);
        add(scaled, head.q, query, key, to.d_k);
      }
    }
    if (attention_.d_term.valid()) add_term_gradient(point, found.d_terms);
  }

  void add_term_gradient(int64_t point, const ScoreMatrix& gradients) {
    const AttentionAxes& axes = attention_.d_term_axes;
    const Strides strides = strides_of(graph_, attention_.d_term, axes.batch, axes.query, axes.key);
    d_term_.resize(static_cast<size_t>(elements_of(graph_, attention_.d_term)));
    for (int64_t query = 0; query < attention_.queries; ++query) {
      for (int64_t key = 0; key < attention_.keys; ++key) {
        const auto at = static_cast<size_t>(offset_of(strides, point) + query * strides.row + key * strides.column);
        d_term_[at] = d_term_[at] + gradients[as_index(query * attention_.keys + key)];
      }
    }
  }

  void expect_term_gradient() {
    Expected& to = reference_data_.outputs[position_in(partition_.writes, attention_.d_term)];
    for (size_t e = 0; e < d_term_.size(); ++e) {
      to.values[e] = d_term_[e].value;
      to.tolerances[e] = d_term_[e].error;
    }
  }

  const Graph& graph_;
  const DrawRules& rules_;
  const Partition& partition_;
  const Attention& attention_;
  ReferenceData& reference_data_;
  double scale_;
  ScoreEvaluator evaluator_;
  ScoreMatrix d_term_;  // the gradient of a term, in the order of its tensor
  std::array<Strides, Attention::kOperands> strides_;
  DType type_ = DType::float32;  // of the operands
  double tiny_ = 0;              // rounding error of a number close to zero in that type
  std::vector<double> mask_;
  Strides mask_strides_;
};

}  // namespace

void complete_attention(const Graph& graph, const DrawRules& rules, const Partition& partition,
                        ReferenceData& reference_data) {
  Heads(graph, rules, partition, reference_data).run();
}

}  // namespace millrace
