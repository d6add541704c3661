// The artefact of planning: a training step as launches over buffers, ready to be written down, loaded and run.
//
// What it means:
// - Launches run in their order: first those of forward, then those of backward. Each names the buffers of its
// partition's
//   tensors, reads and then writes. A conversion reads and writes one tensor, in two layouts.
// - A buffer is one tensor in one layout. It is the caller's, who gives or gets it in that layout, or it lies in the
//   arena; two in the arena share bytes only when no launch finds both alive.
// - The arena begins with saved_bytes of what forward leaves for backward; nothing else is there, and backward changes
//   nothing of it. So whoever runs several forwards before their backwards keeps one saved part for each, and backward
//   may be repeated. The rest is workspace, which means nothing between two passes.
// - A mask that is drawn again is in no buffer.
// - Launches that need scratch share one region at the end of the workspace.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace millrace {

inline constexpr int kNoBuffer = -1;
inline constexpr int64_t kArenaAlignment = 256;  // of buffers; stacked ones lie one behind the other without gaps

enum class BufferLocation { arena, argument, result, result_gradient, argument_gradient };

struct PlanBuffer {
  std::string tensor;  // its name in the graph
  std::string layout;  // as print_layout writes it
  int64_t bytes = 0;
  BufferLocation location = BufferLocation::arena;
  int position = -1;   // the caller's: among the graph's arguments or results
  int64_t offset = 0;  // in the arena
  int first = -1;      // launches that touch it; -1: none does
  int last = -1;
};

struct PlanLaunch {
  std::string partition;      // of the candidates; empty: a conversion
  std::string conversion_of;  // the tensor
  Pass pass = Pass::forward;
  std::string candidate;     // as print_candidate writes it
  std::vector<int> buffers;  // reads, then writes; kNoBuffer: a mask that is drawn
  double predicted_seconds = 0;
  std::string function;  // a generated kernel's in the shared object; empty: a library's product
};

// All that it takes to make the same graph again.
struct PlanProgram {
  std::string file;  // for messages
  std::string text;
  std::string entry;
  std::vector<std::string> sizes;
  std::string dtype;
  std::vector<std::pair<std::string, std::string>> layouts;  // the caller's, as candidates/pins.h says
};

// The shared object beside the plan. All empty where no launch is a generated kernel.
struct PlanKernels {
  std::string file;
  std::string sha256;   // of the file
  std::string sources;  // the sha256 of what it was compiled from
  std::string machine;  // that it was compiled for
};

struct StepPlan {
  PlanProgram program;
  std::string version;  // of Millrace
  std::string device;   // in words
  std::string date;     // UTC: 2026-11-15T05:00:00Z
  std::vector<PlanBuffer> buffers;
  std::vector<PlanLaunch> launches;
  int64_t saved_bytes = 0;  // the arena's beginning
  int64_t scratch_offset = 0;
  int64_t scratch_bytes = 0;
  int64_t arena_bytes = 0;  // scratch and all
  int64_t sum_bytes = 0;    // what the arena's buffers would take without sharing
  double cost = 0;          // seconds of a step, as predicted
  double bound = 0;         // if every partition could take its fastest way
  double default_cost = 0;  // with nothing fused, everything as the program writes it; 0: not known
  PlanKernels kernels;
};

// The first launch of backward; their number where there is none.
int first_of_backward(const StepPlan& plan);

// "conversion of x", or the partition's name.
std::string name_of(const PlanLaunch& launch);

std::string_view name_of(BufferLocation location);

}  // namespace millrace
