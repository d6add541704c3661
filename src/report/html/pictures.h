// The report's pictures. Tables show the same numbers.
// Tests: tests/report/violin_test.cpp, tests/python/report_test.py
#pragma once

#include <string>
#include <vector>

#include "report/html/document.h"
#include "report/html/graph_layout.h"
#include "report/metrics.h"
#include "report/traffic.h"

namespace millrace {

// The report.css class for an operator's colour.
std::string colour_of(const Piece& piece);

// One pass as a graph: operators by class, with edges as thick as the words that they carry.
enum class FlowOf { operators, launches };
Picture dataflow_picture(const ReportArtefacts& artefacts, const StepMetrics& metrics, FlowOf source, Pass pass,
                         GraphLayout& layout);

// Operators before and launches after, in order, each as wide as its time.
Picture timeline_picture(const StepMetrics& metrics);

// The same for the launches of two plans.
Picture compared_timeline_picture(const StepPlan& a, const StepPlan& b);

Picture roofline_picture(const ReportArtefacts& artefacts, const StepMetrics& metrics);

// For each tensor that a launch writes: all layouts, how slow its writer is for each, and the selected path.
Picture selection_picture(const ReportArtefacts& artefacts);

// Best step, lower bound and candidates tried over the time of an exploration.
Picture search_picture(const std::vector<ExplorationPoint>& points);

// Which tensors occupy which bytes of the arena, launch by launch.
Picture memory_picture(const ReportArtefacts& artefacts);
// Bytes of the arena that are alive, over the launches, and their peak.
Picture live_picture(const StepPlan& plan);
// The tensors that move most bytes, as bars.
Picture traffic_picture(const std::vector<TensorTraffic>& traffic);

// 1, 2 or 5 times a power of ten, so that at most `ticks` of them reach `most`, which is above zero.
double tick_of(double most, int ticks);

// "1.2 M"
std::string short_count(double number);
// "1.2 MiB"
std::string short_bytes(double bytes);

}  // namespace millrace
