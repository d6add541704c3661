// Program text to graph text, for tests of the front end and of later stages.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "frontend/frontend.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace millrace {

inline Graph graph_of(std::string_view text, const ProgramOptions& options = {}) {
  Result<Graph> graph = parse_program(text, options);
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  const Result<Done> checked = verify(*graph);
  EXPECT_TRUE(checked) << to_string(checked.error());
  return std::move(*graph);
}

// The whole graph.
inline std::string printed(std::string_view text, const ProgramOptions& options = {}) {
  return print(graph_of(text, options));
}

// Its operators alone, one per line.
inline std::string operators_of(std::string_view text, const ProgramOptions& options = {}) {
  const Graph graph = graph_of(text, options);
  std::string lines;
  for (const Operator& op : graph.operators) lines += print(graph, op) + "\n";
  return lines;
}

inline std::string names_of_operators(const Graph& graph) {
  std::vector<std::string> names;
  for (const Operator& op : graph.operators) names.push_back(op.name);
  return join(names, ", ");
}

inline ProgramOptions with_sizes(std::vector<std::string> sizes) {
  ProgramOptions options;
  options.sizes = std::move(sizes);
  return options;
}

// The error message for a program; empty if it is valid.
inline std::string error_of(std::string_view text, const ProgramOptions& options = {}) {
  const Result<Graph> graph = parse_program(text, options);
  return graph ? "" : to_string(graph.error());
}

}  // namespace millrace
