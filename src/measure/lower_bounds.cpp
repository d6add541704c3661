#include "measure/lower_bounds.h"

#include <algorithm>
#include <limits>

#include "ir/layout.h"

namespace millrace {
namespace {

// Operators that may leave elements of their inputs unread.
bool may_skip(OperatorKind kind) {
  return kind == OperatorKind::join || kind == OperatorKind::gather || kind == OperatorKind::where ||
         kind == OperatorKind::dropout || kind == OperatorKind::causal_mask || kind == OperatorKind::causal_mask_dx ||
         kind == OperatorKind::embed_diagonal;
}

// Whether an operator must touch every element of an access's tensor.
bool touches_all(const Graph& graph, const Operator& op, const Access& access) {
  return !may_skip(op.kind) && is_plain(graph, op, access) && !takes_diagonal(access);
}

bool is_touched_whole(const Graph& graph, const std::vector<OperatorId>& operators, TensorId tensor) {
  return std::any_of(operators.begin(), operators.end(), [&](OperatorId id) {
    const Operator& op = graph.operators[id.at()];
    const auto whole = [&](const Access& access) { return access.tensor == tensor && touches_all(graph, op, access); };
    return std::any_of(op.inputs.begin(), op.inputs.end(), whole) ||
           std::any_of(op.outputs.begin(), op.outputs.end(), whole);
  });
}

// Narrow types may be multiplied by units that the ceiling does not cover.
bool multiplies_float32(const Graph& graph, const Operator& op) {
  return op.kind == OperatorKind::contraction &&
         std::all_of(op.inputs.begin(), op.inputs.end(),
                     [&](const Access& access) { return graph.tensor(access.tensor).dtype == DType::float32; });
}

// Fused attention with a window neither reads nor multiplies what the window hides.
bool has_window(const Partition& partition) {
  return partition.kind == PartitionKind::attention && !partition.attention.keys_seen().is_everything();
}
bool may_be_hidden(const Attention& attention, TensorId tensor) {
  const auto reads = [&](const std::vector<AttentionTensor>& terms) {
    return std::any_of(terms.begin(), terms.end(), [&](const AttentionTensor& term) { return term.tensor == tensor; });
  };
  return tensor == attention.tensors[Attention::k] || tensor == attention.tensors[Attention::v] ||
         reads(attention.rows[Attention::k].terms) || reads(attention.score.terms);
}

int threads_of(const Candidate& candidate, int all) {
  const auto* const kernel = std::get_if<KernelConfig>(&candidate.config);
  if (kernel != nullptr) return kernel->threads;
  const auto* const attention = std::get_if<CpuAttentionConfig>(&candidate.config);
  return attention != nullptr ? attention->threads : all;
}

}  // namespace

const LowerBounds::Demand& LowerBounds::demand_of(const Partition& partition) {
  const auto [known, fresh] = demands_.try_emplace(&partition);
  Demand& demand = known->second;
  if (!fresh) return demand;
  const std::vector<TensorId> tensors = tensors_of(partition);
  const bool windowed = has_window(partition);
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (windowed && may_be_hidden(partition.attention, tensors[k])) continue;
    if (is_touched_whole(graph_, partition.operators, tensors[k])) demand.whole.push_back(k);
  }
  for (const OperatorId id : partition.operators) {
    const Operator& op = graph_.operators[id.at()];
    if (!windowed && multiplies_float32(graph_, op)) demand.flop += static_cast<double>(flop_of(graph_, op));
  }
  return demand;
}

// Trials from memory run on several copies of the tensors, `all` bytes each. Between two runs the caches hold some of
// these bytes: all levels together at most twice as many as the last level.
double LowerBounds::at_ceilings(double moved, double all, double flop, int threads) const {
  const auto rate = [](double work, double ceiling) { return ceiling > 0 ? work / ceiling : 0.0; };
  double seconds = std::max(rate(flop, threads * ceilings_.flop), rate(moved, threads * ceilings_.cache_bytes));
  if (trial_.caches.cold) {
    const double cached =
        2 * static_cast<double>(trial_.caches.cache_bytes) / static_cast<double>(copies_in_turn(trial_.caches, all));
    seconds = std::max(seconds, rate(std::max(0.0, moved - cached), ceilings_.memory_bytes));
  }
  return seconds / lowered_;
}

template <class Bytes>
double LowerBounds::seconds(const Partition& partition, const Bytes& bytes, int threads) {
  const Demand& demand = demand_of(partition);
  const std::vector<TensorId> tensors = tensors_of(partition);
  double all = 0;
  double moved = 0;
  for (size_t k = 0; k < tensors.size(); ++k) all += bytes(tensors[k], k);
  for (const size_t k : demand.whole) moved += bytes(tensors[k], k);
  return at_ceilings(moved, all, demand.flop, threads);
}

double LowerBounds::seconds(const Partition& partition, const Candidate& candidate) {
  const auto bytes = [&](TensorId tensor, size_t k) {
    const Layout& layout = domains_[tensor.at()].layouts[as_index(candidate.layouts[k])];
    return static_cast<double>(stored_bytes(graph_, tensor, layout));
  };
  return seconds(partition, bytes, threads_of(candidate, threads_));
}

double LowerBounds::seconds(const Partition& partition) {
  const auto least = [&](TensorId tensor, size_t) {
    double bytes = std::numeric_limits<double>::infinity();
    for (const Layout& layout : domains_[tensor.at()].layouts)
      bytes = std::min(bytes, static_cast<double>(stored_bytes(graph_, tensor, layout)));
    return bytes;
  };
  return seconds(partition, least, threads_);
}

double LowerBounds::conversion_seconds(TensorId tensor, int from, int to) {
  double bytes = 0;
  for (const int layout : {from, to})
    bytes += static_cast<double>(stored_bytes(graph_, tensor, domains_[tensor.at()].layouts[as_index(layout)]));
  return at_ceilings(bytes, bytes, 0, threads_);
}

void LowerBounds::note(const Partition& partition, const Candidate& candidate, double measured) {
  if (const double bound = seconds(partition, candidate); measured > 0 && bound > measured)
    lowered_ *= bound / measured;
}

}  // namespace millrace
