// Predicted against measured times: the byte model's of every candidate, and those of the plan's launches.
// Test: tests/python/report_test.py
#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "report/exploration_report.h"
#include "report/html/legend.h"
#include "report/html/pictures.h"
#include "report/html/scatter.h"
#include "report/report_sections.h"

namespace millrace {
namespace {

constexpr size_t kLabelled = 14;  // launches with a name in the picture
constexpr size_t kLabelLetters = 26;

std::string ratio_text(const ScatterPoint& point) {
  return concat("predicted ", shown_seconds(point.predicted), ", measured ", shown_seconds(point.measured), ": ",
                shown_ratio(point.measured / point.predicted), " times as long");
}

std::vector<ScatterPoint> candidate_points(const ReportArtefacts& artefacts) {
  std::map<std::string, const TriedPartition*> tried;
  for (const TriedPartition& partition : artefacts.exploration.partitions) tried[partition.name] = &partition;
  std::map<std::string, std::string> selected;
  for (const PlanLaunch& launch : artefacts.plan.launches) selected[launch.partition] = launch.candidate;
  std::vector<ScatterPoint> others;
  std::vector<ScatterPoint> chosen;
  for (const PartitionCandidates& listed : artefacts.candidates.partitions) {
    const auto found = tried.find(listed.partition.name);
    if (found == tried.end() || found->second->tried.empty()) continue;
    std::map<std::string, double> estimates;
    for (const Candidate& candidate : listed.candidates)
      estimates[print_candidate(artefacts.candidates.domains, listed.partition, candidate)] = candidate.estimate;
    for (const TriedCandidate& candidate : found->second->tried) {
      const auto estimate = estimates.find(candidate.candidate);
      if (candidate.seconds <= 0 || estimate == estimates.end() || estimate->second <= 0) continue;
      const bool is_selected = selected[listed.partition.name] == candidate.candidate;
      ScatterPoint point{estimate->second, candidate.seconds, is_selected ? "selected" : "violin", ""};
      point.tip = concat(listed.partition.name, is_selected ? ", selected" : "", "\n", ratio_text(point));
      (is_selected ? chosen : others).push_back(std::move(point));
    }
  }
  others.insert(others.end(), chosen.begin(), chosen.end());
  return others;
}

// The value that this fraction of the ratios measured / predicted does not exceed.
double quantile(const std::vector<ScatterPoint>& points, double fraction) {
  std::vector<double> ratios;
  for (const ScatterPoint& point : points) ratios.push_back(point.measured / point.predicted);
  std::sort(ratios.begin(), ratios.end());
  return ratios[static_cast<size_t>(fraction * static_cast<double>(ratios.size() - 1))];
}

std::string spread(const std::vector<ScatterPoint>& points) {
  return concat("measured time over predicted: median ", shown_ratio(quantile(points, 0.5)), ", nine tenths between ",
                shown_ratio(quantile(points, 0.05)), " and ", shown_ratio(quantile(points, 0.95)));
}

void add_candidates(Section& section, const std::vector<ScatterPoint>& points) {
  if (points.empty()) {
    section.add("No candidate of the model was measured on this machine.");
    return;
  }
  Picture picture;
  picture.id = "predicted";
  picture.caption = concat("The byte model's prediction of every measured candidate against its time; ", spread(points),
                           ". Points above the line took longer than predicted.");
  picture.svg = draw_scatter(points, {"predicted by the byte model", "measured", "predicted against measured times"});
  picture.legend = {{LegendItem::Shape::disc, "violin", "candidate"},
                    {LegendItem::Shape::disc, "selected", "selected candidate"},
                    {LegendItem::Shape::line, "roof", "predicted exactly"}};
  section.add(std::move(picture));
}

std::vector<ScatterPoint> launch_points(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  std::vector<size_t> slowest;
  for (size_t k = 0; k < artefacts.bench_seconds.size(); ++k) slowest.push_back(k);
  std::sort(slowest.begin(), slowest.end(),
            [&](size_t l, size_t r) { return artefacts.bench_seconds[l] > artefacts.bench_seconds[r]; });
  std::vector<ScatterPoint> points;
  for (size_t k = 0; k < slowest.size(); ++k) {
    const Piece& piece = metrics.after[slowest[k]];
    ScatterPoint point{piece.seconds, artefacts.bench_seconds[slowest[k]], concat("node ", colour_of(piece)), ""};
    if (point.predicted <= 0 || point.measured <= 0) continue;
    point.tip = concat(piece.name, "\n", ratio_text(point));
    if (k < kLabelled) point.label = shortened(piece.name, kLabelLetters);
    points.push_back(std::move(point));
  }
  return points;
}

}  // namespace

Section model_section(const ReportArtefacts& artefacts, const StepMetrics& metrics) {
  Section section{"model",
                  "Predicted and measured times",
                  "The byte model predicts a candidate's time from the bytes that it moves and the flop that it does. "
                  "It decides only what is tried first; what is selected was measured.",
                  {}};
  add_candidates(section, candidate_points(artefacts));
  const std::vector<ScatterPoint> launches = launch_points(artefacts, metrics);
  if (launches.empty()) return section;
  Picture picture;
  picture.id = "predicted_launches";
  picture.caption = concat(
      "The time of every launch when it was tried alone, which the plan predicts, against its time in the running step "
      "(millrace "
      "bench); ",
      spread(launches), ".");
  picture.svg = draw_scatter(launches, {"tried alone", "in the step", "times of launches, alone and in the step"});
  picture.legend = class_legend(LegendItem::Shape::disc);
  picture.legend.push_back({LegendItem::Shape::line, "roof", "equal times"});
  section.add(std::move(picture));
  return section;
}

}  // namespace millrace
