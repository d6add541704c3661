#include "report/answers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/pictures.h"
#include "report/html/svg.h"
#include "report/traffic.h"

namespace millrace {
namespace {

constexpr size_t kNamed = 3;
constexpr size_t kNameLetters = 70;

std::string share(double part, double whole) { return concat(fixed(whole > 0 ? 100 * part / whole : 0, 0), " %"); }

std::string most_time(const StepMetrics& metrics) {
  std::vector<const Piece*> slowest = slowest_first(metrics.after);
  slowest.resize(std::min(slowest.size(), kNamed));
  const double step = step_seconds(metrics);
  std::vector<std::string> texts;
  for (const Piece* piece : slowest)
    texts.push_back(concat(shortened(piece->name, kNameLetters), " (", name_of(piece->pass),
                           piece->estimated ? ") takes an estimated " : ") takes ", shown_seconds(piece->seconds), ", ",
                           share(piece->seconds, step), " of the step"));
  double products = 0;
  for (const Piece& piece : metrics.after) {
    if (!piece.conversion && piece.operator_class == OperatorClass::contraction) products += piece.seconds;
  }
  return concat(join(texts, "; "), ". Contractions take ", share(products, step), " of the time.");
}

std::string most_bytes(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  const std::vector<TensorTraffic> traffic = tensor_traffic(artefacts.plan, artefacts.candidates);
  double all = 0;
  for (const TensorTraffic& tensor : traffic) all += static_cast<double>(tensor.bytes());
  std::vector<std::string> texts;
  for (size_t k = 0; k < std::min(kNamed, traffic.size()); ++k)
    texts.push_back(concat(traffic[k].tensor, " with ", short_bytes(static_cast<double>(traffic[k].bytes())), " (",
                           share(static_cast<double>(traffic[k].bytes()), all), ")"));
  const auto most = std::max_element(metrics.after.begin(), metrics.after.end(),
                                     [](const Piece& l, const Piece& r) { return l.bytes < r.bytes; });
  return concat("Of the tensors, ", join(texts, ", "), " of the ", short_bytes(all),
                " that launches read and write (a tensor counts once for each launch).",
                most == metrics.after.end() ? ""
                                            : concat(" Of the launches, ", shortened(most->name, kNameLetters),
                                                     " with ", short_bytes(most->bytes), "."));
}

// The choice of this kind with the largest difference to the other layout's time; null if there is none.
const LayoutReason* largest(const std::vector<LayoutReason>& reasons, LayoutChoice choice) {
  const auto difference = [](const LayoutReason& reason) { return std::abs(reason.seconds - reason.other_seconds); };
  const LayoutReason* found = nullptr;
  for (const LayoutReason& reason : reasons) {
    if (reason.choice != choice || reason.seconds == kNoTime || reason.other_seconds == kNoTime) continue;
    if (found == nullptr || difference(reason) > difference(*found)) found = &reason;
  }
  return found;
}

std::string layouts(const std::vector<LayoutReason>& reasons) {
  std::map<LayoutChoice, int> counts;
  int converted = 0;
  for (const LayoutReason& reason : reasons) {
    if (reason.why.empty()) continue;
    ++counts[reason.choice];
    if (!reason.also.empty()) ++converted;
  }
  if (counts.empty()) return "No times of other layouts are known on this machine.";
  std::vector<std::string> texts;
  const auto tell = [&](LayoutChoice choice, const char* what) {
    if (counts[choice] > 0) texts.push_back(concat(counts[choice], counts[choice] == 1 ? " has " : " have ", what));
  };
  tell(LayoutChoice::callers, "the layout that the caller gives or wants");
  tell(LayoutChoice::fastest, "the layout with which their launches are fastest");
  tell(LayoutChoice::for_others, "a slower one, because other tensors of the same launches gain more");
  tell(LayoutChoice::only, "the only layout that was measured for all of their launches");
  tell(LayoutChoice::estimated, "the layout of the best estimate: no layout was measured for all of their launches");
  return concat(
      "Of the ",
      std::accumulate(counts.begin(), counts.end(), 0, [](int sum, const auto& one) { return sum + one.second; }),
      " tensors in memory, ", join(texts, ", "),
      converted > 0 ? concat("; ", converted, " exist in a second layout, by a conversion") : "", ".",
      layouts_that_matter(reasons), " The table of layouts under \"The selection\" gives the reason for each tensor.");
}

std::string distance(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  const StepPlan& plan = artefacts.plan;
  std::vector<std::string> texts;
  if (const size_t estimated = estimated_launches(metrics); estimated > 0)
    texts.push_back(concat("Unknown: the times of ", estimated, " of the ", metrics.after.size(),
                           " launches are estimates, which bound nothing"));
  else if (plan.bound > 0)
    texts.push_back(concat("The sum of the launches, ", shown_seconds(plan.cost), ", is ",
                           fixed(100 * std::max(0.0, plan.cost / plan.bound - 1), 1), " % above the lower bound of ",
                           shown_seconds(plan.bound), ", which ignores layouts"));
  double limit = 0;
  double timed = 0;  // launches that have a limit
  for (const Piece& piece : metrics.after) {
    const std::optional<Limit> found = limit_of(piece, metrics.peaks);
    limit += found ? std::min(1.0, found->fraction) * piece.seconds : 0;
    timed += found ? piece.seconds : 0;
  }
  if (limit > 0)
    texts.push_back(
        concat("At the highest rates seen here, the memory and arithmetic of the launches that were timed "
               "would take ",
               shown_seconds(limit), ", ", share(limit, timed), " of their time"));
  if (artefacts.step_seconds > 0 && plan.cost > 0)
    texts.push_back(concat("The running step takes ", shown_seconds(artefacts.step_seconds), ", ",
                           shown_ratio(artefacts.step_seconds / plan.cost), " times the sum of its launches, ",
                           shown_seconds(plan.cost)));
  return concat(join(texts, ". "), ".");
}

// The caller's tensor whose launches would gain most from another layout.
const LayoutReason* best_of_callers(const std::vector<LayoutReason>& reasons) {
  const LayoutReason* best = nullptr;
  for (const LayoutReason& reason : reasons) {
    if (reason.choice != LayoutChoice::callers || reason.seconds == kNoTime) continue;
    const double gain = reason.seconds - reason.other_seconds;
    if (gain > 0 && (best == nullptr || gain > best->seconds - best->other_seconds)) best = &reason;
  }
  return best;
}

std::string what_next(const ReportArtefacts& artefacts, const StepMetrics& metrics,
                      const std::vector<LayoutReason>& reasons) {
  std::vector<std::string> texts;
  if (const size_t estimated = estimated_launches(metrics); estimated > 0)
    texts.push_back(concat("A larger --budget times the ", estimated, " launches that were only estimated"));
  if (const Gain gain = largest_gain(metrics); gain.launch != nullptr)
    texts.push_back(concat("A faster implementation of ", shortened(gain.launch->name, kNameLetters),
                           " could save up to ", shown_seconds(gain.seconds), " (",
                           share(gain.seconds, step_seconds(metrics)), " of the step)"));
  if (!artefacts.exploration.is_whole() && artefacts.exploration.configurations > 0) {
    const double tried = artefacts.exploration.tried + artefacts.exploration.known;
    const double all = artefacts.exploration.configurations + artefacts.exploration.conversions;
    texts.push_back(concat("Only ", with_commas(tried), " of ", with_commas(all),
                           " candidates were tried: a larger --budget tries more"));
  }
  if (const LayoutReason* best = best_of_callers(reasons); best != nullptr)
    texts.push_back(concat("With --layout ", best->caller, "=any, its launches could save up to ",
                           shown_seconds(best->seconds - best->other_seconds), " by the layout ", best->other));
  return texts.empty() ? "Nothing that these measurements show." : concat(join(texts, ". "), ".");
}

}  // namespace

std::string layouts_that_matter(const std::vector<LayoutReason>& reasons) {
  std::string text;
  if (const LayoutReason* const gain = largest(reasons, LayoutChoice::fastest); gain != nullptr)
    text +=
        concat(" Most is gained by ", gain->tensor, " as ", gain->layout, ": its launches can take ",
               shown_seconds(gain->seconds), ", and as ", gain->other, " ", shown_seconds(gain->other_seconds), ".");
  if (const LayoutReason* const loss = largest(reasons, LayoutChoice::for_others); loss != nullptr)
    text += concat(" Most is given up by ", loss->tensor, " as ", loss->layout, ": up to ",
                   shown_seconds(loss->seconds - loss->other_seconds), " against ", loss->other, ".");
  return text;
}

std::string tensor_to_free(const ReportArtefacts& artefacts) {
  const std::vector<LayoutReason> reasons = layout_reasons(artefacts.plan, artefacts.measurements);
  if (const LayoutReason* const best = best_of_callers(reasons); best != nullptr) return best->caller;
  const auto first = std::find_if(reasons.begin(), reasons.end(), [](const LayoutReason& reason) {
    return reason.choice == LayoutChoice::callers && reason.layout.size() > 1;
  });
  return first == reasons.end() ? "" : first->caller;
}

Gain largest_gain(const StepMetrics& metrics) {
  Gain gain;
  for (const Piece& piece : metrics.after) {
    const std::optional<Limit> limit = limit_of(piece, metrics.peaks);
    if (!limit || piece.seconds * (1 - limit->fraction) <= gain.seconds) continue;
    gain = {&piece, piece.seconds * (1 - limit->fraction)};
  }
  return gain;
}

std::vector<std::pair<std::string, std::string>> answers_of(const ReportArtefacts& artefacts,
                                                            const StepMetrics& metrics) {
  const std::vector<LayoutReason> reasons = layout_reasons(artefacts.plan, artefacts.measurements);
  return {{"What takes most time?", most_time(metrics)},
          {"What moves most bytes?", most_bytes(artefacts, metrics)},
          {"Why these layouts?", layouts(reasons)},
          {"How far is it from the bound?", distance(artefacts, metrics)},
          {"What could be tried next?", what_next(artefacts, metrics, reasons)}};
}

}  // namespace millrace
