#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/legend.h"
#include "report/html/violin.h"
#include "report/report_sections.h"

namespace millrace {
namespace {

// Tensors whose layouts differ between the fastest candidate and the selected one.
std::string differing_layouts(const ReportArtefacts& artefacts, const Partition& partition, const std::string& fastest,
                              const std::string& selected) {
  const std::optional<Candidate> ours = parse_candidate(artefacts.candidates.domains, partition, selected);
  const std::optional<Candidate> best = parse_candidate(artefacts.candidates.domains, partition, fastest);
  if (!ours || !best) return "";
  const Graph& graph = artefacts.training.graph;
  const std::vector<Layout> our_layouts = layouts_of(artefacts.candidates.domains, partition, *ours);
  const std::vector<Layout> best_layouts = layouts_of(artefacts.candidates.domains, partition, *best);
  const std::vector<TensorId> tensors = tensors_of(partition);
  std::vector<std::string> texts;
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (our_layouts[k] == best_layouts[k]) continue;
    texts.push_back(concat(graph.tensor(tensors[k]).name, " as ", print_layout(graph, tensors[k], best_layouts[k]),
                           ", not ", print_layout(graph, tensors[k], our_layouts[k])));
  }
  return join(texts, "; ");
}

constexpr double kWorthSaying = 1.005;  // times the fastest: from here on it does not print as 1.00

// The libraries and kernels that implement candidates: the sides of a violin, in drawing order.
struct Side {
  const char* name;
  const char* classes;  // of the style
  const char* key;      // of its fastest, in the table
};
constexpr std::array<Side, 7> kSides = {{{"OpenBLAS", "violin openblas", "openblas_seconds"},
                                         {"BLIS", "violin blis", "blis_seconds"},
                                         {"oneDNN", "violin onednn", "onednn_seconds"},
                                         {"MKL", "violin mkl", "mkl_seconds"},
                                         {"tensor cores", "violin openblas", "tensor_cores_seconds"},
                                         {"no tensor cores", "violin blis", "no_tensor_cores_seconds"},
                                         {"generated kernels", "violin", "kernels_seconds"}}};

size_t side_of(const std::optional<Candidate>& candidate) {
  if (!candidate || !std::holds_alternative<GemmConfig>(candidate->config)) return kSides.size() - 1;
  const auto& config = std::get<GemmConfig>(candidate->config);
  switch (config.library) {
    case GemmLibrary::openblas: return 0;
    case GemmLibrary::blis: return 1;
    case GemmLibrary::onednn: return 2;
    case GemmLibrary::mkl: return 3;
    case GemmLibrary::cublaslt: break;
  }
  return config.tensor_cores ? 4 : 5;
}

bool is_heuristic(const std::optional<Candidate>& candidate) {
  const auto* const config = candidate ? std::get_if<GemmConfig>(&candidate->config) : nullptr;
  return config != nullptr && config->library == GemmLibrary::cublaslt && config->algorithm.id < 0;
}

class Violins {
 public:
  explicit Violins(const ReportArtefacts& artefacts) : artefacts_(artefacts) {
    for (const TriedPartition& partition : artefacts.exploration.partitions) tried_[partition.name] = &partition;
    for (const PlanLaunch& launch : artefacts.plan.launches) launches_[launch.partition] = &launch;
  }

  Violin violin_of(const Partition& partition) const {
    Violin violin;
    violin.name = partition.name;
    std::array<std::vector<double>, kSides.size()> sides;
    double best = 0;
    if (const auto found = tried_.find(partition.name); found != tried_.end()) {
      for (const TriedCandidate& candidate : found->second->tried) {
        if (candidate.seconds <= 0) continue;
        const std::optional<Candidate> parsed =
            parse_candidate(artefacts_.candidates.domains, partition, candidate.candidate);
        sides[side_of(parsed)].push_back(candidate.seconds);
        if (is_heuristic(parsed) && (violin.heuristic <= 0 || candidate.seconds < violin.heuristic))
          violin.heuristic = candidate.seconds;
        if (best > 0 && candidate.seconds >= best) continue;
        best = candidate.seconds;
        violin.fastest_candidate = candidate.candidate;
      }
    }
    for (size_t k = 0; k < kSides.size(); ++k) {
      if (!sides[k].empty()) violin.sides.push_back({kSides[k].name, kSides[k].classes, std::move(sides[k])});
    }
    if (const auto launch = launches_.find(partition.name); launch != launches_.end()) {
      violin.selected = launch->second->predicted_seconds;
      violin.selected_candidate = launch->second->candidate;
      violin.reason = reason(partition, violin, best);
    }
    return violin;
  }

  bool is_launched(const Partition& partition) const { return launches_.contains(partition.name); }

 private:
  std::string reason(const Partition& partition, const Violin& violin, double best) const {
    if (best <= 0 || violin.selected < kWorthSaying * best || violin.selected_candidate == violin.fastest_candidate)
      return "";
    const std::string layouts =
        differing_layouts(artefacts_, partition, violin.fastest_candidate, violin.selected_candidate);
    return concat("selected at ", fixed(violin.selected / best, 2), " times the fastest, which ",
                  layouts.empty() ? "was measured after the plan was made" : concat("needs ", layouts));
  }

  const ReportArtefacts& artefacts_;
  std::map<std::string, const TriedPartition*> tried_;
  std::map<std::string, const PlanLaunch*> launches_;
};

// Sides that at least one violin has.
std::vector<size_t> sides_in(const std::vector<Violin>& violins) {
  std::vector<size_t> there;
  for (size_t k = 0; k < kSides.size(); ++k) {
    const bool used = std::any_of(violins.begin(), violins.end(), [&](const Violin& violin) {
      return std::any_of(violin.sides.begin(), violin.sides.end(),
                         [&](const ViolinSide& side) { return side.name == kSides[k].name; });
    });
    if (used) there.push_back(k);
  }
  return there;
}

DataTable configs_table(const std::vector<Violin>& violins) {
  const std::vector<size_t> sides = sides_in(violins);
  const bool heuristic =
      std::any_of(violins.begin(), violins.end(), [](const Violin& violin) { return violin.heuristic > 0; });
  DataTable table{"candidates",
                  "The same in numbers.",
                  {{"partition", "partition", false}, {"candidates", "candidates measured"}},
                  {},
                  true};
  table.columns.push_back({"fastest_seconds", "fastest"});
  for (const size_t side : sides) table.columns.push_back({kSides[side].key, kSides[side].name});
  if (heuristic) table.columns.push_back({"heuristic_seconds", "the library's choice"});
  table.columns.push_back({"slowest_seconds", "slowest"});
  table.columns.push_back({"selected_seconds", "selected"});
  table.columns.push_back({"reason", "why not the fastest", false});
  for (const Violin& violin : violins) {
    std::map<std::string, double> by_side;
    double low = 0;
    double high = 0;
    double count = 0;
    for (const ViolinSide& side : violin.sides) {
      const auto [least, most] = std::minmax_element(side.seconds.begin(), side.seconds.end());
      by_side[side.name] = *least;
      low = low > 0 ? std::min(low, *least) : *least;
      high = std::max(high, *most);
      count += static_cast<double>(side.seconds.size());
    }
    const auto cell = [](double seconds) { return seconds > 0 ? Cell(shown_seconds(seconds), seconds) : Cell("–"); };
    std::vector<Cell> row = {violin.name, Cell(with_commas(count), count), cell(low)};
    for (const size_t side : sides) row.push_back(cell(by_side[kSides[side].name]));
    if (heuristic) row.push_back(cell(violin.heuristic));
    row.push_back(cell(high));
    row.push_back(cell(violin.selected));
    row.emplace_back(violin.reason);
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<LegendItem> violins_legend(const std::vector<Violin>& violins) {
  std::vector<LegendItem> legend = {{LegendItem::Shape::bar, "fastest", "fastest"},
                                    {LegendItem::Shape::diamond, "selected", "selected"}};
  for (const size_t side : sides_in(violins))
    legend.push_back({LegendItem::Shape::box, kSides[side].classes, kSides[side].name});
  if (std::any_of(violins.begin(), violins.end(), [](const Violin& violin) { return violin.heuristic > 0; }))
    legend.push_back(
        {LegendItem::Shape::disc, "heuristic", "the fastest that the library's own heuristic chose, of all layouts"});
  return legend;
}

}  // namespace

Section violins_section(const ReportArtefacts& artefacts) {
  const Violins violins(artefacts);
  std::vector<Violin> contractions;
  std::vector<Violin> kernels;
  std::vector<Violin> others;
  std::vector<Violin> all;
  for (const PartitionCandidates& candidates : artefacts.candidates.partitions) {
    const Partition& partition = candidates.partition;
    const bool launched = violins.is_launched(partition);
    if (!launched && partition.kind != PartitionKind::contraction && partition.operators.size() < 2) continue;
    const Violin violin = violins.violin_of(partition);
    if (violin.sides.empty()) continue;
    all.push_back(violin);
    (!launched ? others : partition.kind == PartitionKind::contraction ? contractions : kernels).push_back(violin);
  }
  Section section{
      "violins",
      "Every layout of every operator",
      concat(
          "Each row is one partition of the step. The shape shows the distribution of the times of its measured "
          "candidates "
          "(layouts, loop orders, libraries): the thicker, the more candidates "
          "take that long. The axis is in multiples of the row's fastest time. The bar marks the fastest, "
          "the diamond the selected one; if they differ, the row says why. A row with fewer than ",
          std::to_string(kFewestOfAShape),
          " candidates shows each as a point: they are too few for a distribution. Where a partition has two kinds of "
          "implementation, one is above the row's middle and the other below."),
      {}};
  if (all.empty())
    section.add("This machine's database has no measurement of this program: run millrace optimize here.");
  const auto add = [&](const char* id, const char* caption, const std::vector<Violin>& rows, bool folded) {
    if (!rows.empty()) section.add(Picture{id, caption, draw_violins(rows, caption), folded, violins_legend(rows)});
  };
  add("violins_contractions", "Contractions of the plan.", contractions, false);
  add("violins_kernels", "Fused operators of the plan.", kernels, false);
  add("violins_others", "Contractions and fused operators that the plan does not use.", others, true);
  section.add(configs_table(all));
  return section;
}

}  // namespace millrace
