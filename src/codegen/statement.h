// Statements of a generated kernel: the tree between a schedule and C++ text. Generators build lists of statements and
// order them; only print_statements knows syntax and indentation. Expressions are text over the prelude's functions.
// The namespace separates short names such as Block and Loop from those of other stages.
// Test: tests/codegen/statement_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace millrace::codegen {

struct Statement;
using Statements = std::vector<Statement>;

// type name = value; without a value: uninitialized. Array extents belong to the name.
struct Declare {
  std::string type;
  std::string name;
  std::string value = {};
};

struct Assign {
  std::string target;
  std::string value;
};

// An expression for its side effect, or any other text that ends with a semicolon.
struct Call {
  std::string text;
};

// target.load(pointer, offset): `target` is one of the prelude's types for elements or mask bits.
struct Load {
  std::string target;
  std::string pointer;
  std::string offset;
};

// mr::store<access>(pointer, offset, values): `access` is width, stride and alignment.
struct Store {
  std::string access;
  std::string pointer;
  std::string offset;
  std::string values;
};

// All threads of a block wait for each other; with a scope, those that share a row.
struct Barrier {
  std::string scope = {};  // template arguments of mr::group_barrier
};

// Whether a body is in braces. Without them it is exactly one statement.
enum class Braces { always, none };

struct If {
  std::string condition;
  Statements body;
  Braces braces = Braces::always;
};

enum class Unroll { compiler_decides, fully, partly, never };

// for (type counter = first; counter < end; counter += stride)
struct Loop {
  Unroll unroll = Unroll::compiler_decides;
  std::string counter;
  std::string end = {};
  Statements body;
  Braces braces = Braces::always;
  std::string first = "0";
  std::string stride = "1";
  std::string type = "int";
  std::string condition = {};  // replaces counter < end
};

struct Block {
  Statements body;
};

// const auto name = [&](parameters) { body };
struct Lambda {
  std::string name;
  std::string parameters;
  Statements body;
  std::string attributes = {};
};

struct Pragma {
  std::string text;
};

struct Statement {
  std::variant<Declare, Assign, Call, Load, Store, Barrier, If, Loop, Block, Lambda, Pragma> kind;
};

void append(Statements& to, Statements more);

// for (int counter = 0; counter < end; ++counter) target = value; fully unrolled.
Statement assign_each(const std::string& counter, int64_t end, const std::string& target, const std::string& value);

std::string print_statements(const Statements& statements, int depth);

}  // namespace millrace::codegen
