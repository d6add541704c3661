// An operator as instructions, which a kernel runs at each point or once for each row. All generators share them.
// Test: tests/codegen/cpu_kernel_test.cpp, cuda_kernel_test.cpp
//
// Expressions are C++ over the prelude's functions, with tokens in place of operands:
//   $k     the operator's input k           %k     the row value k, from an earlier reduction or row instruction
//   @k     the temporary k of this point    #      how many points the reduced indices have
//   VALUE  the operator's parameter         MASK   the dropout's mask at this point
//   INSIDEk  whether this point is in the region of input k of a join
//   CONDITION  whether causal_mask or embed_diagonal changes this point
//   POSITION   the position along the operator's first index, or the one that a scatter_add's ids select
//   GATHERED(x)  the element of a gather's table that the id x selects
//   SELECTED(x)  the id x inside the axis that it selects from
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
  row,      // %target = expression of row values
  map,      // output target = expression, at each point
  row_map,  // output target = expression, once for each row
};

struct Instruction {
  InstructionKind kind = InstructionKind::map;
  int target = 0;
  std::string expression;
};

std::vector<Instruction> recipe_of(const Operator& op);

bool is_reduction(InstructionKind kind);

}  // namespace millrace
