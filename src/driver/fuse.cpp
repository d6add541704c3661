// `millrace fuse`: program to printed fused graph.
#include "fusion/fuse.h"

#include "driver/pipeline.h"
#include "millrace/millrace.h"
#include "report/fusion_report.h"

namespace millrace {

Result<std::string> fuse_program(const FuseOptions& options) {
  Stages stages(options.timings);
  const Result<TrainingGraph> training = train(stages, options.program);
  if (!training) return training.error();
  const Result<FusedGraph> fused = fuse(stages, *training);
  if (!fused) return fused.error();
  const std::vector<PairExplanation> pairs =
      options.explain ? explain(*training, *fused) : std::vector<PairExplanation>();
  if (options.format == Format::json) return fusion_json(*training, *fused, pairs);
  return options.explain ? pairs_text(*training, pairs)
                         : fusion_text(*training, *fused, static_cast<size_t>(options.width));
}

}  // namespace millrace
