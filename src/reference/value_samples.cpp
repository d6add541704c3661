#include "reference/value_samples.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "reference/interpreter.h"
#include "reference/philox.h"

namespace millrace {
namespace {

constexpr size_t kSamples = 64;  // a power of two
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Sampler {
 public:
  Sampler(const Graph& graph, const DrawRules& rules) : graph_(graph), samples_(graph.tensors.size()) {
    for (size_t k = 0; k < graph.tensors.size(); ++k) draw(k, rules[k]);
  }

  std::vector<Samples> run() {
    for (const Operator& op : graph_.operators) sample(op);
    return std::move(samples_);
  }

 private:
  // Evenly spaced in [-1, 1], both ends included. Their random order depends only on the tensor's name, so it is the
  // same in another graph of the program.
  Samples spread(TensorId tensor) const {
    uint64_t seed = 0;
    for (const char letter : graph_.tensor(tensor).name) seed = 31 * seed + static_cast<unsigned char>(letter);
    Samples values =
        made([](size_t k) { return 2.0 * static_cast<double>(k) / static_cast<double>(kSamples - 1) - 1; });
    for (size_t k = kSamples; k-- > 1;) {
      const double drawn = (1 + uniform_draw(seed, 0, k)) / 2;
      std::swap(values[k], values[static_cast<size_t>(drawn * static_cast<double>(k + 1))]);
    }
    return values;
  }
  static Samples made(const std::function<double(size_t)>& value) {
    Samples samples(kSamples);
    for (size_t k = 0; k < kSamples; ++k) samples[k] = value(k);
    return samples;
  }
  static size_t elsewhere(size_t sample) { return (37 * sample + 11) % kSamples; }

  void draw(size_t tensor, const DrawRule& rule) {
    const Tensor& drawn = graph_.tensors[tensor];
    if (drawn.role == TensorRole::computed) return;
    samples_[tensor] = drawn.role == TensorRole::constant ? Samples(kSamples, drawn.value) : spread(TensorId(tensor));
    if (drawn.role == TensorRole::constant) return;
    for (double& sample : samples_[tensor]) sample = drawn_value(rule, sample);
  }

  const Samples& in(const Operator& op, size_t input) const { return samples_[op.inputs[input].tensor.at()]; }
  Samples& out(const Operator& op, size_t output = 0) { return samples_[op.outputs[output].tensor.at()]; }

  void sample(const Operator& op) {
    const double n = reduced_points(graph_, op);
    switch (op.kind) {
      case OperatorKind::dropout: return sample_dropout(op);
      case OperatorKind::join: out(op) = made([&](size_t k) { return in(op, k % op.inputs.size())[k]; }); return;
      case OperatorKind::index: return sample_positions(op);
      case OperatorKind::causal_mask: out(op) = some(in(op, 0), 2, -kInfinity); return;
      case OperatorKind::causal_mask_dx: out(op) = some(in(op, 0), 2, 0); return;
      case OperatorKind::embed_diagonal: out(op) = some(in(op, 0), 8, 0); return;
      case OperatorKind::extremum_dx: out(op) = some(in(op, 2), 8, 0); return;
      case OperatorKind::gather:
      case OperatorKind::scatter_add:
      case OperatorKind::copy: out(op) = in(op, 0); return;
      case OperatorKind::sum: out(op) = sums_of(in(op, 0), n, op.outputs[0].tensor); return;
      case OperatorKind::max: out(op) = largest_of(in(op, 0), n, 1); return;
      case OperatorKind::min: out(op) = largest_of(in(op, 0), n, -1); return;
      case OperatorKind::contraction: return sample_contraction(op, n);
      case OperatorKind::softmax: out(op) = exponentials(in(op, 0), n).shares; return;
      case OperatorKind::log_sum_exp: out(op) = Samples(kSamples, exponentials(in(op, 0), n).log_sum); return;
      case OperatorKind::softmax_dx: return sample_softmax_gradient(op, n);
      case OperatorKind::layernorm:
      case OperatorKind::rmsnorm: return sample_norm(op, n);
      case OperatorKind::layernorm_dx: out(op) = products({&in(op, 1), &in(op, 3), &in(op, 4)}); return;
      case OperatorKind::rmsnorm_dx: out(op) = products({&in(op, 1), &in(op, 2), &in(op, 3)}); return;
      case OperatorKind::layernorm_dw:
        out(op, 0) = sums_of(products({&in(op, 0), &in(op, 2), &in(op, 3)}), n, op.outputs[0].tensor);
        out(op, 1) = sums_of(in(op, 3), n, op.outputs[1].tensor);
        return;
      case OperatorKind::rmsnorm_dw:
        out(op) = sums_of(products({&in(op, 0), &in(op, 1), &in(op, 2)}), n, op.outputs[0].tensor);
        return;
      default: return sample_elementwise(op);
    }
  }

  // Every other operator is elementwise: the interpreter's own formula on the samples.
  void sample_elementwise(const Operator& op) {
    Graph one;
    one.dims = {{"samples", static_cast<int64_t>(kSamples)}};
    Operator same = op;
    same.space = {DimId(0)};
    same.reduced = {false};
    Values<double> values;
    const auto add = [&](Access& access, TensorRole role) {
      values.push_back(samples_[access.tensor.at()]);
      access = {TensorId(one.tensors.size()), {Position(0)}};
      one.tensors.push_back({"", DType::float64, {DimId(0)}, role, 0, false});
    };
    for (Access& input : same.inputs) add(input, TensorRole::argument);
    add(same.outputs[0], TensorRole::computed);
    one.operators = {same};
    if (interpret(one, values, {})) out(op) = values.back();
  }

  // Every `step`-th sample, and otherwise a number.
  static Samples some(const Samples& samples, size_t step, double otherwise) {
    return made([&](size_t k) { return elsewhere(k) % step == 0 ? samples[k] : otherwise; });
  }

  void sample_dropout(const Operator& op) {
    const auto dropped = static_cast<size_t>(std::lround(op.value * static_cast<double>(kSamples)));
    out(op, 1) = made([&](size_t k) { return elsewhere(k) < dropped ? 0 : 1 / (1 - op.value); });
    out(op, 0) = products({&in(op, 0), &out(op, 1)});
  }

  void sample_positions(const Operator& op) {
    const auto last = static_cast<double>(graph_.extent(op.space[0]) - 1);
    const Samples at = spread(op.outputs[0].tensor);
    out(op) = made([&](size_t k) { return std::floor((at[k] + 1) / 2 * last); });
  }

  static Samples products(const std::vector<const Samples*>& factors) {
    return made([&](size_t k) {
      double product = 1;
      for (const Samples* factor : factors) product *= (*factor)[k];
      return product;
    });
  }

  // Sums of n independent elements: uniform with their mean and deviation, between their bounds.
  Samples sums_of(const Samples& terms, double n, TensorId sum) const {
    if (n == 1) return terms;
    const SampleStatistics term = statistics_of(terms);
    // If terms have both signs, their mean counts as zero unless the samples prove it: otherwise n times the mean would
    // hide the deviation.
    const bool proven = std::abs(term.mean) * std::sqrt(static_cast<double>(kSamples)) > 3 * term.deviation;
    const double mean = proven || term.least >= 0 || term.most <= 0 ? term.mean : 0;
    const Samples at = spread(sum);
    return made([&](size_t k) {
      const double value = n * mean + std::sqrt(3 * n) * term.deviation * at[k];
      return std::clamp(value, n * term.least, n * term.most);
    });
  }

  static Samples largest_of(const Samples& terms, double n, double sign) {
    Samples largest = terms;
    for (double count = 1; count < std::min(n, 8.0); count *= 2) {
      const Samples known = largest;
      for (size_t k = 0; k < kSamples; ++k) largest[k] = sign * std::max(sign * known[k], sign * known[elsewhere(k)]);
    }
    return largest;
  }

  void sample_contraction(const Operator& op, double n) {
    const bool is_square = op.inputs[0] == op.inputs[1];
    Samples terms = made([&](size_t k) { return in(op, 0)[k] * in(op, 1)[is_square ? k : elsewhere(k)]; });
    for (size_t input = 2; input < op.inputs.size(); ++input) terms = products({&terms, &in(op, input)});
    out(op) = sums_of(terms, n, op.outputs[0].tensor);
  }

  struct Exponentials {
    Samples shares;
    double log_sum = 0;
  };
  static Exponentials exponentials(const Samples& scores, double n) {
    const double largest = *std::max_element(scores.begin(), scores.end());
    Exponentials found{made([&](size_t k) { return std::exp(scores[k] - largest); })};
    const double sum = std::max(1.0, n * statistics_of(found.shares).mean);
    for (double& share : found.shares) share /= sum;
    found.log_sum = largest + std::log(sum);
    return found;
  }

  void sample_softmax_gradient(const Operator& op, double n) {
    const double inner = n * statistics_of(products({&in(op, 0), &in(op, 1)})).mean;
    out(op) = made([&](size_t k) { return in(op, 0)[k] * (in(op, 1)[k] - inner); });
  }

  void sample_norm(const Operator& op, double n) {
    const bool centred = op.kind == OperatorKind::layernorm;
    const SampleStatistics input = statistics_of(in(op, 0));
    const double mean = centred ? input.mean : 0;
    const double squares = input.deviation * input.deviation + (centred ? 0 : input.mean * input.mean);
    const double rstd = 1 / std::sqrt(squares + op.value);
    out(op) =
        made([&](size_t k) { return (in(op, 0)[k] - mean) * rstd * in(op, 1)[k] + (centred ? in(op, 2)[k] : 0); });
    if (centred) out(op, 1) = made([&](size_t k) { return mean + std::sqrt(1 / n) * (in(op, 0)[k] - mean); });
    out(op, centred ? 2 : 1) = Samples(kSamples, rstd);
  }

  const Graph& graph_;
  std::vector<Samples> samples_;
};

}  // namespace

double reduced_points(const Graph& graph, const Operator& op) {
  double points = 1;
  for (size_t index = 0; index < op.space.size(); ++index)
    points *= op.reduced[index] ? static_cast<double>(graph.extent(op.space[index])) : 1;
  return points;
}

std::vector<Samples> sample_values(const Graph& graph, const DrawRules& rules) { return Sampler(graph, rules).run(); }

SampleStatistics statistics_of(const Samples& samples) {
  SampleStatistics found;
  double squares = 0;
  for (const double x : samples) {
    if (!std::isfinite(x)) continue;
    found.least = found.count == 0 ? x : std::min(found.least, x);
    found.most = found.count == 0 ? x : std::max(found.most, x);
    ++found.count;
    found.mean += (x - found.mean) / static_cast<double>(found.count);
  }
  for (const double x : samples) squares += std::isfinite(x) ? (x - found.mean) * (x - found.mean) : 0;
  if (found.count > 0) found.deviation = std::sqrt(squares / static_cast<double>(found.count));
  return found;
}

}  // namespace millrace
