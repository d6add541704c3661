#include "report/candidate_words.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace millrace {
namespace {

std::string counted(int count, const char* what) { return concat(count, " ", what, count == 1 ? "" : "s"); }

// "BJ", or "batch·J" if a name has several letters.
std::string joined(const std::vector<std::string>& names) {
  const bool letters =
      std::all_of(names.begin(), names.end(), [](const std::string& name) { return name.size() == 1; });
  return join(names, letters ? "" : "·");
}

std::vector<std::string> names_in(const Graph& graph, const Partition& partition, const std::vector<int>& loops) {
  std::vector<std::string> names;
  for (const int index : loops) names.push_back(graph.dims[partition.space[as_index(index)].dim.at()].name);
  return names;
}

// An index of a product that counts stacked tensors has no name of its own.
std::string matrix_index(const Graph& graph, const Product& product, const std::vector<int>& indices) {
  std::vector<std::string> names;
  for (const int index : indices) {
    const DimId dim = product.indices[as_index(index)].dim;
    names.push_back(dim.valid() ? graph.dims[dim.at()].name : "stack");
  }
  return names.empty() ? "1" : joined(names);
}

const char* name_of_library(GemmLibrary library) {
  switch (library) {
    case GemmLibrary::openblas: return "OpenBLAS";
    case GemmLibrary::blis: return "BLIS";
    case GemmLibrary::onednn: return "oneDNN";
    case GemmLibrary::mkl: return "MKL";
    case GemmLibrary::cublaslt: return "cuBLASLt";
  }
  return "";
}

std::string words_of(const Graph& graph, const Partition& partition, const GemmConfig& config) {
  const std::string unfolded =
      config.unfolded == kNoIndex
          ? ""
          : concat(", ", graph.tensor(partition.product.tensors.at(as_index(config.unfolded)).front()).name,
                   " unfolded (im2col)");
  const std::string text =
      concat("GEMM m=", matrix_index(graph, partition.product, config.m),
             " n=", matrix_index(graph, partition.product, config.n),
             " k=", matrix_index(graph, partition.product, config.k), ", ", name_of_library(config.library), ", ");
  if (config.library == GemmLibrary::cublaslt)
    return concat(text, config.tensor_cores ? "tensor cores" : "no tensor cores", ", ",
                  config.algorithm.id < 0 ? "its own choice of algorithm" : concat("algorithm ", config.algorithm.id),
                  unfolded);
  return concat(text, counted(config.threads, "thread"), config.threads_over_loops ? " over the batch" : "", unfolded);
}

std::string shape_words(const GpuShape& shape) {
  return concat(", ", counted(shape.width, "element"), " a thread, ", counted(shape.row_threads, "thread"), " a row, ",
                shape.threads, " a block");
}

std::string words_of(const Graph& graph, const Partition& partition, const KernelConfig& config) {
  const auto name = [&](int index) { return names_in(graph, partition, {index}).front(); };
  return concat("loops ", config.loops.empty() ? "none" : joined(names_in(graph, partition, config.loops)),
                config.rows ? ", row by row" : "",
                config.vector == kNoIndex ? "" : concat(", vector ", name(config.vector)),
                config.block == kNoIndex ? "" : concat(", block ", name(config.block)),
                config.gpu ? shape_words(*config.gpu) : concat(", ", counted(config.threads, "thread")));
}

std::string words_of(const Graph&, const Partition&, const AttentionConfig& config) {
  return concat("fused attention, ", counted(config.warps, "warp"), " of ", 16 * config.row_tiles, " rows, tiles of ",
                config.tile_columns, " columns, ", counted(config.stages, "stage"), config.wgmma ? ", wgmma" : "",
                config.rows_in_smem ? ", rows in shared memory" : "", config.single_kernel ? ", one kernel" : "",
                config.specialized ? ", warps specialized" : "",
                config.head_splits > 1 ? concat(", heads split ", config.head_splits, " times") : "");
}

std::string words_of(const Graph&, const Partition&, const CpuAttentionConfig& config) {
  return concat("fused attention, tiles of ", config.tile_queries, " queries and ", config.tile_keys, " keys, ",
                counted(config.threads, "thread"));
}

std::string words_of(const Graph&, const Partition&, const CudnnConfig&) { return "fused attention, cuDNN"; }

}  // namespace

std::string describe(const Graph& graph, const Partition& partition, const Config& config) {
  return std::visit([&](const auto& one) { return words_of(graph, partition, one); }, config);
}

CandidateWords::CandidateWords(const Graph& graph, const Candidates& candidates)
    : graph_(&graph), candidates_(&candidates) {
  for (const PartitionCandidates& entry : candidates.partitions) partitions_[entry.partition.name] = &entry.partition;
}

std::string CandidateWords::of(const std::string& partition, const std::string& candidate) const {
  const auto found = partitions_.find(partition);
  if (found == partitions_.end()) return candidate;
  const std::optional<Candidate> parsed = parse_candidate(candidates_->domains, *found->second, candidate);
  return parsed ? describe(*graph_, *found->second, parsed->config) : candidate;
}

}  // namespace millrace
