#include "driver/stages.h"

#include "autodiff/differentiate.h"
#include "autodiff/verify.h"
#include "base/file.h"
#include "base/text.h"
#include "frontend/frontend.h"
#include "fusion/fuse.h"
#include "fusion/predicates.h"
#include "fusion/row_statistics.h"
#include "fusion/verify.h"
#include "ir/verify.h"

namespace millrace {

Result<Graph> Stages::parse(const ProgramSource& program, const std::string& text) {
  const auto make = [&]() -> Result<Graph> {
    ProgramOptions options;
    options.file = program.path;
    options.entry = program.entry;
    options.sizes = program.sizes;
    if (!program.dtype.empty()) {
      options.dtype = dtype_named(program.dtype);
      if (!options.dtype || options.dtype == DType::boolean) {
        return Error::make(ErrorKind::bad_input, concat("--dtype ", program.dtype, ": no such type"),
                           "use float16, bfloat16, float32 or float64");
      }
    }
    return parse_program(text, options);
  };
  return run("parse", make, [](const Graph& graph) { return verify(graph); });
}

Result<TrainingGraph> Stages::train(const ProgramSource& program) {
  const Result<std::string> text = read_file(program.path, kProgramBytes);
  if (!text) return text.error();
  return train(program, *text);
}

Result<TrainingGraph> Stages::train(const ProgramSource& program, const std::string& text) {
  const Result<Graph> graph = parse(program, text);
  if (!graph) return graph.error();
  return run(
      "differentiate", [&] { return Result<TrainingGraph>(differentiate(*graph)); },
      [](const TrainingGraph& training) { return verify(training); });
}

Result<FusedGraph> Stages::fuse(const TrainingGraph& training) {
  return run(
      "fuse", [&] { return Result<FusedGraph>(millrace::fuse(training)); },
      [&](const FusedGraph& fused) { return verify(training, fused); });
}

Result<Recomputed> Stages::save_less(const TrainingGraph& training, bool on_gpu) {
  return run(
      "fuse",
      [&] {
        Recomputed made = save_predicates(training, on_gpu);
        return Result<Recomputed>(on_gpu ? add_row_statistics(std::move(made)) : std::move(made));
      },
      [](const Recomputed& made) {
        Result<Done> checked = verify(made.training);
        return checked ? verify(made.training, made.fused) : checked;
      });
}

}  // namespace millrace
