// Truths that are worked out before they are asked for, while others are measured: a GPU has nothing to do meanwhile,
// and of each truth some steps are a single core's. Test: tests/measure/truths_ahead_test.cpp
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <string>

#include "candidates/candidates.h"
#include "measure/truth.h"

namespace millrace {

// Of truths that are not taken yet.
struct AheadLimits {
  size_t count = 0;
  double bytes = 0;  // about

  // As many as this machine has cores for that one would leave idle, and a quarter of its memory.
  static AheadLimits of_machine();
};

class TruthsAhead {
 public:
  // The graph lives longer.
  TruthsAhead(const Graph& graph, uint64_t seed, const AheadLimits& limits)
      : graph_(&graph), seed_(seed), limits_(limits) {}

  // Begins one, by the part's text, unless it was begun or there is no room.
  void begin(const std::string& text, const Part& part);
  // What was begun, or is worked out now. Of a part that is too large for the reference the inputs alone.
  Result<Truth> take(const std::string& text, const Part& part);

 private:
  struct Coming {
    std::future<std::optional<Result<Truth>>> truth;  // nothing: there was no memory for it
    double bytes = 0;
  };

  const Graph* graph_;
  uint64_t seed_;
  AheadLimits limits_;
  std::map<std::string, Coming> coming_;
};

}  // namespace millrace
