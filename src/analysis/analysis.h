// The artefact of analysis: flop, words and class of every operator of a training graph, and their totals.
// Tests: tests/analysis/.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace millrace {

struct OperatorAnalysis {
  OperatorId op;
  OperatorClass operator_class = OperatorClass::elementwise;
  int64_t flop = 0;
  int64_t input_words = 0;  // each tensor counts once
  int64_t output_words = 0;
  int64_t io_lower_bound = 0;  // words that any implementation must move: Q of the paper's MUE

  int64_t words() const { return input_words + output_words; }
  double flop_per_word() const { return words() == 0 ? 0 : static_cast<double>(flop) / static_cast<double>(words()); }
};

struct Totals {
  int64_t operators = 0;
  int64_t flop = 0;
  int64_t input_words = 0;
  int64_t output_words = 0;
  int64_t io_lower_bound = 0;

  int64_t words() const { return input_words + output_words; }
};

struct Analysis {
  std::vector<OperatorAnalysis> operators;  // in the graph's order
  std::array<Totals, 3> by_class;           // indexed by OperatorClass
  std::array<Totals, 2> by_pass;            // indexed by Pass
  Totals total;
  int64_t saved_words = 0;        // written by forward for backward
  int64_t fast_memory_words = 0;  // the S of the lower bound
};

}  // namespace millrace
