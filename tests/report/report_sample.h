// The report's artefacts of a small program with made-up times, for tests. Keeps what the artefacts refer to.
#pragma once

#include <gtest/gtest.h>

#include "analysis/analyze.h"
#include "fusion/fuse.h"
#include "plan/random_plan.h"
#include "report/metrics.h"

namespace millrace {

class ReportSample {
 public:
  ReportSample() : made_(make_plan(kProgram, {})), fused_(fuse(made_.training)) {
    Result<Analysis> analysis = analyze(made_.training, 1 << 20);
    EXPECT_TRUE(analysis);
    if (analysis) analysis_ = std::move(*analysis);
  }

  StepPlan& plan() { return made_.plan; }
  Exploration& exploration() { return exploration_; }

  ReportArtefacts artefacts() const {
    return {made_.training,     fused_,       analysis_,  made_.candidates,
            made_.measurements, exploration_, made_.plan, "a folder",
            "program.py",       "made up",    0,          false};
  }

 private:
  static constexpr const char* kProgram =
      "B = 4\nI = 6\nU = 8\n\n"
      "def mlp(x: float32[B, I], w: float32[I, U], b: float32[U]):\n"
      "    return np.maximum(np.einsum(\"bi,iu->bu\", x, w) + b, 0)\n";

  MadePlan made_;
  FusedGraph fused_;
  Analysis analysis_;
  Exploration exploration_;
};

}  // namespace millrace
