// Reference data of an AttentionProblem: random inputs, and outputs computed in double from the definition. Each output
// has an error bound for kernels: p and ds rounded to half precision for the second products, float sums in any order,
// results rounded to half precision, and exp2 and log with a relative error of 2^-21. Used by
// tests/codegen/attention_kernel_test.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "codegen/attention_problem.h"
#include "reference/philox.h"

namespace millrace {

// Values of an operand: [head][row][column], in the order of the attention's indices. Keys, values and their gradients
// have one head for each group.
struct OperandValues {
  std::vector<double> values;
  std::vector<double> allowed;  // error bound of a result
};

struct AttentionRun {
  uint64_t seed = 1234567890123;
  uint32_t step = 7;
};

class AttentionReference {
 public:
  AttentionReference(const AttentionProblem& problem, const AttentionRun& run, unsigned drawn = 1)
      : problem_(problem), run_(run), built_(build_attention(problem)), attention_(built_.partition.attention) {
    for (const double scale : problem.scales) scale_ *= scale;
    for (const int64_t extent : problem.batch) heads_ *= static_cast<size_t>(extent);
    draw(drawn);
    fill_masks();
    compute();
  }

  const BuiltAttention& built() const { return built_; }
  const std::vector<std::byte>& mask_bits() const { return mask_bits_; }  // empty if they are regenerated
  OperandValues& operator[](Attention::Operand operand) { return operands_[operand]; }
  // Call again after an input was changed.
  void compute() {
    for (size_t head = 0; head < heads_; ++head) forward(head);
    if (!problem_.backward) return;
    for (const Attention::Operand given : {Attention::o, Attention::log_sums}) {
      for (double& x : operands_[given].values) x = stored(x, given);
    }
    for (const Attention::Operand summed : {Attention::d_q, Attention::d_k, Attention::d_v}) {
      operands_[summed].values.assign(operands_[summed].values.size(), 0);
      operands_[summed].allowed.assign(operands_[summed].values.size(), 0);
    }
    for (size_t head = 0; head < heads_; ++head) backward(head);
  }

  // The values as bytes in the operand's layout, and back.
  std::vector<std::byte> bytes_of(Attention::Operand operand) const {
    const StoredType type = type_of(operand);
    const auto size = static_cast<size_t>(millrace::bytes_of(type));
    std::vector<std::byte> bytes(operands_[operand].values.size() * size);
    for_each_element(operand, [&](size_t number, size_t offset) {
      const uint64_t bits = encode(operands_[operand].values[number], type);
      std::memcpy(&bytes[offset * size], &bits, size);
    });
    return bytes;
  }
  std::vector<double> values_in(const std::vector<std::byte>& bytes, Attention::Operand operand) const {
    const StoredType type = type_of(operand);
    const auto size = static_cast<size_t>(millrace::bytes_of(type));
    std::vector<double> values(operands_[operand].values.size());
    for_each_element(operand, [&](size_t number, size_t offset) {
      uint64_t bits = 0;
      std::memcpy(&bits, &bytes[offset * size], size);
      values[number] = decode(bits, type);
    });
    return values;
  }

  // The largest error, relative to its bound: at most 1 is right. An unexpected NaN is infinitely far.
  double distance(const std::vector<double>& got, Attention::Operand operand) const {
    double largest = 0;
    const OperandValues& expected = operands_[operand];
    for (size_t n = 0; n < got.size(); ++n) {
      if (std::isnan(expected.values[n]) && std::isnan(got[n])) continue;
      const double distance = std::abs(got[n] - expected.values[n]) / expected.allowed[n];
      largest = std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(largest, distance);
    }
    return largest;
  }

  static std::vector<Attention::Operand> read(bool backward) {
    using A = Attention;
    if (!backward) return {A::q, A::k, A::v};
    return {A::q, A::k, A::v, A::o, A::log_sums, A::d_o};
  }
  static std::vector<Attention::Operand> written(bool backward) {
    using A = Attention;
    if (!backward) return {A::o, A::log_sums};
    return {A::d_q, A::d_k, A::d_v};
  }

 private:
  static constexpr double kFloat = 0x1p-23;  // of a float operation, truncated as on tensor cores
  static constexpr double kPower = 0x1p-21;

  double half_unit() const { return problem_.dtype == DType::float16 ? 0x1p-11 : 0x1p-8; }
  double smallest() const { return problem_.dtype == DType::float16 ? 0x1p-25 : 0x1p-126; }

  StoredType type_of(Attention::Operand operand) const {
    return stored_type(built_.graph.tensor(attention_.tensors[operand]).dtype);
  }
  double stored(double x, Attention::Operand operand) const {
    return decode(encode(x, type_of(operand)), type_of(operand));
  }

  bool has_keys(size_t operand) const { return attention_.axes[operand].key >= 0; }
  size_t rows_of(size_t operand) const {
    return static_cast<size_t>(has_keys(operand) ? problem_.keys : problem_.queries);
  }
  size_t columns_of(size_t operand) const {
    using A = Attention;
    if (operand == A::log_sums) return 1;
    const bool inner = operand == A::q || operand == A::k || operand == A::d_q || operand == A::d_k;
    return static_cast<size_t>(inner ? problem_.inner : problem_.values);
  }
  // The number of a head among those of the operand.
  size_t head_of(size_t operand, size_t head) const {
    size_t number = 0;
    size_t below = 1;
    for (size_t k = problem_.batch.size(); k-- > 0;) {
      const auto extent = static_cast<size_t>(problem_.batch[k]);
      if (!has_keys(operand) || !problem_.is_group(k)) {
        number += head % extent * below;
        below *= extent;
      }
      head /= extent;
    }
    return number;
  }
  size_t heads_of(size_t operand) const { return head_of(operand, heads_ - 1) + 1; }
  size_t at(size_t operand, size_t head, size_t row, size_t column = 0) const {
    return (head_of(operand, head) * rows_of(operand) + row) * columns_of(operand) + column;
  }
  double value(size_t operand, size_t head, size_t row, size_t column) const {
    return operands_[operand].values[at(operand, head, row, column)];
  }
  void set(size_t operand, size_t head, size_t row, size_t column, double x, double allowed) {
    operands_[operand].values[at(operand, head, row, column)] = x;
    operands_[operand].allowed[at(operand, head, row, column)] = allowed;
  }

  // Calls visit(number, offset in memory) for every element.
  void for_each_element(Attention::Operand operand, const std::function<void(size_t, size_t)>& visit) const {
    const TensorId tensor = attention_.tensors[operand];
    const std::vector<TensorId> tensors = tensors_of(built_.partition);
    const auto position = static_cast<size_t>(std::find(tensors.begin(), tensors.end(), tensor) - tensors.begin());
    const std::vector<int64_t> strides = strides_of(built_.graph, tensor, built_.layouts[position]);
    const Attention::Axes& axes = attention_.axes[operand];
    const auto stride = [&](int axis) { return axis < 0 ? 0 : strides[static_cast<size_t>(axis)]; };
    for (size_t head = 0; head < heads_; ++head) {
      for (size_t row = 0; row < rows_of(operand); ++row) {
        for (size_t column = 0; column < columns_of(operand); ++column) {
          const int64_t offset = head_offset(head, [&](size_t k) { return stride(axes.batch[k]); }) +
                                 static_cast<int64_t>(row) * stride(has_keys(operand) ? axes.key : axes.query) +
                                 static_cast<int64_t>(column) * stride(axes.column);
          visit(at(operand, head, row, column), static_cast<size_t>(offset));
        }
      }
    }
  }
  template <class Stride>
  int64_t head_offset(size_t head, const Stride& stride) const {
    int64_t offset = 0;
    auto rest = static_cast<int64_t>(head);
    for (size_t k = problem_.batch.size(); k-- > 0;) {
      offset += rest % problem_.batch[k] * stride(k);
      rest /= problem_.batch[k];
    }
    return offset;
  }

  void draw(unsigned seed) {
    std::mt19937 random(seed);
    for (size_t operand = 0; operand < Attention::kOperands; ++operand) {
      if (!attention_.tensors[operand].valid()) continue;
      const bool scored = operand == Attention::q || operand == Attention::k;
      std::uniform_real_distribution<double> uniform(scored ? -2 : -1, scored ? 2 : 1);
      operands_[operand].values.resize(heads_of(operand) * rows_of(operand) * columns_of(operand));
      operands_[operand].allowed.assign(operands_[operand].values.size(), 0);
      for (double& x : operands_[operand].values) x = stored(uniform(random), static_cast<Attention::Operand>(operand));
    }
  }

  size_t score_at(size_t head, size_t query, size_t key) const {
    return (head * static_cast<size_t>(problem_.queries) + query) * static_cast<size_t>(problem_.keys) + key;
  }

  void fill_masks() {
    masks_.assign(heads_ * static_cast<size_t>(problem_.queries * problem_.keys), 1.0);
    if (problem_.rate == 0) return;
    mask_bits_.assign(problem_.mask_bits ? masks_.size() / 8 : 0, std::byte{});
    const std::vector<int64_t> strides =
        strides_of(built_.graph, attention_.mask, written_layout(built_.graph, attention_.mask));
    const Attention::Axes& axes = attention_.mask_axes;
    for (size_t head = 0; head < heads_; ++head) {
      const int64_t first = head_offset(head, [&](size_t k) { return strides[static_cast<size_t>(axes.batch[k])]; });
      for (int64_t query = 0; query < problem_.queries; ++query) {
        for (int64_t key = 0; key < problem_.keys; ++key) {
          const int64_t element =
              first + query * strides[static_cast<size_t>(axes.query)] + key * strides[static_cast<size_t>(axes.key)];
          const bool kept = dropout_keeps(run_.seed, run_.step, dropout_of(built_.graph, attention_.mask)->subsequence,
                                          static_cast<uint64_t>(element), problem_.rate);
          masks_[score_at(head, static_cast<size_t>(query), static_cast<size_t>(key))] =
              kept ? 1 / (1 - problem_.rate) : 0;
          if (kept && problem_.mask_bits) mask_bits_[static_cast<size_t>(element) / 8] |= std::byte{1} << (element % 8);
        }
      }
    }
  }

  bool sees(size_t query, size_t key) const { return !problem_.causal || key <= query; }

  // Σ x·y along the columns of two rows, and Σ |x·y|.
  struct Dot {
    double sum = 0;
    double size = 0;
  };
  Dot dot(size_t x, size_t x_row, size_t y, size_t y_row, size_t head) const {
    Dot total;
    for (size_t column = 0; column < columns_of(x); ++column) {
      const double product = value(x, head, x_row, column) * value(y, head, y_row, column);
      total.sum += product;
      total.size += std::abs(product);
    }
    return total;
  }

  // The scores of a query, and bounds of their errors: `error` is that of a score, and `size` bounds the exponents,
  // whose rounding adds to it.
  struct Scores {
    std::vector<double> values;
    double error = 0;
    double largest = -std::numeric_limits<double>::infinity();
    double size = 0;
  };
  Scores scores_of(size_t head, size_t query) const {
    Scores scores;
    for (size_t key = 0; key < static_cast<size_t>(problem_.keys) && sees(query, key); ++key) {
      const Dot product = dot(Attention::q, query, Attention::k, key, head);
      scores.values.push_back(product.sum * scale_);
      scores.error =
          std::max(scores.error, static_cast<double>(problem_.inner + 4) * kFloat * product.size * std::abs(scale_));
      scores.largest = std::max(scores.largest, scores.values.back());
      scores.size = std::max(scores.size, std::abs(scores.values.back()));
    }
    scores.error += 8 * kFloat * scores.size;
    return scores;
  }

  void forward(size_t head) {
    const auto keys = static_cast<double>(problem_.keys);
    const double tiles = keys / 32 + 2;
    for (size_t query = 0; query < static_cast<size_t>(problem_.queries); ++query) {
      const Scores scores = scores_of(head, query);
      double sum = 0;
      for (const double score : scores.values) sum += std::exp(score - scores.largest);
      const double log_sum = scores.largest + std::log(sum);
      const double relative = 2 * scores.error + tiles * kPower + (keys + 8) * kFloat;
      set(Attention::log_sums, head, query, 0, log_sum, relative + 8 * kFloat * std::abs(log_sum));
      for (size_t column = 0; column < columns_of(Attention::o); ++column) {
        Dot total;
        double unit = 0;
        for (size_t key = 0; key < scores.values.size(); ++key) {
          const double m = masks_[score_at(head, query, key)] * value(Attention::v, head, key, column);
          const double p = std::exp(scores.values[key] - log_sum);
          total.sum += p * m;
          total.size += std::abs(p * m);
          unit += std::abs(m);
        }
        set(Attention::o, head, query, column, total.sum,
            total.size * (relative + half_unit()) + unit * smallest() + half_unit() * std::abs(total.sum) + smallest());
      }
    }
  }

  // p · mask and ds of a head, with error bounds.
  struct ScoreGradients {
    std::vector<double> p, p_error, ds, ds_error;
  };
  ScoreGradients score_gradients(size_t head) const {
    ScoreGradients gradients;
    const size_t count = static_cast<size_t>(problem_.queries * problem_.keys);
    for (std::vector<double>* values : {&gradients.p, &gradients.p_error, &gradients.ds, &gradients.ds_error})
      values->assign(count, 0);
    for (size_t query = 0; query < static_cast<size_t>(problem_.queries); ++query) {
      const Scores scores = scores_of(head, query);
      const double log_sum = value(Attention::log_sums, head, query, 0);
      const double relative = scores.error + 8 * kFloat * std::abs(log_sum) + 2 * kPower;
      const Dot total = dot(Attention::o, query, Attention::d_o, query, head);
      for (size_t key = 0; key < scores.values.size(); ++key) {
        const size_t n = query * static_cast<size_t>(problem_.keys) + key;
        const double mask = masks_[score_at(head, query, key)];
        const double p = std::exp(scores.values[key] - log_sum);
        const Dot dp = dot(Attention::d_o, query, Attention::v, key, head);
        gradients.p[n] = p * mask;
        gradients.p_error[n] = p * mask * (relative + half_unit()) + mask * smallest();
        gradients.ds[n] = p * (dp.sum * mask - total.sum);
        const double sums = static_cast<double>(problem_.values + 8) * kFloat * (dp.size * mask + total.size);
        gradients.ds_error[n] = std::abs(gradients.ds[n]) * (relative + half_unit()) + p * sums + smallest();
      }
    }
    return gradients;
  }

  struct Approximate {
    double value = 0;
    double error = 0;
  };

  // Adds `factor` times Σ left · right, of `count` terms, to a result: one term for each head of a group.
  template <class Left, class Right>
  void set_sum(size_t operand, size_t head, size_t row, size_t column, double factor, size_t count, const Left& left,
               const Right& right) {
    double sum = 0;
    double error = 0;
    for (size_t n = 0; n < count; ++n) {
      const Approximate x = left(n);
      const double y = right(n);
      sum += x.value * y;
      error += std::abs(y) * (x.error + std::abs(x.value) * static_cast<double>(count * heads_ + 8) * kFloat);
    }
    operands_[operand].values[at(operand, head, row, column)] += factor * sum;
    operands_[operand].allowed[at(operand, head, row, column)] +=
        std::abs(factor) * error + 2 * half_unit() * std::abs(factor * sum) + smallest();
  }

  void backward(size_t head) {
    const ScoreGradients gradients = score_gradients(head);
    const auto queries = static_cast<size_t>(problem_.queries);
    const auto keys = static_cast<size_t>(problem_.keys);
    for (size_t column = 0; column < columns_of(Attention::q); ++column) {
      for (size_t query = 0; query < queries; ++query) {
        set_sum(
            Attention::d_q, head, query, column, scale_, keys,
            [&](size_t key) {
              return Approximate{gradients.ds[query * keys + key], gradients.ds_error[query * keys + key]};
            },
            [&](size_t key) { return value(Attention::k, head, key, column); });
      }
      for (size_t key = 0; key < keys; ++key) {
        set_sum(
            Attention::d_k, head, key, column, scale_, queries,
            [&](size_t query) {
              return Approximate{gradients.ds[query * keys + key], gradients.ds_error[query * keys + key]};
            },
            [&](size_t query) { return value(Attention::q, head, query, column); });
      }
    }
    for (size_t column = 0; column < columns_of(Attention::v); ++column) {
      for (size_t key = 0; key < keys; ++key) {
        set_sum(
            Attention::d_v, head, key, column, 1, queries,
            [&](size_t query) {
              return Approximate{gradients.p[query * keys + key], gradients.p_error[query * keys + key]};
            },
            [&](size_t query) { return value(Attention::d_o, head, query, column); });
      }
    }
  }

  AttentionProblem problem_;
  AttentionRun run_;
  BuiltAttention built_;
  const Attention& attention_;
  double scale_ = 1;
  size_t heads_ = 1;
  std::array<OperandValues, Attention::kOperands> operands_;
  std::vector<double> masks_;
  std::vector<std::byte> mask_bits_;
};

}  // namespace millrace
