// The syntax tree of a program, before names are resolved. Tests: tests/error/, tests/frontend/.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "frontend/diagnostics.h"

namespace millrace {

enum class ExpressionKind {
  number,         // `number`, `integer` when written as one
  string,         // `text`
  name,           // `text`, dotted prefix in `prefix`
  none,           // None (and np.newaxis)
  boolean,        // True or False: `number` is 1 or 0
  ellipsis,       // ...
  slice,          // children: start, stop, step, each None when absent; a full slice, `:`, has no children
  call,           // `text` called with `children`, named `keywords` ("" for positional ones)
  index,          // children[0] indexed by the others
  attribute,      // children[0] . `text`
  unary,          // - + ~ or not (`text`) of children[0]
  binary,         // children[0] `text` children[1]; `text` may be "is", "is not", "and", "or"
  choice,         // children[0] if children[1] else children[2]
  tuple,          // children
  list,           // children
  comprehension,  // [children[0] for children[1] in children[2] if children[3]…]
  dict,           // children: key, value, key, value, …
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
  bool method = false;  // of a call: x.f(a), which is f(x, a)
  int depth = 1;        // of the tree under this node; bounded, so that walking it may recurse
};

// What a statement assigns to: a name, or several targets for the items of a tuple.
struct AssignmentTarget {
  std::string name;  // empty when it has parts
  SourceLocation location;
  std::vector<AssignmentTarget> parts;
};

enum class StatementKind {
  assign,     // targets = value: `a = b = value` has two targets, `(a, b) = value` one with two parts
  update,     // targets[0] `text`= value
  returns,    // return value
  loop,       // for targets[0] in value: body
  branch,     // if, elif, else: each `arm` of the body in order
  arm,        // if value: body; the value of `else` is True
  assertion,  // assert value
  append,     // children[0].append(children[1]) of `value`
};

struct Statement {
  StatementKind kind = StatementKind::assign;
  SourceLocation location;
  std::string text;
  std::vector<AssignmentTarget> targets;
  Expression value;
  std::vector<Statement> body;
};

struct Parameter {
  std::string name;
  SourceLocation location;
  std::optional<Expression> annotation;
  std::optional<Expression> fallback;  // its default value
  bool by_name = false;                // after a bare `*`: cannot be passed by position
};

struct Function {
  std::string name;
  SourceLocation location;
  std::vector<Parameter> parameters;
  std::vector<Statement> body;
};

struct Module {
  std::vector<Statement> statements;  // assignments and assertions
  std::vector<Function> functions;
  // Imported names and what they stand for: F and torch.nn.functional, pi and math.pi.
  std::map<std::string, std::string, std::less<>> imports;
};

}  // namespace millrace
