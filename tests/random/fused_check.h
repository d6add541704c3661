// Independent checks of fusion: that a fused graph satisfies fused_graph.h, and that running it row by row gives the
// same values as the unfused graph. Tests: tests/fusion/fused_check_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "autodiff/training_graph.h"
#include "fusion/fused_graph.h"
#include "fusion/recompute.h"
#include "reference/interpreter.h"

namespace millrace::random_programs {

// Checks that every operator is in one group, that the order of groups is valid, and that reads, writes, interim
// tensors, indices and words follow from the members. Returns nothing if all is valid, else the error.
std::optional<std::string> check_structure(const TrainingGraph& training, const FusedGraph& fused);

// Checks the structure and the values: `expected` are those of the unfused graph for the same arguments.
std::optional<std::string> check_fused(const TrainingGraph& training, const FusedGraph& fused,
                                       const Values<double>& expected, RandomState random);

// Checks that the result of recompute() or save_predicates() gives the values `expected` of the original graph with
// fewer words than `fused`, and that its fused graph is valid too.
std::optional<std::string> check_saving_less(const TrainingGraph& training, const FusedGraph& fused,
                                             const Recomputed& made, const Values<double>& expected,
                                             RandomState random);

// Draws arguments from the seed, runs the graph unfused, fuses it and checks the outcome: without and with
// recomputation, and with saved predicates.
std::optional<std::string> check_fusion(const TrainingGraph& training, uint64_t seed);

}  // namespace millrace::random_programs
