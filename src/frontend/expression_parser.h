// Parses expressions: operators by Python's precedence, and below them calls, indices and atoms (atom_parser.cpp).
// Tests: tests/error/, tests/frontend/syntax_test.cpp, hostile_test.cpp.
#pragma once

#include "frontend/syntax.h"
#include "frontend/token_cursor.h"

namespace millrace {

class ExpressionParser : public TokenCursor {
 public:
  using TokenCursor::TokenCursor;

 protected:
  Expression expression();

  // `a, b` without brackets.
  Expression tuple_expression();

  // `a` or `a, b` before `in`.
  Expression loop_target();

  // The names that an expression on the left of '=' assigns to; reports what cannot be assigned to.
  AssignmentTarget target_of(const Expression& expression);

 private:
  // Gives `parent` a child. Long chains nest too; the depth is limited so that recursion over them is safe.
  void adopt(Expression& parent, Expression child);
  // Counts a level of nested brackets or prefix operators; reports one too many.
  void enter();
  void leave() { --nesting_; }

  Expression binary(std::string_view op, SourceLocation location, Expression left, Expression right);
  // A chain of the operators, each applied to two expressions of the next level: left to right.
  using Level = Expression (ExpressionParser::*)();
  Expression chain(std::initializer_list<std::string_view> operators, Level next);
  Expression disjunction() { return chain({"or"}, &ExpressionParser::conjunction); }
  Expression conjunction() { return chain({"and"}, &ExpressionParser::negation); }
  Expression negation();
  Expression comparison();
  std::string comparison_operator();
  Expression bit_or() { return chain({"|"}, &ExpressionParser::bit_xor); }
  Expression bit_xor() { return chain({"^"}, &ExpressionParser::bit_and); }
  Expression bit_and() { return chain({"&"}, &ExpressionParser::sum); }
  Expression sum() { return chain({"+", "-"}, &ExpressionParser::product); }
  Expression product() { return chain({"*", "/", "//", "@", "%"}, &ExpressionParser::unary); }
  Expression unary();
  Expression postfix();
  Expression attribute(Expression base);
  Expression call(Expression callee);
  void arguments(Expression& call);
  Expression index(Expression base);
  Expression index_item();
  Expression atom();
  Expression string();
  Expression name();
  Expression parenthesized();
  Expression list();
  Expression comprehension(SourceLocation location, Expression item);
  Expression dictionary();
  Expression number(const Token& token);

  int nesting_ = 0;
};

}  // namespace millrace
