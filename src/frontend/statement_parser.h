// Parses the statements of functions: assignments, loops, branches, assertions and returns.
// Tests: tests/error/function_statements.py, tests/frontend/syntax_test.cpp.
#pragma once

#include <vector>

#include "frontend/expression_parser.h"

namespace millrace {

class StatementParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

 protected:
  // The statements after a ':', on the same line or indented below it. `empty` reports that there are none.
  template <class Empty>
  std::vector<Statement> block(Empty empty) {
    std::vector<Statement> statements;
    if (now().kind != TokenKind::newline) {
      one_line(statements);
    } else {
      advance();
      if (now().kind != TokenKind::indent) {
        empty();
      } else {
        indented(statements);
      }
    }
    return statements;
  }

  // An assignment, update or call of append. `remedy` says what may be written where an assignment is missing.
  Statement assignment(std::string_view remedy);
  Statement assertion();

 private:
  void one_line(std::vector<Statement>& statements);
  void indented(std::vector<Statement>& statements);
  void statement(std::vector<Statement>& statements);
  void simple_statement(std::vector<Statement>& statements);
  std::vector<Statement> inner_block(std::string_view word);
  Statement loop();
  Statement branch();
  Statement arm(bool has_condition);
  Statement returned();
  bool at_update() const;
  void update(Statement& statement, const Expression& left);
  bool append(Statement& statement, Expression& left);
};

}  // namespace millrace
