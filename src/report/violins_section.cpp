#include <algorithm>
#include <map>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/violin.h"
#include "report/report_sections.h"

namespace millrace {
namespace {

// Tensors whose layouts differ between the fastest way and the selected one.
std::string differing_layouts(const ReportArtefacts& of, const Part& part, const std::string& fastest,
                              const std::string& selected) {
  const std::optional<Candidate> ours = parse_candidate(of.candidates.domains, part, selected);
  const std::optional<Candidate> best = parse_candidate(of.candidates.domains, part, fastest);
  if (!ours || !best) return "";
  const Graph& graph = of.training.graph;
  const std::vector<Layout> our_layouts = layouts_of(of.candidates.domains, part, *ours);
  const std::vector<Layout> best_layouts = layouts_of(of.candidates.domains, part, *best);
  const std::vector<TensorId> tensors = tensors_of(part);
  std::vector<std::string> texts;
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (our_layouts[k] == best_layouts[k]) continue;
    texts.push_back(concat(graph.tensor(tensors[k]).name, " as ", print_layout(graph, tensors[k], best_layouts[k]),
                           ", not ", print_layout(graph, tensors[k], our_layouts[k])));
  }
  return join(texts, "; ");
}

std::string side_of(const ReportArtefacts& of, const Part& part, const std::string& candidate) {
  const std::optional<Candidate> parsed = parse_candidate(of.candidates.domains, part, candidate);
  if (!parsed || !std::holds_alternative<GemmWay>(parsed->way)) return "generated kernels";
  return std::get<GemmWay>(parsed->way).library == GemmLibrary::blis ? "BLIS" : "OpenBLAS";
}

class Violins {
 public:
  explicit Violins(const ReportArtefacts& of) : of_(of) {
    for (const TriedPart& part : of.exploration.parts) tried_[part.name] = &part;
    for (const PlanLaunch& launch : of.plan.launches) launches_[launch.part] = &launch;
  }

  Violin violin_of(const Part& part) const {
    Violin violin;
    violin.name = part.name;
    std::map<std::string, std::vector<double>> sides;
    double best = 0;
    if (const auto found = tried_.find(part.name); found != tried_.end()) {
      for (const TriedCandidate& candidate : found->second->tried) {
        if (candidate.seconds <= 0) continue;
        sides[side_of(of_, part, candidate.candidate)].push_back(candidate.seconds);
        if (best > 0 && candidate.seconds >= best) continue;
        best = candidate.seconds;
        violin.fastest_candidate = candidate.candidate;
      }
    }
    for (const char* name : {"OpenBLAS", "BLIS", "generated kernels"}) {
      if (sides.contains(name)) violin.sides.push_back({name, std::move(sides[name])});
    }
    if (const auto launch = launches_.find(part.name); launch != launches_.end()) {
      violin.selected = launch->second->predicted_seconds;
      violin.selected_candidate = launch->second->candidate;
      violin.reason = reason(part, violin, best);
    }
    return violin;
  }

  bool is_launched(const Part& part) const { return launches_.contains(part.name); }

 private:
  std::string reason(const Part& part, const Violin& violin, double best) const {
    if (best <= 0 || violin.selected <= best || violin.selected_candidate == violin.fastest_candidate) return "";
    const std::string layouts = differing_layouts(of_, part, violin.fastest_candidate, violin.selected_candidate);
    return concat("selected at ", fixed(violin.selected / best, 2), " times the fastest, which ",
                  layouts.empty() ? "was measured after the plan was made" : concat("wants ", layouts));
  }

  const ReportArtefacts& of_;
  std::map<std::string, const TriedPart*> tried_;
  std::map<std::string, const PlanLaunch*> launches_;
};

DataTable ways_table(const std::vector<Violin>& violins) {
  DataTable table{"ways",
                  "The same in numbers.",
                  {{"part", "part", false},
                   {"ways", "ways measured"},
                   {"fastest_seconds", "fastest"},
                   {"openblas_seconds", "OpenBLAS' fastest"},
                   {"blis_seconds", "BLIS' fastest"},
                   {"slowest_seconds", "slowest"},
                   {"selected_seconds", "selected"},
                   {"reason", "why not the fastest", false}},
                  {},
                  true};
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
    table.rows.push_back({violin.name, Cell(with_commas(count), count), cell(low), cell(by_side["OpenBLAS"]),
                          cell(by_side["BLIS"]), cell(high), cell(violin.selected), violin.reason});
  }
  return table;
}

}  // namespace

Section violins_section(const ReportArtefacts& artefacts) {
  Section section{
      "violins",
      "Every layout of every operator",
      "Each row is one part of the step; the shape shows how the times of all its measured candidates "
      "(layouts of its tensors, orders of its loops, libraries) are spread: the thicker, the more candidates "
      "take that long. To the right is slower, in times the fastest of the row. The bar is the fastest, "
      "the diamond the selected one; where they differ the row says why. Contractions show OpenBLAS above "
      "(blue) and BLIS below (orange).",
      {}};
  const Violins violins(artefacts);
  std::vector<Violin> contractions;
  std::vector<Violin> kernels;
  std::vector<Violin> others;
  std::vector<Violin> all;
  for (const PartCandidates& candidates : artefacts.candidates.parts) {
    const Part& part = candidates.part;
    const bool launched = violins.is_launched(part);
    if (!launched && part.kind != PartKind::contraction && part.operators.size() < 2) continue;
    const Violin violin = violins.violin_of(part);
    if (violin.sides.empty()) continue;
    all.push_back(violin);
    (!launched ? others : part.kind == PartKind::contraction ? contractions : kernels).push_back(violin);
  }
  if (all.empty())
    section.add("This machine's database has no measurement of this program: run millrace optimize here.");
  const auto add = [&](const char* id, const char* caption, const std::vector<Violin>& rows, bool folded) {
    if (!rows.empty()) section.add(Picture{id, caption, draw_violins(rows, caption), folded});
  };
  add("violins_contractions", "Contractions of the plan.", contractions, false);
  add("violins_kernels", "Fused operators of the plan.", kernels, false);
  add("violins_others", "Contractions and fused operators that the plan does not use.", others, true);
  section.add(ways_table(all));
  return section;
}

}  // namespace millrace
