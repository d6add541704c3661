// The instructions of a kernel's members in execution order: loops over a row, and between them what runs once for each
// row. An instruction is in the first loop in which all its operands exist.
// Test: tests/codegen/cpu_kernel_test.cpp, cuda_kernel_test.cpp
#pragma once

#include <set>
#include <vector>

#include "candidates/candidates.h"
#include "codegen/recipe.h"

namespace millrace {

// Which of the partition's indices run inside a row; the others select the row.
struct RowShape {
  std::vector<bool> inner;  // one for each index of the partition's space
};

// What an instruction computes: an output, a row value or a temporary of a member.
struct NestValue {
  enum class Kind { output, row, temporary };
  Kind kind = Kind::output;
  int member = 0;
  int number = 0;

  auto operator<=>(const NestValue&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one
};

struct PlacedInstruction {
  int member = 0;
  Instruction instruction;
  bool across = false;  // a reduction across rows: it adds to a partial result
};

struct Segment {
  bool loop = false;         // over `indices`; else once for each row
  std::vector<int> indices;  // of the partition's space, in the order of the partition's loops
  std::vector<PlacedInstruction> instructions;
};

struct Schedule {
  std::vector<Segment> segments;
  std::vector<std::vector<int>> inner;    // for each member: its inner indices
  std::vector<std::vector<int>> reduced;  // for each member: the loops that it reduces over
  std::set<NestValue> once_a_row;         // values that a row has once
  std::set<NestValue> carried;            // values of points that a later loop uses
};

Schedule schedule_of(const Graph& graph, const Partition& partition, const RowShape& rows,
                     const std::vector<int>& loops);

// The operands of an expression, by token: "$0" is {'$', 0}.
std::vector<std::pair<char, int>> operands_in(const std::string& expression);

}  // namespace millrace
