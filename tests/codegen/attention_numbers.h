// The numbers of an AttentionProblem: inputs by chance, outputs in double by the definition, and how far a kernel may
// be away from them: by rounding p and ds to halves for the second products, by float sums in any order, by results as
// halves, and by a power of two and a logarithm that are right to 2^-21.
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

// Of an operand: [head][row][column] in the order of the attention's indices.
struct OperandNumbers {
  std::vector<double> values;
  std::vector<double> allowed;  // of a result: how far from the value
};

struct AttentionRun {
  uint64_t seed = 1234567890123;
  uint32_t step = 7;
};

class AttentionNumbers {
 public:
  AttentionNumbers(const AttentionProblem& problem, const AttentionRun& run, unsigned drawn = 1)
      : problem_(problem), run_(run), made_(made_attention(problem)), attention_(made_.partition.attention) {
    for (const double scale : problem.scales) scale_ *= scale;
    for (const int64_t extent : problem.batch) heads_ *= static_cast<size_t>(extent);
    draw(drawn);
    fill_masks();
    work_out();
  }

  const MadeAttention& made() const { return made_; }
  const std::vector<std::byte>& mask_bits() const { return mask_bits_; }  // empty: they are drawn
  OperandNumbers& operator[](Attention::Operand operand) { return operands_[operand]; }
  // After an input was changed.
  void work_out() {
    for (size_t head = 0; head < heads_; ++head) forward(head);
    if (!problem_.backward) return;
    for (const Attention::Operand given : {Attention::o, Attention::log_sums}) {
      for (double& x : operands_[given].values) x = stored(x, given);
    }
    for (size_t head = 0; head < heads_; ++head) backward(head);
  }

  // As bytes in the operand's layout, and back.
  std::vector<std::byte> bytes_of(Attention::Operand operand) const {
    const StoredType type = type_of(operand);
    const auto size = static_cast<size_t>(millrace::bytes_of(type));
    std::vector<std::byte> bytes(operands_[operand].values.size() * size);
    each(operand, [&](size_t number, size_t place) {
      const uint64_t bits = encode(operands_[operand].values[number], type);
      std::memcpy(&bytes[place * size], &bits, size);
    });
    return bytes;
  }
  std::vector<double> numbers_in(const std::vector<std::byte>& bytes, Attention::Operand operand) const {
    const StoredType type = type_of(operand);
    const auto size = static_cast<size_t>(millrace::bytes_of(type));
    std::vector<double> numbers(operands_[operand].values.size());
    each(operand, [&](size_t number, size_t place) {
      uint64_t bits = 0;
      std::memcpy(&bits, &bytes[place * size], size);
      numbers[number] = decode(bits, type);
    });
    return numbers;
  }

  // The largest distance, in units of what is allowed: right up to 1. A NaN where none is expected is infinitely far.
  double distance(const std::vector<double>& got, Attention::Operand operand) const {
    double largest = 0;
    const OperandNumbers& of = operands_[operand];
    for (size_t n = 0; n < got.size(); ++n) {
      if (std::isnan(of.values[n]) && std::isnan(got[n])) continue;
      const double apart = std::abs(got[n] - of.values[n]) / of.allowed[n];
      largest = std::isnan(apart) ? std::numeric_limits<double>::infinity() : std::max(largest, apart);
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
  static constexpr double kFloat = 0x1p-23;  // a float operation's, truncated as tensor cores do
  static constexpr double kPower = 0x1p-21;

  double half_unit() const { return problem_.dtype == DType::float16 ? 0x1p-11 : 0x1p-8; }
  double smallest() const { return problem_.dtype == DType::float16 ? 0x1p-25 : 0x1p-126; }

  StoredType type_of(Attention::Operand operand) const {
    return stored_type(made_.graph.tensor(attention_.tensors[operand]).dtype);
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
  size_t at(size_t operand, size_t head, size_t row, size_t column = 0) const {
    return (head * rows_of(operand) + row) * columns_of(operand) + column;
  }
  double value(size_t operand, size_t head, size_t row, size_t column) const {
    return operands_[operand].values[at(operand, head, row, column)];
  }
  void set(size_t operand, size_t head, size_t row, size_t column, double x, double allowed) {
    operands_[operand].values[at(operand, head, row, column)] = x;
    operands_[operand].allowed[at(operand, head, row, column)] = allowed;
  }

  // Calls visit(number, place in memory) for every element.
  void each(Attention::Operand operand, const std::function<void(size_t, size_t)>& visit) const {
    const TensorId tensor = attention_.tensors[operand];
    const std::vector<TensorId> tensors = tensors_of(made_.partition);
    const auto position = static_cast<size_t>(std::find(tensors.begin(), tensors.end(), tensor) - tensors.begin());
    const std::vector<int64_t> strides = strides_of(made_.graph, tensor, made_.layouts[position]);
    const Attention::Axes& axes = attention_.axes[operand];
    const auto stride = [&](int axis) { return axis < 0 ? 0 : strides[static_cast<size_t>(axis)]; };
    for (size_t head = 0; head < heads_; ++head) {
      for (size_t row = 0; row < rows_of(operand); ++row) {
        for (size_t column = 0; column < columns_of(operand); ++column) {
          const int64_t place = head_place(head, [&](size_t k) { return stride(axes.batch[k]); }) +
                                static_cast<int64_t>(row) * stride(has_keys(operand) ? axes.key : axes.query) +
                                static_cast<int64_t>(column) * stride(axes.column);
          visit(at(operand, head, row, column), static_cast<size_t>(place));
        }
      }
    }
  }
  template <class Stride>
  int64_t head_place(size_t head, const Stride& stride) const {
    int64_t place = 0;
    auto rest = static_cast<int64_t>(head);
    for (size_t k = problem_.batch.size(); k-- > 0;) {
      place += rest % problem_.batch[k] * stride(k);
      rest /= problem_.batch[k];
    }
    return place;
  }

  void draw(unsigned seed) {
    std::mt19937 random(seed);
    for (size_t operand = 0; operand < Attention::kOperands; ++operand) {
      if (!attention_.tensors[operand].valid()) continue;
      const bool scored = operand == Attention::q || operand == Attention::k;
      std::uniform_real_distribution<double> uniform(scored ? -2 : -1, scored ? 2 : 1);
      operands_[operand].values.resize(heads_ * rows_of(operand) * columns_of(operand));
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
        strides_of(made_.graph, attention_.mask, written_layout(made_.graph, attention_.mask));
    const Attention::Axes& axes = attention_.mask_axes;
    for (size_t head = 0; head < heads_; ++head) {
      const int64_t first = head_place(head, [&](size_t k) { return strides[static_cast<size_t>(axes.batch[k])]; });
      for (int64_t query = 0; query < problem_.queries; ++query) {
        for (int64_t key = 0; key < problem_.keys; ++key) {
          const int64_t element =
              first + query * strides[static_cast<size_t>(axes.query)] + key * strides[static_cast<size_t>(axes.key)];
          const bool kept = dropout_keeps(run_.seed, run_.step, dropout_of(made_.graph, attention_.mask)->subsequence,
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
    Dot made;
    for (size_t column = 0; column < columns_of(x); ++column) {
      const double product = value(x, head, x_row, column) * value(y, head, y_row, column);
      made.sum += product;
      made.size += std::abs(product);
    }
    return made;
  }

  // The scores of a query, and how far a kernel may be away from one, with what the exponent's own size adds.
  struct Scores {
    std::vector<double> values;
    double away = 0;
    double largest = -std::numeric_limits<double>::infinity();
    double size = 0;
  };
  Scores scores_of(size_t head, size_t query) const {
    Scores made;
    for (size_t key = 0; key < static_cast<size_t>(problem_.keys) && sees(query, key); ++key) {
      const Dot of = dot(Attention::q, query, Attention::k, key, head);
      made.values.push_back(of.sum * scale_);
      made.away = std::max(made.away, static_cast<double>(problem_.inner + 4) * kFloat * of.size * std::abs(scale_));
      made.largest = std::max(made.largest, made.values.back());
      made.size = std::max(made.size, std::abs(made.values.back()));
    }
    made.away += 8 * kFloat * made.size;
    return made;
  }

  void forward(size_t head) {
    const auto keys = static_cast<double>(problem_.keys);
    const double panels = keys / 32 + 2;
    for (size_t query = 0; query < static_cast<size_t>(problem_.queries); ++query) {
      const Scores scores = scores_of(head, query);
      double sum = 0;
      for (const double score : scores.values) sum += std::exp(score - scores.largest);
      const double log_sum = scores.largest + std::log(sum);
      const double relative = 2 * scores.away + panels * kPower + (keys + 8) * kFloat;
      set(Attention::log_sums, head, query, 0, log_sum, relative + 8 * kFloat * std::abs(log_sum));
      for (size_t column = 0; column < columns_of(Attention::o); ++column) {
        Dot of;
        double unit = 0;
        for (size_t key = 0; key < scores.values.size(); ++key) {
          const double m = masks_[score_at(head, query, key)] * value(Attention::v, head, key, column);
          const double p = std::exp(scores.values[key] - log_sum);
          of.sum += p * m;
          of.size += std::abs(p * m);
          unit += std::abs(m);
        }
        set(Attention::o, head, query, column, of.sum,
            of.size * (relative + half_unit()) + unit * smallest() + half_unit() * std::abs(of.sum) + smallest());
      }
    }
  }

  // p, p · mask and ds of a head, and how far a kernel's may be away.
  struct Differentiated {
    std::vector<double> p, p_away, ds, ds_away;
  };
  Differentiated differentiated(size_t head) const {
    Differentiated made;
    const size_t count = static_cast<size_t>(problem_.queries * problem_.keys);
    for (std::vector<double>* of : {&made.p, &made.p_away, &made.ds, &made.ds_away}) of->assign(count, 0);
    for (size_t query = 0; query < static_cast<size_t>(problem_.queries); ++query) {
      const Scores scores = scores_of(head, query);
      const double log_sum = value(Attention::log_sums, head, query, 0);
      const double relative = scores.away + 8 * kFloat * std::abs(log_sum) + 2 * kPower;
      const Dot total = dot(Attention::o, query, Attention::d_o, query, head);
      for (size_t key = 0; key < scores.values.size(); ++key) {
        const size_t n = query * static_cast<size_t>(problem_.keys) + key;
        const double mask = masks_[score_at(head, query, key)];
        const double p = std::exp(scores.values[key] - log_sum);
        const Dot dp = dot(Attention::d_o, query, Attention::v, key, head);
        made.p[n] = p * mask;
        made.p_away[n] = p * mask * (relative + half_unit()) + mask * smallest();
        made.ds[n] = p * (dp.sum * mask - total.sum);
        const double sums = static_cast<double>(problem_.values + 8) * kFloat * (dp.size * mask + total.size);
        made.ds_away[n] = std::abs(made.ds[n]) * (relative + half_unit()) + p * sums + smallest();
      }
    }
    return made;
  }

  struct Approximate {
    double value = 0;
    double away = 0;
  };

  // A result: `factor` times Σ of left · right, with `count` terms.
  template <class Left, class Right>
  void put_sum(size_t operand, size_t head, size_t row, size_t column, double factor, size_t count, const Left& left,
               const Right& right) {
    double sum = 0;
    double away = 0;
    for (size_t n = 0; n < count; ++n) {
      const Approximate x = left(n);
      const double y = right(n);
      sum += x.value * y;
      away += std::abs(y) * (x.away + std::abs(x.value) * static_cast<double>(count + 8) * kFloat);
    }
    set(operand, head, row, column, factor * sum,
        std::abs(factor) * away + 2 * half_unit() * std::abs(factor * sum) + smallest());
  }

  void backward(size_t head) {
    const Differentiated of = differentiated(head);
    const auto queries = static_cast<size_t>(problem_.queries);
    const auto keys = static_cast<size_t>(problem_.keys);
    for (size_t column = 0; column < columns_of(Attention::q); ++column) {
      for (size_t query = 0; query < queries; ++query) {
        put_sum(
            Attention::d_q, head, query, column, scale_, keys,
            [&](size_t key) {
              return Approximate{of.ds[query * keys + key], of.ds_away[query * keys + key]};
            },
            [&](size_t key) { return value(Attention::k, head, key, column); });
      }
      for (size_t key = 0; key < keys; ++key) {
        put_sum(
            Attention::d_k, head, key, column, scale_, queries,
            [&](size_t query) {
              return Approximate{of.ds[query * keys + key], of.ds_away[query * keys + key]};
            },
            [&](size_t query) { return value(Attention::q, head, query, column); });
      }
    }
    for (size_t column = 0; column < columns_of(Attention::v); ++column) {
      for (size_t key = 0; key < keys; ++key) {
        put_sum(
            Attention::d_v, head, key, column, 1, queries,
            [&](size_t query) {
              return Approximate{of.p[query * keys + key], of.p_away[query * keys + key]};
            },
            [&](size_t query) { return value(Attention::d_o, head, query, column); });
      }
    }
  }

  AttentionProblem problem_;
  AttentionRun run_;
  MadeAttention made_;
  const Attention& attention_;
  double scale_ = 1;
  size_t heads_ = 1;
  std::array<OperandNumbers, Attention::kOperands> operands_;
  std::vector<double> masks_;
  std::vector<std::byte> mask_bits_;
};

}  // namespace millrace
