#include "candidates/kernel_cost.h"

#include <algorithm>

#include "candidates/configs.h"

namespace millrace {
namespace {

// Costs on one core.
constexpr double kForkSeconds = 3e-6;
constexpr double kDrawSeconds = 1e-9;       // per element of a mask
constexpr double kLoopFlopPerSecond = 2e9;  // of generated loops for a contraction

// Costs on a GPU.
constexpr double kGpuDrawSeconds = 5e-13;
constexpr double kGpuLoopFlopPerSecond = 2e12;
constexpr double kSector = 32;       // bytes, the unit of memory transfers
constexpr double kMostAcross = 8;    // times the bytes, without unit stride: caches keep the rest of a sector
constexpr double kConversions = 3;   // times the bytes, converted and then read with unit stride
constexpr double kOfOneDraw = 8;     // neighbours in a mask
constexpr int64_t kFewestDrawn = 4;  // neighbours that share a draw: if there are fewer, each has its own

bool has(const std::vector<int>& axes, int index) { return std::find(axes.begin(), axes.end(), index) != axes.end(); }

// Whether the loops visit a tensor in the order of its memory.
bool follows(const PartitionTensor& tensor, const Layout& layout, const std::vector<int>& loops) {
  auto at = loops.begin();
  for (const int axis : layout.order) {
    const int index = tensor.axes[as_index(axis)];
    if (index == kNoIndex) continue;
    at = std::find(at, loops.end(), index);
    if (at == loops.end()) return false;
  }
  return true;
}

// The flop of a contraction; zero for other nests, which are bound by their bytes.
double flop_of(const Partition& partition) {
  if (partition.kind != PartitionKind::contraction) return 0;
  double flop = 2;
  for (const PartitionIndex& index : partition.space) flop *= static_cast<double>(index.extent);
  return flop;
}

}  // namespace

KernelCost::KernelCost(const Graph& graph, const std::vector<TensorDomain>& domains, const Partition& partition,
                       const std::vector<PartitionTensor>& tensors)
    : graph_(graph),
      domains_(domains),
      partition_(partition),
      tensors_(tensors),
      element_bytes_(narrowest_bytes(graph, partition)),
      has_dropout_(std::any_of(partition.members.begin(), partition.members.end(),
                               [&](OperatorId op) { return graph.operators[op.at()].kind == OperatorKind::dropout; })) {
}

const Layout& KernelCost::layout(size_t k, const std::vector<int>& layouts) const {
  return domains_[tensors_[k].id.at()].layouts[as_index(layouts[k])];
}

// A tensor without unit stride along the vector costs a cache line per element.
double KernelCost::seconds(const std::vector<int>& layouts, const KernelConfig& config) const {
  double bytes = 0;
  double drawn = has_dropout_ ? 1 : 0;
  double points = 1;
  for (const PartitionIndex& index : partition_.space) points *= static_cast<double>(index.extent);
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const Layout& own = layout(k, layouts);
    const auto size = static_cast<double>(stored_bytes(graph_, tensors_[k].id, own));
    const int innermost = tensors_[k].innermost[as_index(layouts[k])];
    double factor = 1;
    if (own.storage == MaskStorage::words && has(tensors_[k].axes, config.vector) && innermost != config.vector)
      factor = innermost == config.block ? 1.5 : 4;
    if (own.storage == MaskStorage::regenerated && !tensors_[k].written) drawn += 1;
    bytes += size * factor * (follows(tensors_[k], own, config.loops) ? 1 : 1.05);
  }
  const double threads = config.threads;
  return (bytes / kCpuBytesPerSecond + points * drawn * kDrawSeconds + flop_of(partition_) / kLoopFlopPerSecond) /
             threads +
         (config.threads > 1 ? kForkSeconds : 0);
}

double KernelCost::seconds_on_gpu(const std::vector<int>& layouts, const KernelConfig& config) const {
  double bytes = 0;
  double drawn = 0;
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const double times = times_drawn(k, layouts, config);
    if (times > 0) drawn += times * static_cast<double>(elements_of(graph_, tensors_[k].id));
    const int64_t stored = stored_bytes(graph_, tensors_[k].id, layout(k, layouts));
    bytes += times_moved(k, layouts, config) * static_cast<double>(stored);
  }
  const double narrow =
      config.vector == kNoIndex ? 1 : 1 + 0.2 / static_cast<double>(width_along(*config.gpu, extent(config.vector)));
  return (bytes / kGpuBytesPerSecond + drawn * kGpuDrawSeconds) * narrow + flop_of(partition_) / kGpuLoopFlopPerSecond +
         kGpuLaunchSeconds;
}

bool KernelCost::should_convert(const std::vector<int>& layouts, const KernelConfig& config) const {
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const TensorDomain& domain = domains_[tensors_[k].id.at()];
    if (domain.pinned >= 0 || domain.layouts.size() < 2) continue;
    const auto bytes = static_cast<double>(stored_bytes(graph_, tensors_[k].id, layout(k, layouts)));
    if ((times_moved(k, layouts, config) - kConversions) * bytes / kGpuBytesPerSecond > kGpuLaunchSeconds) return true;
  }
  return false;
}

bool KernelCost::draws_across(const std::vector<int>& layouts, const KernelConfig& config) const {
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const auto elements = static_cast<double>(elements_of(graph_, tensors_[k].id));
    if ((times_drawn(k, layouts, config) - 1) * elements * kGpuDrawSeconds > kGpuLaunchSeconds) return true;
  }
  return false;
}

// How many times a tensor's bytes are read or written: a sector per element, if neighbouring threads access elements
// that are not neighbours in memory.
double KernelCost::times_moved(size_t k, const std::vector<int>& layouts, const KernelConfig& config) const {
  const PartitionTensor& tensor = tensors_[k];
  const int innermost = tensor.innermost[as_index(layouts[k])];
  const bool broadcast = !has(tensor.axes, config.vector);
  if (layout(k, layouts).storage != MaskStorage::words || broadcast || innermost == config.vector ||
      innermost == config.block || innermost == beside_vector(config))
    return 1;
  return std::min(kMostAcross, kSector / static_cast<double>(bytes_of(graph_.tensor(tensor.id).dtype)));
}

// If a thread processes all of a short vector index, neighbouring threads of a flat nest run along the next index.
int KernelCost::beside_vector(const KernelConfig& config) const {
  if (config.rows || config.loops.size() < 2 || config.vector != config.loops.back()) return kNoIndex;
  return extent(config.vector) <= widest_access(element_bytes_) ? config.loops[config.loops.size() - 2] : kNoIndex;
}

// How many draws are made, as a multiple of one per eight elements of a mask; 0 if nothing is drawn.
double KernelCost::times_drawn(size_t k, const std::vector<int>& layouts, const KernelConfig& config) const {
  const PartitionTensor& tensor = tensors_[k];
  const bool regenerated = layout(k, layouts).storage == MaskStorage::regenerated;
  const bool made = tensor.written && !partition_.operators.empty() && dropout_of(graph_, tensor.id) != nullptr;
  if (!made && (tensor.written || !regenerated)) return 0;
  const int neighbours = tensor.innermost.front();  // in the written layout, which numbers the elements
  const bool shared = neighbours != kNoIndex && extent(neighbours) % kFewestDrawn == 0;
  return shared && neighbours != config.vector ? kOfOneDraw : 1;
}

}  // namespace millrace
