// The artefact of planning: a training step as launches over buffers, ready to be saved, loaded and run.
// Test: tests/plan/build_test.cpp
//
// What it means:
// - Launches run in order: first forward, then backward. Each names the buffers of its partition's tensors, reads and
//   then writes. A conversion reads and writes one tensor, in two layouts.
// - A buffer is one tensor in one layout. It belongs to the caller, who passes or receives it in that layout, or it is
//   in the arena. Two buffers in the arena share bytes only if no launch finds both alive.
// - The arena begins with saved_bytes of what forward saves for backward. Nothing else is there, and backward does not
//   change it. So several forwards may run before their backwards if each has its own saved memory, and backward may be
//   repeated. The rest is workspace, whose content is undefined between passes.
// - A regenerated mask has no buffer.
// - Launches that need scratch memory share one region at the end of the workspace.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace millrace {

inline constexpr int kNoBuffer = -1;
inline constexpr int64_t kArenaAlignment = 256;  // of buffers; stacked ones are contiguous

enum class BufferLocation { arena, argument, result, result_gradient, argument_gradient };

struct PlanBuffer {
  std::string tensor;  // its name in the graph
  std::string layout;  // as print_layout writes it
  int64_t bytes = 0;
  BufferLocation location = BufferLocation::arena;
  int position = -1;   // of a caller's buffer: its index among the graph's arguments or results
  int64_t offset = 0;  // in the arena
  int first = -1;      // the first launch that uses it; -1: none
  int last = -1;       // the last one
};

struct PlanLaunch {
  std::string partition;      // its name in the candidates; empty: a conversion
  std::string conversion_of;  // the converted tensor
  Pass pass = Pass::forward;
  std::string candidate;     // as print_candidate writes it
  std::vector<int> buffers;  // reads, then writes; kNoBuffer: a regenerated mask
  double predicted_seconds = 0;
  bool estimated = false;  // predicted by a model: the launch was never timed alone
  std::string function;    // of a generated kernel, in the shared object; empty: a library's product
};

enum class Fusing {
  fused,
  separate,  // every operator by itself: the program before optimization
};

// Everything needed to rebuild the same graph.
struct PlanProgram {
  std::string file;  // for messages
  std::string text;
  std::string entry;
  std::vector<std::string> sizes;
  std::string dtype;
  std::vector<std::pair<std::string, std::string>> layouts;  // of the caller's tensors, as in candidates/pins.h
  Fusing fusing = Fusing::fused;
};

// The shared object next to the plan. All fields are empty if no launch is a generated kernel.
struct PlanKernels {
  std::string file;
  std::string sha256;   // of the file
  std::string sources;  // the sha256 of the sources
  std::string machine;  // for which it was compiled
};

struct StepPlan {
  PlanProgram program;
  std::string version;  // of Millrace
  std::string device;   // as Backend::text writes it
  std::string date;     // UTC: 2026-11-15T05:00:00Z
  std::vector<PlanBuffer> buffers;
  std::vector<PlanLaunch> launches;
  int64_t saved_bytes = 0;  // at the start of the arena
  int64_t scratch_offset = 0;
  int64_t scratch_bytes = 0;
  int64_t arena_bytes = 0;  // including scratch
  int64_t sum_bytes = 0;    // of the arena's buffers without reuse
  double cost = 0;          // predicted seconds of a step: the sum of its launches
  double bound = 0;         // lower bound: every partition with its fastest candidate, in any layouts
  double default_cost = 0;  // measured seconds of a step before optimization; 0: unknown
  PlanKernels kernels;
};

// The first launch of backward; the number of launches if there is none.
int first_of_backward(const StepPlan& plan);

// The partition's name, or "conversion of x".
std::string name_of(const PlanLaunch& launch);

std::string_view name_of(BufferLocation location);

}  // namespace millrace
