// Parses expressions. Tests: tests/error/, tests/frontend/hostile_test.cpp.
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

 private:
  // Gives `parent` a child. Long chains nest too; the depth is limited so that recursion over them is safe.
  void adopt(Expression& parent, Expression child);

  Expression binary(std::string_view op, SourceLocation location, Expression left, Expression right);
  Expression comparison();
  Expression sum();
  Expression product();
  Expression unary();
  Expression postfix();
  Expression call(Expression callee);
  Expression index(Expression base);
  Expression atom();
  Expression name();
  Expression parenthesized();
  Expression dictionary();
  Expression number(const Token& token);

  int nesting_ = 0;
};

}  // namespace millrace
