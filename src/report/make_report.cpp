#include "report/make_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/quote.h"
#include "base/text.h"
#include "report/answers.h"
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

std::string sum_remark(const StepMetrics& metrics) {
  const size_t estimated = estimated_launches(metrics);
  if (estimated == 0) return "each launch as it was tried";
  return concat(estimated == metrics.after.size()
                    ? "an estimate: no launch"
                    : concat("an estimate: ", estimated, " of ", metrics.after.size(), " launches were not"),
                estimated == metrics.after.size() ? " was timed alone" : " timed alone");
}

// Explains why the timeline of the step before is shorter than its measured time.
std::string without_a_time(const StepMetrics& metrics) {
  const auto count = std::count_if(metrics.before.begin(), metrics.before.end(),
                                   [](const Piece& piece) { return piece.seconds <= 0; });
  if (count == 0) return "";
  return concat("; ", count, count == 1 ? " operator" : " operators", " of the step before ",
                count == 1 ? "was not timed alone and is" : "were not timed alone and are",
                " missing from its timeline");
}

// Explains why the step before may take very long.
std::string without_a_library(size_t loops) {
  if (loops == 0) return "";
  return concat("; ", loops, loops == 1 ? " contraction of the step before is" : " contractions of the step before are",
                " generated loops, because no library computes ", loops == 1 ? "it" : "them",
                " in the program's layouts");
}

std::vector<Fact> facts_of(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  const StepPlan& plan = artefacts.plan;
  std::vector<Fact> facts;
  const bool known = plan.default_cost > 0;
  const std::string before = known ? shown_seconds(plan.default_cost) : "";
  const auto faster = [&](double after) {
    return known && after > 0 ? concat(shown_ratio(plan.default_cost / after), " times as fast",
                                       without_a_library(artefacts.loops_before), without_a_time(metrics))
                              : "the step before optimization was not measured";
  };
  const std::optional<double> exact = known ? std::optional(plan.default_cost) : std::nullopt;
  if (artefacts.step_seconds > 0)
    facts.push_back({"measured_step_seconds", "a step, measured", before, shown_seconds(artefacts.step_seconds),
                     faster(artefacts.step_seconds), exact, artefacts.step_seconds});
  facts.push_back(
      {"step_seconds", "a step, as the sum of its launches", artefacts.step_seconds > 0 ? "" : before,
       shown_seconds(plan.cost),
       artefacts.step_seconds > 0 || estimated_launches(metrics) > 0 ? sum_remark(metrics) : faster(plan.cost), exact,
       plan.cost});
  facts.push_back({"words", "words moved to and from memory", short_count(metrics.words_before),
                   short_count(metrics.words_after), less(metrics.words_before, metrics.words_after),
                   metrics.words_before, metrics.words_after});
  facts.push_back({"bytes", "bytes moved, modelled", short_bytes(metrics.bytes_before),
                   short_bytes(metrics.bytes_after), less(metrics.bytes_before, metrics.bytes_after),
                   metrics.bytes_before, metrics.bytes_after});
  facts.push_back({"launches", "launches", concat(metrics.before.size()), concat(metrics.after.size()),
                   "operators before; fused operators, products and layout conversions after",
                   static_cast<double>(metrics.before.size()), static_cast<double>(metrics.after.size())});
  if (plan.bound > 0 && estimated_launches(metrics) == 0)  // estimates bound nothing
    facts.push_back({"bound_seconds", "the lower bound: every launch with its fastest candidate, layouts ignored", "",
                     shown_seconds(plan.bound),
                     concat("the sum of its launches is ", percent(std::max(0.0, plan.cost / plan.bound - 1)),
                            " above it", artefacts.method.empty() ? "" : concat("; ", artefacts.method)),
                     std::nullopt, plan.bound});
  if (const double tried = artefacts.exploration.tried + artefacts.exploration.known; tried > 0)
    facts.push_back(
        {"tried", "candidates tried", "", with_commas(tried),
         concat("of ", with_commas(artefacts.exploration.configurations + artefacts.exploration.conversions)),
         std::nullopt, tried});
  const auto apart = static_cast<double>(plan.sum_bytes + plan.scratch_bytes);
  facts.push_back(
      {"arena_bytes", "memory for temporaries", short_bytes(apart), short_bytes(static_cast<double>(plan.arena_bytes)),
       concat("one buffer per tensor before; one arena after",
              plan.scratch_bytes > 0 ? concat("; both with ", short_bytes(static_cast<double>(plan.scratch_bytes)),
                                              " of scratch space for running launches")
                                     : ""),
       apart, static_cast<double>(plan.arena_bytes)});
  return facts;
}

// The letters in layouts: every size's name with its extent.
std::string axes_of(const Graph& graph) {
  std::map<std::string, int64_t> extents;
  for (const Dim& dim : graph.dims) {
    if (is_size(dim)) extents.emplace(dim.name, dim.extent);
  }
  std::vector<std::string> texts;
  for (const auto& [name, extent] : extents) texts.push_back(concat(name, "=", extent));
  return join(texts, ", ");
}

std::vector<std::pair<std::string, std::string>> origin_of(const ReportArtefacts& artefacts) {
  const PlanProgram& program = artefacts.plan.program;
  std::vector<std::pair<std::string, std::string>> origin{{"program", artefacts.program}};
  if (!program.entry.empty()) origin.emplace_back("entry", program.entry);
  if (!program.sizes.empty()) origin.emplace_back("sizes", join(program.sizes, ", "));
  if (const std::string axes = axes_of(artefacts.training.graph); !axes.empty()) origin.emplace_back("axes", axes);
  if (!program.dtype.empty()) origin.emplace_back("stored as", program.dtype);
  origin.emplace_back("machine", artefacts.plan.device);
  origin.emplace_back("millrace", artefacts.plan.version);
  origin.emplace_back("date", artefacts.plan.date);
  return origin;
}

// Several times what the exploration took, so that more is found.
std::string larger_budget(const Exploration& exploration) {
  constexpr double kTimes = 4;
  constexpr double kLeast = 300;
  constexpr double kMinute = 60;
  const double took = exploration.points.empty() ? 0 : exploration.points.back().seconds;
  return concat(fixed(std::ceil(std::max(kLeast, kTimes * took) / kMinute), 0), "m");
}

// Commands that can be pasted.
std::vector<NextStep> next_of(const ReportArtefacts& artefacts) {
  std::vector<NextStep> next;
  const std::string again = concat("millrace optimize ", artefacts.words);
  if (!artefacts.exploration.is_complete())
    next.emplace_back(concat(again, " --budget ", larger_budget(artefacts.exploration)), "tries more candidates.");
  if (const std::string tensor = tensor_to_free(artefacts); !tensor.empty())
    next.emplace_back(concat(again, " --layout ", shell_word(concat(tensor, "=any"))),
                      concat("lets Millrace choose the layout of ", tensor,
                             ", which is one of the caller's tensors. It works for each of them."));
  if (!artefacts.folder.empty())
    next.emplace_back(concat("millrace bench ", shell_word(artefacts.folder)), "times every launch of the plan.");
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
  document.answers = answers_of(artefacts, metrics);
  document.next = next_of(artefacts);
  document.sections = {dataflow_section(artefacts, metrics), operators_section(artefacts, metrics),
                       violins_section(artefacts),           roofline_section(artefacts, metrics),
                       selection_section(artefacts),         memory_section(artefacts),
                       model_section(artefacts, metrics),    exploration_section(artefacts)};
  // Only `optimize` explores; a report of earlier measurements has no such curve.
  if (artefacts.exploration.points.size() > 1)
    document.sections.insert(document.sections.end() - 1, search_section(artefacts.exploration.points));
  return document;
}

}  // namespace millrace
