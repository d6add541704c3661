#include "candidates/cpu_attention_configs.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/text.h"
#include "candidates/configs.h"

namespace millrace {
namespace {

// Speeds of a core. Only the order of candidates depends on them.
constexpr double kCoreFlopPerSecond = 60e9;
constexpr double kSecondsPerScore = 5e-10;  // exponentials, conversions, packing
constexpr double kSecondsPerMask = 5e-10;
constexpr double kSecondsPerFork = 5e-6;

constexpr int64_t kPackedStep = 16;  // a vector of the prelude

int rounded_to_step(int64_t extent) { return static_cast<int>((extent + kPackedStep - 1) / kPackedStep * kPackedStep); }

// Multiply-adds per score: in forward those of two products; in backward those of two products again, of one for each
// gradient, and of two for the gradient of a term.
double products_of(const Attention& attention) {
  const auto inner = static_cast<double>(attention.inner);
  const auto values = static_cast<double>(attention.values);
  if (!attention.backward) return inner + values;
  return inner + values + (attention.has(Attention::d_q) ? inner : 0) + (attention.has(Attention::d_k) ? inner : 0) +
         (attention.has(Attention::d_v) ? values : 0) + (attention.d_term.valid() ? inner + values : 0);
}

}  // namespace

std::optional<std::string> why_not_on_cpu(const Graph& graph, const Attention& attention) {
  const DType dtype = graph.tensor(attention.tensors[Attention::q]).dtype;
  if (dtype == DType::float64) return "an attention in float64: the logarithms of its rows' sums are saved in float32";
  for (const TensorId tensor : attention.tensors) {
    if (tensor.valid() && tensor != attention.tensors[Attention::log_sums] && graph.tensor(tensor).dtype != dtype)
      return "an attention of several types";
  }
  const auto has_wide = [&](const std::vector<AttentionTensor>& terms) {
    return std::any_of(terms.begin(), terms.end(),
                       [&](const AttentionTensor& term) { return graph.tensor(term.tensor).dtype == DType::float64; });
  };
  const bool wide = std::any_of(attention.rows.begin(), attention.rows.end(),
                                [&](const RowExpression& rows) { return has_wide(rows.terms); });
  if (wide || has_wide(attention.score.terms)) return "an attention with a term in float64";
  return std::nullopt;
}

std::vector<CpuAttentionConfig> cpu_attention_configs(const Attention& attention, int threads) {
  constexpr std::array<std::pair<int, int>, 6> kTiles = {
      {{64, 128}, {64, 256}, {128, 128}, {32, 256}, {128, 256}, {64, 512}}};
  std::vector<CpuAttentionConfig> made;
  std::set<std::pair<int, int>> seen;
  for (const auto& [queries, keys] : kTiles) {
    const std::pair<int, int> tile = {std::min(queries, rounded_to_step(attention.queries)),
                                      std::min(keys, rounded_to_step(attention.keys))};
    if (!seen.insert(tile).second) continue;
    made.push_back({tile.first, tile.second, threads});
    if (threads > 1) made.push_back({tile.first, tile.second, 1});
  }
  return made;
}

double estimate(const Graph& graph, const Attention& attention, const CpuAttentionConfig& config, double seen) {
  const double scores = seen * static_cast<double>(attention.heads()) * static_cast<double>(attention.queries) *
                        static_cast<double>(attention.keys);
  const double each = 2 * products_of(attention) / kCoreFlopPerSecond + kSecondsPerScore +
                      (attention.mask.valid() ? kSecondsPerMask : 0);
  double bytes = 0;
  for (const TensorId tensor : attention.tensors)
    bytes +=
        tensor.valid() ? static_cast<double>(elements_of(graph, tensor) * bytes_of(graph.tensor(tensor).dtype)) : 0;
  return (scores * each + bytes / kCpuBytesPerSecond) / config.threads + (config.threads > 1 ? kSecondsPerFork : 0);
}

}  // namespace millrace
