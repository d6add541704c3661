#include "measure/expectation.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {
namespace {

std::string config_family_of(const Candidate& candidate) {
  if (const auto* gemm = std::get_if<GemmConfig>(&candidate.config)) {
    if (gemm->library == GemmLibrary::cublaslt) return gemm->tensor_cores ? "cublaslt" : "cublaslt plain";
    return concat(gemm->library == GemmLibrary::blis ? "blis" : "openblas", gemm->threads_over_loops ? " over" : "");
  }
  if (std::holds_alternative<AttentionConfig>(candidate.config)) return "attention";
  const auto& kernel = std::get<KernelConfig>(candidate.config);
  const bool lanes =
      kernel.rows && !kernel.loops.empty() && kernel.loops.back() != kernel.vector;  // vectors run across rows
  return concat(!kernel.rows ? "flat "
                : lanes      ? "lanes "
                             : "rows ",
                kernel.threads, kernel.block != kNoIndex ? " in blocks" : "");
}

std::string chain(const std::vector<int>& indices) {
  std::string text = "|";
  for (const int index : indices) text += concat(index, ".");
  return text;
}

// Configs of a family that are fast or slow together: by how GPU threads share the work, or by the library's algorithm.
std::string shape_of(const Candidate& candidate) {
  if (const auto* gemm = std::get_if<GemmConfig>(&candidate.config)) {
    const GemmAlgorithm& algorithm = gemm->algorithm;
    if (algorithm.id < 0)
      return concat(config_family_of(candidate), " ", chain(gemm->m), chain(gemm->n), chain(gemm->k));
    return concat(config_family_of(candidate), " ", algorithm.id, " ", algorithm.tile, " ", algorithm.stages, " ",
                  algorithm.cluster);
  }
  if (std::holds_alternative<AttentionConfig>(candidate.config)) return print_config(candidate.config);
  const std::optional<GpuShape>& gpu = std::get<KernelConfig>(candidate.config).gpu;
  if (!gpu) return config_family_of(candidate);
  return concat(config_family_of(candidate), " ", gpu->width, " ", gpu->row_threads, " ", gpu->threads, " ",
                gpu->blocks, " ", gpu->prefetch);
}

}  // namespace

ConfigKind ConfigKinds::kind_of(const Candidate& candidate, const std::string& timing_class) {
  const int family = number_of(config_family_of(candidate));
  const int shape = number_of(shape_of(candidate));
  return {family, shape, timing_class.empty() ? -1 : number_of(timing_class)};
}

int ConfigKinds::number_of(const std::string& text) {
  return numbers_.try_emplace(text, static_cast<int>(numbers_.size())).first->second;
}

void Ratios::add(int kind, double ratio) {
  std::vector<double>& ratios = sorted_[kind];
  ratios.insert(std::upper_bound(ratios.begin(), ratios.end(), ratio), ratio);
}

std::optional<double> Ratios::median(int kind) const {
  const auto found = sorted_.find(kind);
  if (found == sorted_.end()) return std::nullopt;
  return found->second[found->second.size() / 2];
}

double Expectation::seconds(const ConfigKind& kind, double estimate) {
  const auto [known, fresh] = corrections_.try_emplace(kind.narrowest());
  if (fresh) known->second = correction(kind);
  return estimate * known->second;
}

double Expectation::correction(const ConfigKind& kind) const {
  if (const std::optional<double> as_timing_class = partition_ratios_.median(kind.narrowest())) return *as_timing_class;
  if (const std::optional<double> as_shape = partition_ratios_.median(kind.shape)) return *as_shape;
  if (const std::optional<double> as_family = partition_ratios_.median(kind.family)) return *as_family;
  return all_ratios_.median(kind.family).value_or(1);
}

}  // namespace millrace
