// `millrace analyze`: program to printed analysis.
#include "analysis/analyze.h"

#include "autodiff/print.h"
#include "driver/stages.h"
#include "millrace/millrace.h"
#include "report/analysis_report.h"

namespace millrace {

Result<std::string> analyze_program(const AnalyzeOptions& options) {
  Stages stages(options.timings);
  const Result<TrainingGraph> training = stages.train(options.program);
  if (!training) return training.error();
  if (options.format == Format::graph) return print(*training);
  const auto unchecked = [](const Analysis&) { return Result<Done>(Done{}); };
  const Result<Analysis> analysis = stages.run(
      "analyze", [&] { return analyze(*training, options.fast_memory_bytes); }, unchecked);
  if (!analysis) return analysis.error();
  switch (options.format) {
    case Format::json: return analysis_json(*training, *analysis);
    case Format::dot: return analysis_dot(*training, *analysis);
    default: return analysis_text(*training, *analysis, static_cast<size_t>(options.width));
  }
}

std::string version() { return MILLRACE_VERSION; }

}  // namespace millrace
