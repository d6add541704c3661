// In which caches trials on the CPU find their tensors: in the caches where a step finds them. Between two uses of a
// tensor, a step uses the program's other tensors. So a trial runs on copies of its tensors in turn, which together
// have as many bytes as the program's tensors. Test: tests/measure/cache_use_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace millrace {

struct CacheUse {
  bool cold = false;        // a step reads from memory: the program's tensors do not fit into the last-level cache
  int64_t cache_bytes = 0;  // size of that cache
  int64_t turn_bytes = 0;   // otherwise: of all copies together; 0: one copy, since the fastest caches hold the step
};

// Times of one candidate with different numbers of bytes differ, so these are rounded up to powers of two.
CacheUse cache_use(double program_bytes, int64_t last_level_cache);

// All tensors of a program together.
double bytes_of_tensors(const Graph& graph);

// How many copies of a candidate's tensors, of this many bytes each, a trial runs on in turn.
int64_t copies_in_turn(const CacheUse& caches, double bytes);

// The part of the device's text in the database: "from memory", "from cache", "from cache, 32 MiB in turn".
std::string print_cache_use(const CacheUse& caches);
// The texts of all programs on this machine.
std::vector<std::string> all_cache_uses(int64_t last_level_cache);

}  // namespace millrace
