// `millrace analyze`: program to printed analysis.
#include <string_view>

#include "autodiff/print.h"
#include "driver/pipeline.h"
#include "driver/warned_program.h"
#include "millrace/millrace.h"
#include "millrace/version.h"
#include "report/analysis_report.h"

namespace millrace {

Result<std::string> analyze_program(const AnalyzeOptions& options) {
  Stages stages(options.timings);
  WarnedProgram program(options.program);
  const Result<TrainingGraph> training = train(stages, program.source);
  if (!training) return training.error();
  if (options.format == Format::graph) return print(*training);
  const Result<Analysis> analysis = analyze(stages, *training, options.fast_memory_bytes);
  if (!analysis) return analysis.error();
  switch (options.format) {
    case Format::json: return analysis_json(*training, *analysis, *program.warnings);
    case Format::dot: return analysis_dot(*training, *analysis);
    default: return analysis_text(*training, *analysis, static_cast<size_t>(options.width));
  }
}

static_assert(std::string_view(MILLRACE_VERSION) == MILLRACE_VERSION_STRING,
              "CMakeLists.txt and millrace/version.h differ");

std::string version() { return MILLRACE_VERSION; }

}  // namespace millrace
