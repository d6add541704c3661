// `millrace fuse`: program to printed fused graph.
#include "fusion/fuse.h"

#include "candidates/attention_partitions.h"
#include "driver/pipeline.h"
#include "fusion/row_statistics.h"
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
  if (options.explain && options.format != Format::json) return pairs_text(*training, pairs);
  const Recomputed with_statistics = add_row_statistics({*training, *fused});
  const std::vector<AttentionAlternative> attentions =
      attention_alternatives(with_statistics.training, with_statistics.fused);
  if (options.format == Format::json) return fusion_json(*training, *fused, attentions, pairs);
  return fusion_text(*training, *fused, attentions, static_cast<size_t>(options.width));
}

}  // namespace millrace
