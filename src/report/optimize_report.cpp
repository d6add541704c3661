#include "report/optimize_report.h"

#include <nlohmann/json.hpp>

#include "base/quote.h"
#include "base/text.h"
#include "report/exploration_report.h"
#include "report/table.h"

namespace millrace {
namespace {

constexpr size_t kIndent = 11;  // of what follows the first word of a line
constexpr size_t kWidth = 116;  // columns
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

// Lines of at most kWidth characters; all but the first are indented. Empty if the text is.
std::string wrapped(const std::string& text, size_t indent) {
  std::string lines;
  size_t column = 0;
  for (const std::string& word : split(text, ' ')) {
    if (column > indent && column + 1 + word.size() > kWidth) {
      lines += "\n" + std::string(indent, ' ') + word;
      column = indent + word.size();
    } else {
      lines += (column == 0 ? "" : " ") + word;
      column += (column == 0 ? 0 : 1) + word.size();
    }
  }
  return lines.empty() ? "" : lines + "\n";
}

// What was checked, exactly.
std::string check_line(const StepPlan& plan, const Optimized& made) {
  if (made.checked)
    return concat("results and all gradients agree with the reference: ", fixed(100 * made.worst_error, 1),
                  " % of the allowed rounding error",
                  made.not_finite.empty() ? ""
                                          : concat("; for these inputs nothing of ", join(made.not_finite, ", "),
                                                   " is finite: give typical ones with --in FILE"));
  const size_t launches = plan.launches.size();
  return concat(made.unchecked == 0 ? concat("each of the ", launches, " launches alone")
                                    : concat(launches - made.unchecked, " of the ", launches, " launches, each alone; ",
                                             made.unchecked, " not at all: the budget ended before"),
                "; the whole step not: the reference needs about ", shown_seconds(made.reference_seconds),
                ", of which ", shown_seconds(made.check_limit),
                " were left; choose a smaller --size or a larger --budget to check it");
}

std::string gain_of(const Optimized& made) {
  if (!made.before || !made.step) return "";
  return concat(shown_ratio(made.before->median / made.step->median), " times as fast",
                made.baseline_kept ? "; the plan is the step before" : "");
}

// How the exploration went on: seconds since it began, candidates tried, the best step and its lower bound so far.
nlohmann::json over_time(const Exploration& exploration) {
  nlohmann::json made = nlohmann::json::array();
  for (const ExplorationPoint& point : exploration.points)
    made.push_back({{"seconds", point.seconds},
                    {"tried", point.tried},
                    {"step_seconds", point.step},
                    {"lower_bound_seconds", point.bound}});
  return made;
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

}  // namespace

std::string optimize_text(const StepPlan& plan, const Selection& selection, const Optimized& made) {
  std::string text = concat(printable_line(plan.program.file), " on ", made.device, "\n\n");
  const auto line = [&](const std::string& what, const std::string& content) {
    text += wrapped(what + std::string(kIndent - what.size(), ' ') + content, kIndent);
  };
  const size_t conversions = conversions_of(plan);
  std::vector<std::string> notes;
  if (made.repeated > 0) notes.push_back(concat(made.repeated, " recomputed in backward"));
  if (made.predicates > 0) notes.push_back(concat(made.predicates, " saved as bits"));
  line("fused", concat(made.operators, " operators", notes.empty() ? "" : concat(" (", join(notes, ", "), ")"),
                       " into ", plan.launches.size(), " launches, ", conversions, " of them layout conversions"));
  line("explored", exploration_line(made.exploration));
  if (!made.exploration.first_failure.empty()) line("", concat("incorrect: ", made.exploration.first_failure));
  line("selected",
       concat(shown_seconds(selection.cost), " per step, ",
              fixed(100 * std::max(0.0, selection.cost / selection.bound - 1), 2), " % above the lower bound of ",
              shown_seconds(selection.bound), ", which ignores layouts (the paper's gap: 6 %)"));
  line("planned",
       concat("arena of ", shown_bytes(plan.arena_bytes), " (without reuse: ", shown_bytes(plan.sum_bytes), ")"));
  line("checked", check_line(plan, made));
  Table table({Align::left, Align::right, Align::right, Align::left});
  table.row({"", "before", "after", ""});
  table.row({"step", made.before ? shown_seconds(made.before->median) : made.not_timed,
             made.step ? shown_seconds(made.step->median) : made.not_timed, gain_of(made)});
  table.row({"words moved", shown_words(made.words_before), shown_words(made.words_after),
             percent_less(static_cast<double>(made.words_before), static_cast<double>(made.words_after))});
  text += concat("\n", table.text(100));
  if (made.idle_gapped_seconds)
    text += concat("\nThe GPU ran these steps at ", fixed(100 * *made.relative_clock, 0),
                   " % of its highest clock; with idle gaps between steps they take ",
                   shown_seconds(*made.idle_gapped_seconds), " at ", fixed(100 * made.idle_gapped_clock, 0), " %.\n");
  if (const std::string warning = warnings(plan, made); !warning.empty()) text += concat("\n", wrapped(warning, 0));
  text += concat("\n", wrapped(before_text(made), 0), "The plan is in ", printable_line(made.folder),
                 made.replaced ? "/, in place of the plan that was there" : "/", ", the report in ",
                 printable_line(made.report), ". Next:\n", "  millrace bench ", shell_word(made.folder),
                 "        each launch, predicted and measured\n", "  millrace run ", shell_word(made.folder),
                 " --in FILE   results and gradients for your tensors\n",
                 made.exploration.is_whole() ? "  " : "  a larger --budget tries more; ",
                 "--layout NAME=any lets Millrace choose a tensor's layout\n");
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
      {"candidates", made.exploration.configurations + made.exploration.conversions},
      {"conversion_candidates", made.exploration.conversions},
      {"tried", made.exploration.tried},
      {"known", made.exploration.known},
      {"not_needed", made.exploration.not_needed},
      {"outcomes", made.exploration.outcomes},
      {"cost_seconds", selection.cost},
      {"bound_seconds", selection.bound},
      {"proven", selection.proven},
      {"before_seconds", made.before ? nlohmann::ordered_json(made.before->median) : nullptr},
      {"before_step_seconds", seconds_json(made.before)},
      {"step_seconds", seconds_json(made.step)},
      {"loops_before", made.loops_before},
      {"over_time", over_time(made.exploration)},
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
  if (made.relative_clock) root["relative_clock"] = *made.relative_clock;
  if (made.idle_gapped_seconds)
    root["idle_gapped_step_seconds"] = {{"median", *made.idle_gapped_seconds},
                                        {"relative_clock", made.idle_gapped_clock}};
  return root.dump(2) + "\n";
}

}  // namespace millrace
