// The syntax tree of a program, before names are resolved. Tests: tests/error/, tests/frontend/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/diagnostics.h"

namespace millrace {

enum class ExpressionKind {
  number,    // `number`, `integer` when written as one
  string,    // `text`
  name,      // `text`, dotted prefix in `prefix`
  none,      // None (and np.newaxis)
  boolean,   // True or False: `number` is 1 or 0
  ellipsis,  // ...
  slice,     // a full slice, `:`
  call,      // `text` called with `children`, named `keywords` ("" for positional ones)
  index,     // children[0] indexed by the others
  unary,     // - or + (`text`) of children[0]
  binary,    // children[0] `text` children[1]
  tuple,     // children
  dict,      // children: key, value, key, value, …
};

struct Expression {
  ExpressionKind kind = ExpressionKind::none;
  SourceLocation location;
  std::string text;
  std::string prefix;  // of a dotted name or call: `np` of `np.exp`
  double number = 0;
  std::optional<int64_t> integer;
  std::vector<std::string> keywords;
  std::vector<Expression> children;
  int depth = 1;  // of the tree under this node; bounded, so that walking it may recurse
};

// `a = b = value`, `a, b = value`: one target for each '=', each of one or more names.
struct Assignment {
  SourceLocation location;
  std::vector<std::vector<std::string>> targets;
  Expression value;
  bool returns = false;  // a `return value`, without targets
};

struct Parameter {
  std::string name;
  SourceLocation location;
  std::optional<Expression> annotation;
  std::optional<Expression> fallback;  // its default value
};

struct Function {
  std::string name;
  SourceLocation location;
  std::vector<Parameter> parameters;
  std::vector<Assignment> body;
};

struct Module {
  std::vector<Assignment> assignments;
  std::vector<Function> functions;
};

}  // namespace millrace
