#include "report/make_report.h"

#include "base/quote.h"
#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/pictures.h"
#include "report/report_sections.h"

namespace millrace {
namespace {

std::string percent(double fraction) { return concat(fixed(100 * fraction, 1), " %"); }

std::string less(double before, double after) {
  if (before <= 0) return "";
  return before >= after ? concat(percent(1 - after / before), " less") : concat(percent(after / before - 1), " more");
}

std::vector<Fact> facts_of(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  const StepPlan& plan = artefacts.plan;
  std::vector<Fact> facts;
  const bool known = plan.default_cost > 0;
  const std::string before = known ? shown_seconds(plan.default_cost) : "";
  const auto faster = [&](double after) {
    return known && after > 0 ? concat(shown_ratio(plan.default_cost / after), " times as fast")
                              : "the step before optimization was not measured";
  };
  const std::optional<double> exact = known ? std::optional(plan.default_cost) : std::nullopt;
  facts.push_back({"step_seconds", "a step, after: as the sum of its launches", before, shown_seconds(plan.cost),
                   faster(plan.cost), exact, plan.cost});
  if (artefacts.step_seconds > 0)
    facts.push_back({"measured_step_seconds", "a whole step, measured", before, shown_seconds(artefacts.step_seconds),
                     faster(artefacts.step_seconds), exact, artefacts.step_seconds});
  facts.push_back({"words", "words moved to and from memory", short_count(metrics.words_before),
                   short_count(metrics.words_after), less(metrics.words_before, metrics.words_after),
                   metrics.words_before, metrics.words_after});
  facts.push_back({"launches", "launches", concat(metrics.before.size()), concat(metrics.after.size()),
                   "operators before; fused operators, products and layout conversions after",
                   static_cast<double>(metrics.before.size()), static_cast<double>(metrics.after.size())});
  if (plan.bound > 0)
    facts.push_back({"bound_seconds", "the lower bound: every launch with its fastest candidate, layouts ignored", "",
                     shown_seconds(plan.bound),
                     concat("the step is ", percent(plan.cost / plan.bound - 1), " above it; ", artefacts.method),
                     std::nullopt, plan.bound});
  const int64_t scratch = plan.arena_bytes - plan.scratch_offset;
  facts.push_back({"arena_bytes", "memory for temporaries", short_bytes(static_cast<double>(plan.sum_bytes)),
                   short_bytes(static_cast<double>(plan.arena_bytes)),
                   concat("one buffer per tensor before; one arena after",
                          scratch > 0 ? concat(", of which ", short_bytes(static_cast<double>(scratch)),
                                               " are scratch space of running launches")
                                      : ""),
                   static_cast<double>(plan.sum_bytes), static_cast<double>(plan.arena_bytes)});
  return facts;
}

std::vector<std::pair<std::string, std::string>> origin_of(const ReportArtefacts& artefacts) {
  const PlanProgram& program = artefacts.plan.program;
  std::vector<std::pair<std::string, std::string>> origin{{"program", artefacts.program}};
  if (!program.entry.empty()) origin.emplace_back("entry", program.entry);
  if (!program.sizes.empty()) origin.emplace_back("sizes", join(program.sizes, ", "));
  if (!program.dtype.empty()) origin.emplace_back("stored as", program.dtype);
  origin.emplace_back("machine", artefacts.plan.device);
  origin.emplace_back("millrace", artefacts.plan.version);
  origin.emplace_back("date", artefacts.plan.date);
  return origin;
}

// The launch whose limit explains the least of its time has the most to gain.
std::vector<std::string> next_of(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  std::vector<std::string> next;
  const Piece* worst = nullptr;
  double most = 0;
  for (const Piece& piece : metrics.after) {
    const std::optional<Limit> limit = limit_of(piece, metrics.peaks);
    if (!limit || piece.seconds * (1 - limit->fraction) <= most) continue;
    most = piece.seconds * (1 - limit->fraction);
    worst = &piece;
  }
  if (worst != nullptr)
    next.push_back(concat("The largest possible gain is at ", worst->name, ": ", shown_seconds(worst->seconds),
                          " where the limits measured on this machine allow ", shown_seconds(worst->seconds - most),
                          "."));
  const double tried = artefacts.exploration.tried + artefacts.exploration.known;
  const double all = artefacts.exploration.configurations + artefacts.exploration.conversions;
  if (!artefacts.exploration.is_whole())
    next.push_back(concat(with_commas(tried), " of ", with_commas(all),
                          " candidates were tried: a larger --budget of millrace optimize tries more."));
  next.emplace_back("millrace optimize --layout NAME=any lets Millrace choose the layout of a tensor of the caller.");
  if (!artefacts.folder.empty())
    next.push_back(concat("millrace bench ", shell_word(artefacts.folder), " times every launch of the plan."));
  return next;
}

}  // namespace

Document make_report(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  Document document;
  document.title = concat("Where the data goes: ", artefacts.training.graph.name);
  // The rest of the text describes the compiler and the libraries.
  const std::string machine = artefacts.plan.device.substr(0, artefacts.plan.device.find(';'));
  document.subtitle = concat(artefacts.program, ", forward and backward, on ", machine);
  document.facts = facts_of(artefacts, metrics);
  document.origin = origin_of(artefacts);
  document.next = next_of(artefacts, metrics);
  document.sections = {dataflow_section(artefacts, metrics), operators_section(artefacts, metrics),
                       violins_section(artefacts),           roofline_section(artefacts, metrics),
                       selection_section(artefacts),         memory_section(artefacts),
                       exploration_section(artefacts)};
  // Only `optimize` explores; a report of earlier measurements has no such curve.
  if (artefacts.exploration.points.size() > 1)
    document.sections.insert(document.sections.end() - 1, search_section(artefacts.exploration.points));
  return document;
}

}  // namespace millrace
