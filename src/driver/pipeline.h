// Every stage, in order. Each function runs one stage through `Stages`, which names, times and verifies it; the
// commands call these, and no other code runs a stage. Test: tests/driver/pipeline_test.cpp
//
//   parse → differentiate → analyze
//                         → fuse → partitions → candidates → measure → select → plan
#pragma once

#include <string>

#include "analysis/analysis.h"
#include "autodiff/training_graph.h"
#include "base/target.h"
#include "candidates/enumerate.h"
#include "driver/stages.h"
#include "fusion/fused_graph.h"
#include "fusion/recompute.h"
#include "ir/graph.h"
#include "measure/explore.h"
#include "plan/build.h"
#include "select/select.h"

namespace millrace {

Result<Graph> parse(Stages& stages, const ProgramSource& program, const std::string& text);
Result<TrainingGraph> differentiate(Stages& stages, const Graph& graph);
// Both: text to training graph. The path in `program` is only for messages.
Result<TrainingGraph> train(Stages& stages, const ProgramSource& program, const std::string& text);
// The same from the program's file.
Result<TrainingGraph> train(Stages& stages, const ProgramSource& program);

Result<Analysis> analyze(Stages& stages, const TrainingGraph& training, int64_t fast_memory_bytes);

Result<FusedGraph> fuse(Stages& stages, const TrainingGraph& training);
// The same for a plan: also recomputes values and saves predicates as bits, and adds attentions' statistics for a
// target that fuses attention.
Result<Recomputed> fuse_for_plan(Stages& stages, const TrainingGraph& training, const Target& target);

// The same for the plan before optimization: every operator by itself, nothing recomputed.
Result<Recomputed> leave_separate(Stages& stages, const TrainingGraph& training);

// Partitions and their alternatives, without configs.
Result<Candidates> find_partitions(Stages& stages, const TrainingGraph& training, const FusedGraph& fused,
                                   const EnumerateOptions& options);
// Partitions, alternatives and all candidates.
Result<Candidates> enumerate(Stages& stages, const TrainingGraph& training, const FusedGraph& fused,
                             const EnumerateOptions& options);

Result<Explored> measure(Stages& stages, const Graph& graph, const Candidates& candidates,
                         const ExploreSettings& settings, const KernelMaker* kernels, Database& database,
                         Worker& worker);

Result<Selection> select(Stages& stages, const Measurements& measurements, SelectMethod method,
                         const SelectLimits& limits = {});

Result<StepPlan> build_plan(Stages& stages, const TrainingGraph& training, const Candidates& candidates,
                            const Measurements& measurements, const Selection& selection, const PlanOptions& options);

}  // namespace millrace
