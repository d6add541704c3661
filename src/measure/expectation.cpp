#include "measure/expectation.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/text.h"

namespace millrace {
namespace {

constexpr std::string_view kEstimate = "estimate ";
constexpr std::string_view kBetween = "; ";

std::string config_family_of(const Candidate& candidate) {
  if (const auto* gemm = std::get_if<GemmConfig>(&candidate.config)) {
    const char* const unfolded = gemm->unfolded == kNoIndex ? "" : " unfolded";
    if (gemm->library == GemmLibrary::cublaslt)
      return concat(gemm->tensor_cores ? "cublaslt" : "cublaslt plain", unfolded);
    return concat(word_of(gemm->library), gemm->threads_over_loops ? " over" : "", unfolded);
  }
  if (const auto* attention = std::get_if<AttentionConfig>(&candidate.config))
    return attention->specialized ? "attention specialized" : attention->wgmma ? "attention wgmma" : "attention";
  if (const auto* attention = std::get_if<CpuAttentionConfig>(&candidate.config))
    return concat("attention ", attention->threads);
  if (std::holds_alternative<CudnnConfig>(candidate.config)) return "cudnn";
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
  if (std::holds_alternative<AttentionConfig>(candidate.config) ||
      std::holds_alternative<CpuAttentionConfig>(candidate.config))
    return print_config(candidate.config);
  if (std::holds_alternative<CudnnConfig>(candidate.config)) return config_family_of(candidate);
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

Lesson lesson_of(const Candidate& candidate) {
  const auto* const gemm = std::get_if<GemmConfig>(&candidate.config);
  const std::string family = config_family_of(candidate);
  // Other products have other indices, so the library's own choice has no narrower kind.
  const bool by_family = gemm != nullptr && gemm->algorithm.id < 0;
  return {family, by_family ? family : shape_of(candidate), candidate.estimate};
}

std::string print_lesson(const Lesson& lesson) {
  return concat(kEstimate, lesson.estimate, kBetween, lesson.family, kBetween, lesson.shape);
}

std::optional<Lesson> parse_lesson(const std::string& text) {
  if (!text.starts_with(kEstimate)) return std::nullopt;
  const std::vector<std::string> parts = split(text.substr(kEstimate.size()), kBetween.front());
  Lesson lesson;
  if (parts.size() != 3 || parts[1].size() < 2 || parts[2].size() < 2) return std::nullopt;
  const auto [end, error] = std::from_chars(parts[0].data(), parts[0].data() + parts[0].size(), lesson.estimate);
  if (error != std::errc() || !(lesson.estimate > 0) || !std::isfinite(lesson.estimate)) return std::nullopt;
  lesson.family = parts[1].substr(1);
  lesson.shape = parts[2].substr(1);
  return lesson;
}

void Ratios::add_all(const std::map<int, std::vector<double>>& by_kind) {
  for (const auto& [kind, ratios] : by_kind) {
    std::vector<double>& into = sorted_[kind];
    into.insert(into.end(), ratios.begin(), ratios.end());
    std::sort(into.begin(), into.end());
  }
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
  return correction_elsewhere(kind);
}

// Earlier runs say how a shape compares with its family; this run says how its family compares with the model.
double Expectation::correction_elsewhere(const ConfigKind& kind) const {
  const std::optional<double> now = all_ratios_.median(kind.family);
  if (earlier_ratios_ == nullptr) return now.value_or(1);
  const double family = earlier_ratios_->median(kind.family).value_or(now.value_or(1));
  const double shape = earlier_ratios_->median(kind.shape).value_or(family);
  return now ? *now * shape / family : shape;
}

}  // namespace millrace
