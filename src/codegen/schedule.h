// The steps of a kernel's members in the order in which a row goes through them: loops over the row, and what is done
// once a row between them. A step stands in the first loop in which all that it needs is there.
#pragma once

#include <set>
#include <vector>

#include "candidates/candidates.h"
#include "codegen/recipe.h"

namespace millrace {

// How a nest is cut into rows: which of the partition's indices are inside a row.
struct RowShape {
  std::vector<bool> inner;  // one an index of the partition's space
};

// A number that a step makes: an output, a row's number or a temporary of a member.
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
  bool across = false;  // a reduction that crosses rows: it adds to a partial result
};

struct Segment {
  bool loop = false;         // over `indices`; else once a row
  std::vector<int> indices;  // of the partition's space, in the order of the partition's loops
  std::vector<PlacedInstruction> instructions;
};

struct Schedule {
  std::vector<Segment> segments;
  std::vector<std::vector<int>> inner;    // one a member: its inner indices
  std::vector<std::vector<int>> reduced;  // one a member: the indices that it reduces over and that are there
  std::set<NestValue> once_a_row;         // values that are one number a row
  std::set<NestValue> carried;            // values of a point that a later loop needs
};

Schedule schedule_of(const Graph& graph, const Partition& partition, const RowShape& rows,
                     const std::vector<int>& loops);

// The operands that an expression names, by token: "$0" is {'$', 0}.
std::vector<std::pair<char, int>> operands_in(const std::string& expression);

}  // namespace millrace
