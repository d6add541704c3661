#include "measure/expectation.h"

#include <algorithm>

#include "base/text.h"

namespace millrace {
namespace {

std::string family_of(const Candidate& candidate) {
  if (const auto* gemm = std::get_if<GemmConfig>(&candidate.config)) {
    if (gemm->library == GemmLibrary::cublaslt) return gemm->tensor_cores ? "cublaslt" : "cublaslt plain";
    return concat(gemm->library == GemmLibrary::blis ? "blis" : "openblas", gemm->threads_over_loops ? " over" : "");
  }
  if (std::holds_alternative<AttentionConfig>(candidate.config)) return "attention";
  const auto& kernel = std::get<KernelConfig>(candidate.config);
  const bool lanes = kernel.rows && !kernel.loops.empty() && kernel.loops.back() != kernel.vector;  // across rows
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

// Ways of a family that are fast or slow together: how a GPU's threads share the work, and a library's algorithms.
std::string shape_of(const Candidate& candidate) {
  if (const auto* gemm = std::get_if<GemmConfig>(&candidate.config)) {
    const GemmAlgorithm& of = gemm->algorithm;
    if (of.id < 0) return concat(family_of(candidate), " ", chain(gemm->m), chain(gemm->n), chain(gemm->k));
    return concat(family_of(candidate), " ", of.id, " ", of.tile, " ", of.stages, " ", of.cluster);
  }
  if (std::holds_alternative<AttentionConfig>(candidate.config)) return print_config(candidate.config);
  const std::optional<GpuShape>& gpu = std::get<KernelConfig>(candidate.config).gpu;
  if (!gpu) return family_of(candidate);
  return concat(family_of(candidate), " ", gpu->width, " ", gpu->row_threads, " ", gpu->threads, " ", gpu->blocks, " ",
                gpu->prefetch);
}

}  // namespace

ConfigKind ConfigKinds::of(const Candidate& candidate, const std::string& timing_class) {
  const int family = number_of(family_of(candidate));
  const int shape = number_of(shape_of(candidate));
  return {family, shape, timing_class.empty() ? -1 : number_of(timing_class)};
}

int ConfigKinds::number_of(const std::string& text) {
  return numbers_.try_emplace(text, static_cast<int>(numbers_.size())).first->second;
}

void Ratios::add(int kind, double ratio) {
  std::vector<double>& of = sorted_[kind];
  of.insert(std::upper_bound(of.begin(), of.end(), ratio), ratio);
}

std::optional<double> Ratios::middle(int kind) const {
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
  if (const std::optional<double> as_timing_class = of_partition_.middle(kind.narrowest())) return *as_timing_class;
  if (const std::optional<double> as_shape = of_partition_.middle(kind.shape)) return *as_shape;
  if (const std::optional<double> as_family = of_partition_.middle(kind.family)) return *as_family;
  return of_any_.middle(kind.family).value_or(1);
}

}  // namespace millrace
