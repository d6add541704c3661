#include "report/optimize_report.h"

#include <nlohmann/json.hpp>

#include "base/quote.h"
#include "base/text.h"
#include "report/exploration_report.h"
#include "report/json_text.h"
#include "report/live_bytes.h"
#include "report/message_json.h"
#include "report/table.h"
#include "report/wrap.h"

namespace millrace {
namespace {

constexpr size_t kIndent = 11;  // columns before the text that follows a line's first word
constexpr size_t kWidth = 100;  // columns
constexpr double kSlow = 1.25;  // a step that takes this much longer than predicted

std::string percent_less(double before, double after) {
  if (before <= 0) return "";
  const double less = 100 * (before - after) / before;
  return less >= 0 ? concat(fixed(less, 1), " % less") : concat(fixed(-less, 1), " % more");
}

std::string shown_words(int64_t words) {
  return words >= 1'000'000 ? concat(fixed(static_cast<double>(words) * 1e-6, 2), " M")
                            : with_commas(static_cast<double>(words));
}

size_t conversions_of(const StepPlan& plan) {
  size_t count = 0;
  for (const PlanLaunch& launch : plan.launches) count += launch.partition.empty() ? 1 : 0;
  return count;
}

std::string paragraph(std::string_view text) { return wrapped(text, {kWidth, "", ""}); }

// What was checked, exactly.
std::string check_line(const StepPlan& plan, const Optimized& made) {
  if (made.checked)
    return concat("results and all gradients agree with the reference: ", fixed(100 * made.worst_error, 1),
                  " % of the allowed rounding error",
                  made.not_finite.empty() ? ""
                                          : concat("; for these inputs no element of ", join(made.not_finite, ", "),
                                                   " is finite: give typical ones with --in FILE"));
  const size_t launches = plan.launches.size();
  return concat(
      made.unchecked == 0 ? concat("each of the ", launches, " launches by itself")
                          : concat(launches - made.unchecked, " of the ", launches,
                                   " launches, each by itself; the budget ended before the other ", made.unchecked),
      "; not the whole step: the reference needs about ", shown_seconds(made.reference_seconds), ", and ",
      shown_seconds(made.check_limit), " were left; choose a smaller --size or a larger --budget to check it");
}

// A sum with estimates in it is no measure of how good the plan is.
std::string selected_line(const Selection& selection, const Optimized& made) {
  const size_t launches = selection.partitions.size();
  if (made.unchecked > 0)
    return concat("an estimated ", shown_seconds(selection.cost), " per step: ",
                  made.unchecked == launches ? concat("none of the ", launches, " launches was")
                                             : concat(made.unchecked, " of the ", launches, " launches were not"),
                  " timed alone before the budget ended; a larger --budget times them");
  return concat(shown_seconds(selection.cost), " per step, ",
                fixed(100 * std::max(0.0, selection.cost / selection.bound - 1), 2), " % above the lower bound of ",
                shown_seconds(selection.bound), ", which ignores layouts (the paper's gap: 6 %)");
}

std::string gain_of(const Optimized& made) {
  if (!made.before || !made.step) return "";
  return concat(shown_ratio(made.before->median / made.step->median), " times as fast",
                made.baseline_kept ? "; the plan is the step before" : "");
}

nlohmann::ordered_json outcomes_json(const Exploration& exploration) {
  nlohmann::ordered_json made = nlohmann::ordered_json::object();
  for (const auto& [name, count] : exploration.outcomes) made[name] = count_json(count);
  return made;
}

nlohmann::ordered_json certificate_json(const std::optional<Certificate>& certificate) {
  if (!certificate) return nullptr;
  return {{"certified", certificate->is_certified()},
          {"step_seconds", certificate->step},
          {"lower_bound_seconds", certificate->lower_bound},
          {"candidates", count_json(certificate->candidates)}};
}

std::string before_text(const Optimized& made) {
  const std::string text =
      "Before: every operator as its own kernel, with the fastest candidate for the program's layouts";
  if (made.loops_before == 0) return concat(text, ".");
  return concat(text, "; ", made.loops_before, made.loops_before == 1 ? " contraction is" : " contractions are",
                " generated loops there, because no library computes them in these layouts.");
}

std::string warnings(const StepPlan& plan, const Optimized& made) {
  if (made.baseline_kept)
    return concat("The selected plan took longer than the step before optimization, so that step is the plan: every ",
                  "operator by itself.", made.disturbance.empty() ? "" : concat(" But ", made.disturbance, "."),
                  made.why_slow.empty() ? "" : concat(" ", made.why_slow));
  if (!made.why_slow.empty()) return concat("The prediction was ", shown_seconds(plan.cost), ". ", made.why_slow);
  if (!made.disturbance.empty())
    return concat("The machine is too busy to measure: ", made.disturbance,
                  ". Optimize again when it is idle; what was measured is stored.");
  if (made.step && made.idle_gapped_seconds.value_or(made.step->median) > kSlow * plan.cost)
    return concat("The prediction was ", shown_seconds(plan.cost), ": millrace bench shows which launch takes longer.");
  return "";
}

nlohmann::ordered_json seconds_json(const std::optional<StepSeconds>& time) {
  if (!time) return nullptr;
  return {{"median", time->median}, {"low", time->low}, {"high", time->high}};
}

// Commands that can be pasted, then options.
std::string next_steps(const Optimized& made) {
  const std::string plan = shell_word(made.folder);
  return concat("next: millrace bench ", plan, "  each launch, predicted and measured\n      millrace run ", plan,
                "    results and gradients; --in FILE gives your tensors\n      ",
                made.exploration.is_complete() ? "" : "a larger --budget tries more; ",
                "--layout NAME=any lets Millrace choose a tensor's layout\n");
}

}  // namespace

std::string optimize_text(const StepPlan& plan, const Selection& selection, const Optimized& made) {
  std::string text = concat(printable_line(plan.program.file), " on ", made.device, "\n\n");
  const auto line = [&](const std::string& what, const std::string& content) {
    text += wrapped(content, {kWidth, what + std::string(kIndent - what.size(), ' '), std::string(kIndent, ' ')});
  };
  const size_t conversions = conversions_of(plan);
  std::vector<std::string> notes;
  if (made.repeated > 0) notes.push_back(concat(made.repeated, " recomputed in backward"));
  if (made.predicates > 0) notes.push_back(concat(made.predicates, " saved as bits"));
  line("fused", concat(made.operators, " operators", notes.empty() ? "" : concat(" (", join(notes, ", "), ")"),
                       " into ", plan.launches.size(), " launches, ", conversions, " of them layout conversions"));
  line("explored", exploration_line(made.exploration));
  if (made.exploration.certificate && made.exploration.certificate->is_certified())
    line("proof", certificate_line(made.exploration));
  if (!made.exploration.first_failure.empty())
    line("", concat("the first that failed: ", printable_line(made.exploration.first_failure)));
  line("selected", selected_line(selection, made));
  line("planned", "arena of " + arena_text(plan));
  line("checked", check_line(plan, made));
  Table table({Align::left, Align::right, Align::right, Align::left});
  table.row({"", "before", "after", ""});
  table.row({"step", made.before ? shown_seconds(made.before->median) : made.not_timed,
             made.step ? shown_seconds(made.step->median) : made.not_timed, gain_of(made)});
  table.row({"words moved", shown_words(made.words_before), shown_words(made.words_after),
             percent_less(static_cast<double>(made.words_before), static_cast<double>(made.words_after))});
  text += concat("\n", table.text(kWidth));
  if (made.idle_gapped_seconds)
    text += concat("\nThe GPU ran these steps at ", fixed(100 * *made.relative_clock, 0),
                   " % of its highest clock; with idle gaps between steps they take ",
                   shown_seconds(*made.idle_gapped_seconds), " at ", fixed(100 * made.idle_gapped_clock, 0), " %.\n");
  if (const std::string warning = warnings(plan, made); !warning.empty()) text += concat("\n", paragraph(warning));
  text += concat("\n", paragraph(before_text(made)), "The plan is in ", printable_line(made.folder),
                 made.replaced ? "/, in place of the plan that was there.\n" : "/.\n", "The report is ",
                 printable_line(made.report), ".\n\n", next_steps(made));
  return text;
}

std::string optimize_json(const StepPlan& plan, const Selection& selection, const Optimized& made) {
  nlohmann::ordered_json root = {
      {"schema_version", 2},
      {"plan", made.folder},
      {"replaced", made.replaced},
      {"report", made.report},
      {"device", plan.device},
      {"date", plan.date},
      {"launches", plan.launches.size()},
      {"conversions", conversions_of(plan)},
      {"repeated_operators", made.repeated},
      {"predicates", made.predicates},
      {"candidates", count_json(made.exploration.configurations + made.exploration.conversions)},
      {"conversion_candidates", count_json(made.exploration.conversions)},
      {"tried", count_json(made.exploration.tried)},
      {"known", count_json(made.exploration.known)},
      {"not_needed", count_json(made.exploration.not_needed)},
      {"outcomes", outcomes_json(made.exploration)},
      {"certificate", certificate_json(made.exploration.certificate)},
      {"cost_seconds", selection.cost},
      {"bound_seconds", selection.bound},
      {"proven", selection.proven},
      {"before_seconds", made.before ? nlohmann::ordered_json(made.before->median) : nullptr},
      {"before_step_seconds", seconds_json(made.before)},
      {"step_seconds", seconds_json(made.step)},
      {"loops_before", made.loops_before},
      {"over_time", over_time_json(made.exploration.points)},
      {"not_timed", made.not_timed},
      {"baseline_kept", made.baseline_kept},
      {"disturbance", made.disturbance},
      {"words_before", made.words_before},
      {"words_after", made.words_after},
      {"arena_bytes", plan.arena_bytes},
      {"sum_bytes", plan.sum_bytes},
      {"checked", made.checked},
      {"unchecked_launches", made.unchecked},
      {"error_of_allowed", made.worst_error}};
  for (const Diagnostic& warning : made.warnings) root["warnings"].push_back(message_json(warning));
  if (made.relative_clock) root["relative_clock"] = *made.relative_clock;
  if (made.idle_gapped_seconds)
    root["idle_gapped_step_seconds"] = {{"median", *made.idle_gapped_seconds},
                                        {"relative_clock", made.idle_gapped_clock}};
  return root.dump(2) + "\n";
}

}  // namespace millrace
