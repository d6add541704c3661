// What an operator computes, as steps that a kernel takes at each point or once a row: what all generators share.
//
// Expressions are C++ over the prelude's functions, with tokens in place of operands:
//   $k     the operator's input k           %k     the row's number k, made by a reduce or row step before
//   @k     the temporary k of this point     #      how many points the reduced indices have
//   VALUE  the operator's parameter          MASK   the dropout's mask at this point
//   CONDITION  whether the point is one that causal_mask or embed_diagonal changes
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace millrace {

enum class InstructionKind {
  temporary,  // @target = expression, at each point
  sum,        // %target = Σ expression over the reduced indices
  maximum,    // %target = the largest
  minimum,
  row,      // %target = expression of row numbers
  map,      // output target = expression, at each point
  row_map,  // output target = expression, once a row
};

struct Instruction {
  InstructionKind kind = InstructionKind::map;
  int target = 0;
  std::string expression;
};

std::vector<Instruction> recipe_of(const Operator& op);

bool is_reduction(InstructionKind kind);

}  // namespace millrace
