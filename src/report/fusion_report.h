// A fused graph as a table for people and as JSON, and the explanations of its pairs.
// Test: tests/golden/golden_test.cpp
#pragma once

#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

std::string fusion_text(const TrainingGraph& training, const FusedGraph& fused,
                        const std::vector<AttentionAlternative>& attentions, size_t width);
std::string fusion_json(const TrainingGraph& training, const FusedGraph& fused,
                        const std::vector<AttentionAlternative>& attentions, const std::vector<PairExplanation>& pairs);
std::string pairs_text(const TrainingGraph& training, const std::vector<PairExplanation>& pairs);

}  // namespace millrace
