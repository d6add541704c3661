// The independent checks of fusion: that a fused graph is what fused_graph.h says, and that running it, row by row,
// gives what the unfused graph gives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "autodiff/training_graph.h"
#include "fusion/fused_graph.h"
#include "fusion/recompute.h"
#include "reference/interpreter.h"

namespace millrace::random_programs {

// That every operator is in one group, that groups can run in their order, and that reads, writes, interim tensors,
// indices and words are those that follow from the members. Nothing: all is as it should be.
std::optional<std::string> check_structure(const TrainingGraph& training, const FusedGraph& fused);

// The structure, and the values: `expected` is what the unfused graph gives, from the same arguments.
std::optional<std::string> check_fused(const TrainingGraph& training, const FusedGraph& fused,
                                       const Values<double>& expected, RandomState random);

// That what recompute() or save_predicates() made gives what the graph gave, `expected`, with fewer words, and that its
// fused graph is right too.
std::optional<std::string> check_saving_less(const TrainingGraph& training, const Recomputed& made,
                                             const Values<double>& expected, RandomState random);

// Draws arguments from the seed, runs the graph unfused, fuses it and checks the outcome: plainly, with what is
// computed again, and with what is saved as bits.
std::optional<std::string> check_fusion(const TrainingGraph& training, uint64_t seed);

}  // namespace millrace::random_programs
