#include "candidates/enumerate.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "base/text.h"
#include "candidates/configs.h"
#include "candidates/partitions.h"
#include "candidates/pins.h"

namespace millrace {
namespace {

// The most promising first. Sorts indices, because candidates are expensive to move.
void sort_by_estimate(std::vector<Candidate>& candidates) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    const Candidate& l = candidates[left];
    const Candidate& r = candidates[right];
    return l.estimate != r.estimate ? l.estimate < r.estimate : l.layouts < r.layouts;
  });
  std::vector<Candidate> sorted;
  sorted.reserve(candidates.size());
  for (const size_t number : order) sorted.push_back(std::move(candidates[number]));
  candidates = std::move(sorted);
}

}  // namespace

std::string key_of(const Candidate& candidate) {
  std::string key;
  const auto put = [&](int number) {
    key.push_back(static_cast<char>(number & 0xff));
    key.push_back(static_cast<char>((number >> 8) & 0xff));
  };
  const auto put_all = [&](std::span<const int> numbers) {
    put(static_cast<int>(numbers.size()));
    for (const int number : numbers) put(number);
  };
  put_all(candidate.layouts);
  if (const auto* kernel = std::get_if<KernelConfig>(&candidate.config)) {
    put_all(std::array{kernel->rows ? 1 : 0, kernel->vector, kernel->threads, kernel->block});
    put_all(kernel->loops);
    if (const std::optional<GpuShape>& gpu = kernel->gpu)
      put_all(std::array{gpu->width, gpu->row_threads, gpu->threads, gpu->blocks, gpu->prefetch});
  } else if (const auto* attention = std::get_if<AttentionConfig>(&candidate.config)) {
    put_all(std::array{attention->warps, attention->row_tiles, attention->tile_columns, attention->stages,
                       attention->wgmma ? 1 : 0, attention->rows_in_smem ? 1 : 0, attention->single_kernel ? 1 : 0,
                       attention->specialized ? 1 : 0, attention->head_splits});
  } else if (const auto* cpu_attention = std::get_if<CpuAttentionConfig>(&candidate.config)) {
    put_all(std::array{cpu_attention->tile_queries, cpu_attention->tile_keys, cpu_attention->threads});
  } else if (std::holds_alternative<CudnnConfig>(candidate.config)) {
    put(0);
  } else {
    const auto& gemm = std::get<GemmConfig>(candidate.config);
    put_all(std::array{static_cast<int>(gemm.library), gemm.threads_over_loops ? 1 : 0, gemm.threads,
                       gemm.tensor_cores ? 1 : 0, gemm.unfolded});
    for (const std::vector<int>* chain : {&gemm.m, &gemm.n, &gemm.k}) put_all(*chain);
  }
  return key;
}

bool Collector::is_new(const Candidate& candidate) {
  lookups_ += 1;
  return seen_.insert(key_of(candidate)).second;
}

void Collector::add(Candidate candidate) {
  if (is_new(candidate)) add_new(std::move(candidate));
}

void Collector::add_new(Candidate candidate) {
  into_.configurations += 1;
  if (!keeps(candidate.layouts, candidate.estimate) && !has_written_layouts(domains_, into_.partition, candidate))
    return;
  into_.candidates.push_back(std::move(candidate));
  if (into_.candidates.size() >= 4 * std::max(most_, kept_) + 1000) shrink();
}

void Collector::reject(std::string_view reason, double count) {
  for (Rejected& known : into_.rejected) {
    if (known.reason != reason) continue;
    known.count += count;
    return;
  }
  into_.rejected.push_back({std::string(reason), count});
}

void Collector::shrink() {
  std::vector<Candidate>& all = into_.candidates;
  sort_by_estimate(all);
  if (all.size() <= most_) return;
  worst_kept_ = all[most_ - 1].estimate;
  worst_of_.assign(all.front().layouts.size(), {});
  std::vector<std::map<int, size_t>> counts(worst_of_.size());
  std::vector<Candidate> kept;
  for (size_t position = 0; position < all.size(); ++position) {
    Candidate& candidate = all[position];
    bool wanted = position < most_ || has_written_layouts(domains_, into_.partition, candidate);
    for (size_t k = 0; k < counts.size(); ++k) {
      size_t& count = counts[k][candidate.layouts[k]];
      if (count >= per_layout_) continue;
      wanted = true;
      if (++count == per_layout_) worst_of_[k][candidate.layouts[k]] = candidate.estimate;
    }
    if (wanted) kept.push_back(std::move(candidate));
  }
  all = std::move(kept);
  kept_ = all.size();
}

bool Collector::keeps(const std::vector<int>& layouts, double estimate) const {
  if (estimate <= worst_kept_) return true;
  for (size_t k = 0; k < layouts.size(); ++k) {
    const auto worst = worst_of_[k].find(layouts[k]);
    if (worst == worst_of_[k].end() || estimate < worst->second) return true;
  }
  return false;
}

std::unique_ptr<ConfigGroups> config_groups(const Graph& graph, const std::vector<TensorDomain>& domains,
                                            const EnumerateOptions& options, const Partition& partition) {
  switch (partition.kind) {
    case PartitionKind::attention: return attention_configs(graph, domains, options, partition);
    case PartitionKind::contraction: return gemm_configs(graph, domains, options, partition);
    case PartitionKind::kernel: break;
  }
  return kernel_configs(graph, domains, options, KernelLayouts::all, partition);
}

namespace {

// Whether a library can read a contraction's operands only if one of them is unfolded, or not at all.
bool reads_no_operand_in_place(const std::vector<Candidate>& products) {
  return std::all_of(products.begin(), products.end(), [](const Candidate& candidate) {
    return std::get<GemmConfig>(candidate.config).unfolded != kNoIndex;
  });
}

}  // namespace

void find_configs(const Graph& graph, const std::vector<TensorDomain>& domains, const EnumerateOptions& options,
                  PartitionCandidates& partition) {
  list_configs(*config_groups(graph, domains, options, partition.partition), domains, options, partition);
  if (partition.partition.kind != PartitionKind::contraction || partition.partition.members.empty()) return;
  if (reads_no_operand_in_place(partition.candidates))
    return list_configs(*kernel_configs(graph, domains, options, KernelLayouts::written, partition.partition), domains,
                        options, partition);
  Collector(domains, partition, {}).reject("generated loops for a contraction that a library covers: far slower");
}

Result<Candidates> find_partitions(const TrainingGraph& training, const FusedGraph& fused,
                                   const EnumerateOptions& options) {
  Result<Pinned> pinned = pin_layouts(training, options.layouts);
  if (!pinned) return pinned.error();
  Candidates candidates = find_partitions(training, fused, options.target, pinned->contiguous_groups);
  candidates.domains = std::move(pinned->domains);
  candidates.rejected.insert(candidates.rejected.begin(), pinned->rejected.begin(), pinned->rejected.end());
  return candidates;
}

namespace {

// Whether the tensors of two partitions that compute the same may have the same layouts.
bool have_equal_domains(const std::vector<TensorDomain>& domains, const Partition& one, const Partition& other) {
  const std::vector<TensorId> ours = tensors_of(one);
  const std::vector<TensorId> theirs = tensors_of(other);
  return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), [&](TensorId left, TensorId right) {
    const TensorDomain& l = domains[left.at()];
    const TensorDomain& r = domains[right.at()];
    return l.layouts == r.layouts && l.pinned == r.pinned && l.otherwise == r.otherwise;
  });
}

void copy_configs(const PartitionCandidates& from, PartitionCandidates& to) {
  to.configurations = from.configurations;
  to.candidates = from.candidates;
  to.rejected = from.rejected;
  to.estimated = from.estimated;
}

}  // namespace

Result<Candidates> enumerate(const TrainingGraph& training, const FusedGraph& fused, const EnumerateOptions& options) {
  Result<Candidates> candidates = find_partitions(training, fused, options);
  if (!candidates) return candidates;
  std::map<std::string, std::vector<const PartitionCandidates*>> listed;  // by text
  for (PartitionCandidates& partition : candidates->partitions) {
    std::vector<const PartitionCandidates*>& equal = listed[print_partition(training.graph, partition.partition)];
    const auto same = std::find_if(equal.begin(), equal.end(), [&](const PartitionCandidates* other) {
      return have_equal_domains(candidates->domains, other->partition, partition.partition);
    });
    if (same != equal.end()) {
      copy_configs(**same, partition);
      continue;
    }
    find_configs(training.graph, candidates->domains, options, partition);
    equal.push_back(&partition);
  }
  return candidates;
}

namespace {

constexpr size_t kAll = 1'000'000;

// The domains with every tensor's layout fixed, so that few configs remain; nothing if a tensor may not have it.
std::optional<std::vector<TensorDomain>> fixed(const std::vector<TensorDomain>& domains, const Partition& partition,
                                               const std::vector<int>& layouts) {
  std::vector<TensorDomain> made = domains;
  size_t k = 0;
  for (const TensorId tensor : tensors_of(partition)) {
    TensorDomain& domain = made[tensor.at()];
    if (!domain.allows(layouts[k])) return std::nullopt;
    domain.pinned = layouts[k++];
    domain.otherwise.clear();
  }
  return made;
}

std::vector<Candidate> all_configs(const Graph& graph, const std::vector<TensorDomain>& domains,
                                   EnumerateOptions options, const Partition& partition) {
  PartitionCandidates found;
  found.partition = partition;
  options.most = kAll;
  options.every_shape = true;
  find_configs(graph, domains, options, found);
  return std::move(found.candidates);
}

// Whether these options give this candidate.
bool is_one_of(const Graph& graph, const std::vector<TensorDomain>& domains, const Partition& partition,
               const Candidate& candidate, const EnumerateOptions& options) {
  if (partition.operators.empty()) {
    const TensorId tensor = partition.reads.front();
    const std::vector<Candidate> found = conversions(graph, domains[tensor.at()], tensor, candidate.layouts[0],
                                                     candidate.layouts[1], options.threads, options.target)
                                             .candidates;
    return std::any_of(found.begin(), found.end(), [&](const Candidate& c) { return c.config == candidate.config; });
  }
  const std::vector<Candidate> found = all_configs(graph, domains, options, partition);
  return std::any_of(found.begin(), found.end(), [&](const Candidate& c) {
    return c.layouts == candidate.layouts && c.config == candidate.config;
  });
}

}  // namespace

std::vector<Candidate> configs_under(const Graph& graph, const std::vector<TensorDomain>& domains,
                                     const EnumerateOptions& options, const Partition& partition,
                                     const std::vector<int>& layouts) {
  const std::optional<std::vector<TensorDomain>> under = fixed(domains, partition, layouts);
  return under ? all_configs(graph, *under, options, partition) : std::vector<Candidate>();
}

bool is_candidate(const Graph& graph, const std::vector<TensorDomain>& domains, const Partition& partition,
                  Candidate candidate) {
  EnumerateOptions options;
  int row_blocks = 0;  // blocks that share rows
  // Loops for a contraction are generated only if no library covers it.
  if (auto* const gemm = std::get_if<GemmConfig>(&candidate.config)) {
    options.libraries = {gemm->library};
    gemm->algorithm = {};  // the library itself says whether it has one
    if (gemm->library == GemmLibrary::cublaslt) options.target = gpu_target();
    options.threads = gemm->threads;
  } else if (const auto* const kernel = std::get_if<KernelConfig>(&candidate.config)) {
    if (kernel->gpu) options.target = gpu_target();
    row_blocks = kernel->gpu ? kernel->gpu->blocks : 0;
    options.threads = kernel->threads;
  } else if (const auto* const attention = std::get_if<CpuAttentionConfig>(&candidate.config)) {
    options.target = cpu_target();
    options.threads = attention->threads;
  } else {
    options.target = gpu_target();
    options.target.gpu->cudnn = std::holds_alternative<CudnnConfig>(candidate.config);
  }
  if (partition.operators.empty()) return is_one_of(graph, domains, partition, candidate, options);
  const std::optional<std::vector<TensorDomain>> under = fixed(domains, partition, candidate.layouts);
  if (!under) return false;
  if (row_blocks == 0) return is_one_of(graph, *under, partition, candidate, options);
  // The number of blocks that share rows is a small multiple of the multiprocessors of the GPU it was made for.
  for (int each = 1; each <= kMostBlocksPerMultiprocessor; ++each) {
    options.target = gpu_target({row_blocks / each});
    if (row_blocks % each == 0 && is_one_of(graph, *under, partition, candidate, options)) return true;
  }
  return false;
}

PartitionCandidates conversions(const Graph& graph, const TensorDomain& domain, TensorId tensor, int from, int to,
                                int threads, const Target& target) {
  PartitionCandidates found;
  found.partition = conversion_partition(graph, tensor);
  // These two layouts alone give few candidates; all pairs of a tensor's layouts would give thousands.
  std::vector<TensorDomain> domains(graph.tensors.size());
  domains[tensor.at()].layouts = {domain.layouts[as_index(from)], domain.layouts[as_index(to)]};
  EnumerateOptions options;
  options.threads = threads;
  options.target = target;
  options.every_shape = true;
  options.most = kAll;
  find_configs(graph, domains, options, found);
  std::erase_if(found.candidates, [](const Candidate& c) { return c.layouts[0] != 0 || c.layouts[1] != 1; });
  for (Candidate& candidate : found.candidates) candidate.layouts = {from, to};
  return found;
}

}  // namespace millrace
