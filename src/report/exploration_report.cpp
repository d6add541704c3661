#include "report/exploration_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/quote.h"
#include "base/text.h"
#include "report/json_text.h"
#include "report/table.h"
#include "report/wrap.h"

namespace millrace {

std::string candidates_text(const Graph& graph, const Candidates& candidates, size_t width) {
  Table table({Align::left, Align::right});
  table.row({"partition", "candidates"});
  std::string text;
  double total = 0;
  bool estimated = false;
  for (const PartitionCandidates& entry : candidates.partitions) {
    total += entry.configurations;
    estimated = estimated || entry.estimated;
    table.row(
        {entry.partition.name, entry.estimated ? about(entry.configurations) : with_commas(entry.configurations)});
  }
  text += table.text(width);
  text += "\nrejected, with the reason\n";
  for (const PartitionCandidates& entry : candidates.partitions) {
    if (entry.rejected.empty()) continue;
    text += concat("  ", entry.partition.name, "\n");
    for (const Rejected& rejected : entry.rejected)
      text +=
          wrapped(rejected.reason,
                  {width, concat("    ", entry.estimated ? about(rejected.count) : with_commas(rejected.count), "  "),
                   "      "});
  }
  for (const Rejected& rejected : candidates.rejected) text += wrapped(rejected.reason, {width, "  ", "      "});
  size_t covers = 0;
  for (const ChoicePoint& choice_point : candidates.choice_points)
    covers += choice_point.alternatives.size() > 1 ? 1 : 0;
  const std::string counts = concat(candidates.partitions.size(), " partitions of ", graph.name, ", ",
                                    estimated ? about(total) : with_commas(total), " candidates; ", covers,
                                    covers == 1 ? " choice point" : " choice points",
                                    ". Candidates of layout conversions are added where a selection may need one.");
  return concat(text, "\n", wrapped(counts, {width, "", ""}));
}

std::string candidates_json(const Graph& graph, const Candidates& candidates) {
  const auto rejected_json = [](const std::vector<Rejected>& rejected) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Rejected& one : rejected) list.push_back({{"reason", one.reason}, {"count", count_json(one.count)}});
    return list;
  };
  JsonText json;
  json.field("schema_version", 1);
  json.field("program", graph.name);
  json.list("partitions", candidates.partitions.size(), [&](size_t k) {
    const PartitionCandidates& entry = candidates.partitions[k];
    return nlohmann::ordered_json{{"name", entry.partition.name},
                                  {"candidates", count_json(entry.configurations)},
                                  {"estimated", entry.estimated},
                                  {"rejected", rejected_json(entry.rejected)}};
  });
  json.field("rejected", rejected_json(candidates.rejected));
  return std::move(json).finish();
}

std::string outcomes_text(const Exploration& exploration) {
  std::vector<std::string> outcomes;
  for (const auto& [name, count] : exploration.outcomes)
    outcomes.push_back(concat(with_commas(count), " ", name == "measured" ? "correct" : name));
  return join(outcomes, ", ");
}

std::string exploration_line(const Exploration& exploration) {
  const double done = exploration.tried + exploration.known;
  const bool whole = exploration.is_whole() && exploration.not_needed > 0;
  const std::string others = whole ? concat("; the other ", with_commas(exploration.not_needed),
                                            " are equal to these, or differ only in the strides between cache lines")
                                   : "";
  const double all = exploration.configurations + exploration.conversions;
  const std::string outcomes = outcomes_text(exploration);
  return concat(with_commas(done), " of ", exploration.estimated ? about(all) : with_commas(all), " candidates in ",
                fixed(exploration.seconds, 1), " s (", with_commas(exploration.tried), " new)",
                outcomes.empty() ? "" : concat(": ", outcomes), others);
}

nlohmann::ordered_json over_time_json(const std::vector<ExplorationPoint>& points) {
  nlohmann::ordered_json made = nlohmann::ordered_json::array();
  for (const ExplorationPoint& point : points)
    made.push_back({{"seconds", point.seconds},
                    {"tried", count_json(point.tried)},
                    {"step_seconds", point.step},
                    {"lower_bound_seconds", point.bound}});
  return made;
}

std::string certificate_line(const Exploration& exploration) {
  if (!exploration.certificate) return "";
  const Certificate& certificate = *exploration.certificate;
  const std::string candidates = concat(
      exploration.estimated ? about(certificate.candidates) : with_commas(certificate.candidates), " candidates");
  if (certificate.is_certified())
    return concat("certified: no plan of these ", candidates, " is faster (by more than ",
                  fixed(100 * Certificate::kFaster, 1), " %)");
  return concat("not certified: untried candidates may make a plan that is faster",
                certificate.step > 0 ? concat(" than the best step, ", shown_seconds(certificate.step)) : "",
                "; it is only proven that no plan of these ", candidates, " takes less than ",
                shown_seconds(certificate.lower_bound));
}

namespace {

// How many candidates of a partition were tried, and the times of those that are correct: ~ marks an estimate, which a
// partition has if none of them was timed.
std::vector<std::string> partition_row(const MeasuredPartition& partition, const std::vector<TriedCandidate>& tried,
                                       const CandidateWords& words) {
  const std::string count = with_commas(static_cast<double>(tried.size()));
  const auto fastest =
      std::min_element(partition.candidates.begin(), partition.candidates.end(),
                       [](const MeasuredCandidate& l, const MeasuredCandidate& r) { return l.seconds < r.seconds; });
  if (fastest == partition.candidates.end()) return {partition.name, count, "", "", ""};
  double slowest = 0;
  for (const TriedCandidate& candidate : tried) slowest = std::max(slowest, candidate.seconds);
  return {partition.name, count, concat(slowest > 0 ? "" : "~", shown_seconds(fastest->seconds)),
          slowest > 0 ? shown_seconds(slowest) : "", words.of(partition.name, fastest->candidate)};
}

}  // namespace

std::string exploration_text(const Measurements& measurements, const Exploration& exploration,
                             const CandidateWords& words, size_t width) {
  std::map<std::string_view, const TriedPartition*> tried;
  for (const TriedPartition& partition : exploration.partitions) tried[partition.name] = &partition;
  Table table({Align::left, Align::right, Align::right, Align::right, Align::left});
  table.row({"partition", "tried", "fastest", "slowest", "fastest candidate"});
  for (const MeasuredPartition& partition : measurements.partitions) {
    const auto found = tried.find(partition.name);
    table.row(
        partition_row(partition, found == tried.end() ? std::vector<TriedCandidate>() : found->second->tried, words));
  }
  std::string text = concat(table.text(width), "\n", wrapped(exploration_line(exploration), {width, "", "  "}));
  text += wrapped(certificate_line(exploration), {width, "", "  "});
  if (!exploration.first_failure.empty())
    text += concat("the first that failed: ", indented(printable(exploration.first_failure)), "\n");
  if (const std::vector<double>& spreads = exploration.timing_class_spreads; !spreads.empty()) {
    const auto percent = [&](size_t place) { return concat(fixed(100 * (spreads[place] - 1), 1), " %"); };
    text +=
        concat("timing classes: ", with_commas(static_cast<double>(spreads.size())),
               " were measured more than once; the slowest candidate of a class took ", percent(spreads.size() / 2),
               " longer than its fastest (median; ", percent(spreads.size() * 9 / 10), " at the 90th percentile)\n");
  }
  return text;
}

}  // namespace millrace
