// What a reader asks first, answered in a sentence or two each. Test: tests/report/answers_test.cpp
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/layout_reasons.h"
#include "report/metrics.h"

namespace millrace {

std::vector<std::pair<std::string, std::string>> answers_of(const ReportArtefacts& artefacts,
                                                            const StepMetrics& metrics);

// Names the tensor that gains most by its layout, and the one that gives up most for others; each begins with a blank.
std::string layouts_that_matter(const std::vector<LayoutReason>& reasons);

// A caller's tensor whose layout Millrace might choose: the one with the largest gain, else any; empty: none.
std::string tensor_to_free(const ReportArtefacts& artefacts);

// The launch that could gain most if it reached the limits measured on this machine; null if none is known.
struct Gain {
  const Piece* launch = nullptr;
  double seconds = 0;
};
Gain largest_gain(const StepMetrics& metrics);

}  // namespace millrace
