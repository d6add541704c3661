// One pass of a step as boxes and lines: operators before, launches after, and the tensors that they exchange.
// Test: tests/report/flow_test.cpp
#pragma once

#include <string>
#include <vector>

#include "report/html/pictures.h"
#include "report/metrics.h"

namespace millrace {

// A tensor in memory; after selection, in one layout.
struct FlowTensor {
  std::string name;
  std::string layout;  // after selection
  double words = 0;
  double bytes = 0;
  bool kept = false;  // the caller's, or for the other pass: drawn even if nothing in this pass reads it
};

struct FlowNode {
  const Piece* piece = nullptr;  // null: a tensor of the caller or of the other pass
  size_t number = 0;             // of the operator or launch in the whole step; of a tensor, its position in `tensors`
  std::vector<size_t> reads;     // positions in `tensors`
  std::vector<size_t> writes;
};

struct FlowEdge {
  size_t from = 0;
  size_t to = 0;
  size_t tensor = 0;
};

struct Flow {
  std::vector<FlowTensor> tensors;
  std::vector<FlowNode> nodes;
  std::vector<FlowEdge> edges;
};

Flow flow_of(const ReportArtefacts& artefacts, const StepMetrics& metrics, FlowOf source, Pass pass);

// "x as BJI: 1.2 M words, 4.8 MiB"
std::string described(const FlowTensor& tensor);

// What the page shows for every box and line when it is selected, as JSON: for report.js.
std::string flow_details(const ReportArtefacts& artefacts, const StepMetrics& metrics, const Flow& flow);

}  // namespace millrace
