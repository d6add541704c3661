// An analysis as a table for people, as JSON, and as a graph for Graphviz.
// Test: tests/golden/golden_test.cpp
#pragma once

#include <string>
#include <vector>

#include "analysis/analysis.h"
#include "autodiff/training_graph.h"
#include "millrace/result.h"

namespace millrace {

std::string analysis_text(const TrainingGraph& training, const Analysis& analysis, size_t width);
// `warnings`: about the program.
std::string analysis_json(const TrainingGraph& training, const Analysis& analysis,
                          const std::vector<Diagnostic>& warnings = {});
std::string analysis_dot(const TrainingGraph& training, const Analysis& analysis);

}  // namespace millrace
