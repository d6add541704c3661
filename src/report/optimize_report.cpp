#include "report/optimize_report.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/table.h"

namespace millrace {
namespace {

constexpr double kBusy = 1.25;  // a step takes so much longer than its partitions

std::string percent_less(double before, double after) {
  if (before <= 0) return "";
  const double less = 100 * (before - after) / before;
  return less >= 0 ? concat(fixed(less, 1), " % less") : concat(fixed(-less, 1), " % more");
}

std::string shown_bytes(int64_t bytes) {
  const auto count = static_cast<double>(bytes);
  if (bytes >= 1 << 20) return concat(fixed(count / (1 << 20), 1), " MiB");
  return concat(fixed(count / 1024, 1), " KiB");
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

}  // namespace

std::string optimize_text(const StepPlan& plan, const Selection& selection, const Optimized& made) {
  std::string text = concat(plan.program.file, " on ", made.device, "\n\n");
  const auto line = [&](const std::string& what, const std::string& content) {
    text += what + std::string(11 - what.size(), ' ') + content + "\n";
  };
  const size_t conversions = conversions_of(plan);
  const std::string again = made.repeated == 0 ? "" : concat(", ", made.repeated, " of them again in backward");
  const std::string asked = made.predicates == 0 ? "" : concat(", ", made.predicates, " saved only as bits");
  const char* const comma = again.empty() && asked.empty() ? "" : ",";
  line("fused", concat(made.operators, " operators", again, asked, comma, " into ", plan.launches.size() - conversions,
                       " launches and ", conversions, conversions == 1 ? " conversion" : " conversions"));
  line("explored", exploration_line(made.exploration));
  if (!made.exploration.first_failure.empty()) line("", concat("not right: ", made.exploration.first_failure));
  line("selected", concat(shown_seconds(selection.cost), " a step, ",
                          fixed(100 * (selection.cost / selection.bound - 1), 2), " % above the bound of ",
                          shown_seconds(selection.bound), " that ignores layouts; the paper's gap was 6 %"));
  line("planned", concat("one arena of ", shown_bytes(plan.arena_bytes), ", where all buffers apart take ",
                         shown_bytes(plan.sum_bytes)));
  line("checked",
       made.checked ? concat("results and every gradient agree with the reference: ", fixed(100 * made.worst_error, 1),
                             " % of the error that rounding allows")
                    : concat("every candidate by itself; the whole takes the reference ",
                             fixed(made.reference_seconds / 60, 0), " minutes: choose a smaller --size to see it"));
  Table table({Align::left, Align::right, Align::right, Align::left});
  table.row({"", "before", "after", ""});
  if (plan.default_cost > 0) {
    table.row({"step", shown_seconds(plan.default_cost), shown_seconds(made.step_seconds),
               concat(fixed(plan.default_cost / made.step_seconds, 2), " times as fast")});
  } else {
    table.row({"step", "", shown_seconds(made.step_seconds), ""});
  }
  table.row({"words moved", shown_words(made.words_before), shown_words(made.words_after),
             percent_less(static_cast<double>(made.words_before), static_cast<double>(made.words_after))});
  text += concat("\n", table.text(100));
  if (made.idle_gapped_seconds)
    text += concat("\nThe GPU ran these steps at ", fixed(100 * *made.relative_clock, 0),
                   " % of its highest clock; one at a time, with rests, they take ",
                   shown_seconds(*made.idle_gapped_seconds), " at ", fixed(100 * made.idle_gapped_clock, 0), " %.\n");
  if (made.idle_gapped_seconds.value_or(made.step_seconds) > kBusy * plan.cost)
    text += concat("\nPredicted are ", shown_seconds(plan.cost),
                   ": the machine was busy with something else; millrace bench times the plan again.\n");
  text += concat("\nBefore: every operator by itself, the fastest way for tensors as the program writes them.\n",
                 "The plan is in ", made.folder, "/, what was found in ", made.report, ". Next:\n", "  millrace bench ",
                 made.folder, "        each launch, predicted and measured\n", "  millrace run ", made.folder,
                 " --in FILE   results and gradients for your tensors\n",
                 made.exploration.is_whole() ? "  " : "  more --budget looks further; ",
                 "--layout NAME=any frees a tensor's layout\n");
  return text;
}

std::string optimize_json(const StepPlan& plan, const Selection& selection, const Optimized& made) {
  nlohmann::ordered_json root = {
      {"schema_version", 1},
      {"plan", made.folder},
      {"report", made.report},
      {"device", plan.device},
      {"date", plan.date},
      {"launches", plan.launches.size()},
      {"conversions", conversions_of(plan)},
      {"repeated_operators", made.repeated},
      {"predicates", made.predicates},
      {"configurations", made.exploration.configurations + made.exploration.conversions},
      {"tried", made.exploration.tried},
      {"known", made.exploration.known},
      {"not_needed", made.exploration.not_needed},
      {"outcomes", made.exploration.outcomes},
      {"cost_seconds", selection.cost},
      {"bound_seconds", selection.bound},
      {"proven", selection.proven},
      {"before_seconds", plan.default_cost},
      {"step_seconds", {{"median", made.step_seconds}, {"low", made.step_low}, {"high", made.step_high}}},
      {"words_before", made.words_before},
      {"words_after", made.words_after},
      {"arena_bytes", plan.arena_bytes},
      {"sum_bytes", plan.sum_bytes},
      {"checked", made.checked},
      {"error_of_allowed", made.worst_error}};
  if (made.relative_clock) root["relative_clock"] = *made.relative_clock;
  if (made.idle_gapped_seconds)
    root["idle_gapped_step_seconds"] = {{"median", *made.idle_gapped_seconds}, {"relative_clock", made.idle_gapped_clock}};
  return root.dump(2) + "\n";
}

}  // namespace millrace
