#include "driver/pipeline.h"

#include "analysis/analyze.h"
#include "analysis/verify.h"
#include "autodiff/differentiate.h"
#include "autodiff/verify.h"
#include "base/text.h"
#include "candidates/verify.h"
#include "driver/file_kind.h"
#include "frontend/frontend.h"
#include "fusion/fuse.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "fusion/verify.h"
#include "ir/verify.h"
#include "measure/verify.h"
#include "plan/verify.h"
#include "select/verify.h"

namespace millrace {
namespace {

Result<Graph> parse_text(const ProgramSource& program, const std::string& text) {
  ProgramOptions options;
  options.file = program.path;
  options.entry = program.entry;
  options.sizes = program.sizes;
  options.warn = program.warn;
  if (!program.dtype.empty()) {
    options.dtype = dtype_named(program.dtype);
    if (!options.dtype || !is_floating(*options.dtype)) {
      return Error::make(ErrorKind::bad_input, concat("--dtype ", program.dtype, ": unknown type"),
                         "use float16, bfloat16, float32 or float64");
    }
  }
  return parse_program(text, options);
}

}  // namespace

Result<Graph> parse(Stages& stages, const ProgramSource& program, const std::string& text) {
  return stages.run(
      "parse", [&] { return parse_text(program, text); }, [](const Graph& graph) { return verify(graph); });
}

Result<TrainingGraph> differentiate(Stages& stages, const Graph& graph) {
  return stages.run(
      "differentiate", [&] { return Result<TrainingGraph>(differentiate(graph)); },
      [](const TrainingGraph& training) { return verify(training); });
}

Result<TrainingGraph> train(Stages& stages, const ProgramSource& program, const std::string& text) {
  const Result<Graph> graph = parse(stages, program, text);
  if (!graph) return graph.error();
  return differentiate(stages, *graph);
}

Result<TrainingGraph> train(Stages& stages, const ProgramSource& program) {
  const Result<std::string> text = read_program(program.path);
  if (!text) return text.error();
  return train(stages, program, *text);
}

Result<Analysis> analyze(Stages& stages, const TrainingGraph& training, int64_t fast_memory_bytes) {
  return stages.run(
      "analyze", [&] { return analyze(training, fast_memory_bytes); },
      [&](const Analysis& analysis) { return verify(training, analysis); });
}

Result<FusedGraph> fuse(Stages& stages, const TrainingGraph& training) {
  return stages.run(
      "fuse", [&] { return Result<FusedGraph>(fuse(training)); },
      [&](const FusedGraph& fused) { return verify(training, fused); });
}

Result<Recomputed> fuse_for_plan(Stages& stages, const TrainingGraph& training, const Target& target) {
  const auto make = [&] {
    Recomputed made = save_predicates(training, target.gemm_epilogues.replace_kernels);
    return Result<Recomputed>(target.fused_attention ? add_row_statistics(std::move(made)) : std::move(made));
  };
  return stages.run("fuse", make, [](const Recomputed& made) {
    Result<Done> checked = verify(made.training);
    return checked ? verify(made.training, made.fused) : checked;
  });
}

Result<Recomputed> leave_separate(Stages& stages, const TrainingGraph& training) {
  return stages.run(
      "fuse",
      [&] {
        return Result<Recomputed>(Recomputed{training, leave_separate(training)});
      },
      [](const Recomputed& made) { return verify(made.training, made.fused); });
}

Result<Candidates> find_partitions(Stages& stages, const TrainingGraph& training, const FusedGraph& fused,
                                   const EnumerateOptions& options) {
  return stages.run(
      "partitions", [&] { return find_partitions(training, fused, options); },
      [&](const Candidates& made) { return verify(training, made); });
}

Result<Candidates> enumerate(Stages& stages, const TrainingGraph& training, const FusedGraph& fused,
                             const EnumerateOptions& options) {
  return stages.run(
      "candidates", [&] { return enumerate(training, fused, options); },
      [&](const Candidates& made) { return verify(training, made); });
}

Result<Explored> measure(Stages& stages, const Graph& graph, const Candidates& candidates,
                         const ExploreSettings& settings, const KernelMaker* kernels, Database& database,
                         Worker& worker) {
  return stages.run(
      "measure", [&] { return explore(graph, candidates, settings, kernels, database, worker); },
      [](const Explored& explored) { return verify(explored.measurements); });
}

Result<Selection> select(Stages& stages, const Measurements& measurements, SelectMethod method,
                         const SelectLimits& limits) {
  return stages.run(
      "select", [&] { return select(measurements, method, limits); },
      [&](const Selection& selection) { return verify(measurements, selection); });
}

Result<StepPlan> build_plan(Stages& stages, const TrainingGraph& training, const Candidates& candidates,
                            const Measurements& measurements, const Selection& selection, const PlanOptions& options) {
  return stages.run(
      "plan", [&] { return build_plan(training, candidates, measurements, selection, options); },
      [&](const StepPlan& plan) { return verify(plan, training, candidates); });
}

}  // namespace millrace
