// Program text to graph: the whole front end as one function. Tests: tests/frontend/.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "millrace/result.h"

namespace millrace {

// A longer text is not a layer; it is rejected before it is read.
inline constexpr int64_t kProgramBytes = int64_t{1} << 20;

struct ProgramOptions {
  std::string file = "program.py";                   // its name in messages
  std::string entry;                                 // the function to take; empty: the last one
  std::vector<std::string> sizes;                    // "tiny" or "J=128"; later ones override
  std::optional<DType> dtype;                        // overrides the type of every tensor
  std::function<void(const Diagnostic&)> warn = {};  // called with what the author should know
};

// The text is untrusted: for any bytes, the result is a graph or an error with its location.
Result<Graph> parse_program(std::string_view text, const ProgramOptions& options);

}  // namespace millrace
