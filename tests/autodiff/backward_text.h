// Program text to the text of backward operators.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "autodiff/differentiate.h"
#include "autodiff/print.h"
#include "autodiff/verify.h"
#include "frontend/program_text.h"

namespace millrace {

inline TrainingGraph training_of(std::string_view text) {
  TrainingGraph training = differentiate(graph_of(text));
  const Result<Done> checked = verify(training);
  EXPECT_TRUE(checked) << to_string(checked.error());
  return training;
}

// The backward operators alone, one per line.
inline std::string backward_of(std::string_view text) {
  const Graph graph = training_of(text).graph;
  std::string lines;
  for (const Operator& op : graph.operators) {
    if (op.pass == Pass::backward) lines += print(graph, op) + "\n";
  }
  return lines;
}

// The printed gradients and kept tensors.
inline std::string decisions_of(std::string_view text) {
  const std::string all = print(training_of(text));
  return all.substr(all.find("gradient "));
}

}  // namespace millrace
