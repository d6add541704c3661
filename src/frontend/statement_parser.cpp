#include "frontend/statement_parser.h"

#include "base/text.h"
#include "frontend/not_covered.h"

namespace millrace {
namespace {

constexpr std::string_view kStatements =
    "a function's body has assignments, loops over static ranges, static branches and a return";

}  // namespace

void StatementParser::one_line(std::vector<Statement>& statements) {
  do {
    simple_statement(statements);
  } while (!broken() && after_semicolon() && now().kind != TokenKind::end);
}

void StatementParser::indented(std::vector<Statement>& statements) {
  advance();
  while (now().kind != TokenKind::dedent && now().kind != TokenKind::end && !has_too_many_errors()) {
    begin_statement();
    statement(statements);
    if (broken()) skip_statement();
  }
  begin_statement();
  if (now().kind == TokenKind::dedent) advance();
}

void StatementParser::statement(std::vector<Statement>& statements) {
  if (at_name("for") || at_name("if")) {
    Statement compound = at_name("for") ? loop() : branch();
    if (!broken()) statements.push_back(std::move(compound));
  } else {
    simple_statement(statements);
  }
}

void StatementParser::simple_statement(std::vector<Statement>& statements) {
  const auto keep = [&](Statement parsed) {
    if (!broken()) statements.push_back(std::move(parsed));
  };
  if (now().kind == TokenKind::newline) {
    advance();
  } else if (now().kind == TokenKind::string || at_name("pass")) {
    advance();  // a docstring
    expect_end_of_line();
  } else if (at_name("return")) {
    keep(returned());
  } else if (at_name("assert")) {
    keep(assertion());
  } else if (at_symbol("(") || at_symbol("[") || at_symbol("*") ||
             (now().kind == TokenKind::name && !is_reserved(now().text))) {
    keep(assignment(kStatements));
  } else if (now().kind == TokenKind::name && is_not_covered_word(now().text)) {
    const NotCovered unknown = not_covered_word(now().text);
    report(now().location, unknown.message, unknown.remedy);
  } else {
    report(now().location, concat(shown(), " is not allowed here"), kStatements);
  }
}

std::vector<Statement> StatementParser::inner_block(std::string_view word) {
  const SourceLocation location = now().location;
  if (!broken()) expect_symbol(":", concat("end the line of the '", word, "' with ':'"));
  if (broken()) return {};
  return block([&] { report(location, concat("this '", word, "' has no statements"), "indent its statements"); });
}

Statement StatementParser::loop() {
  Statement result;
  result.kind = StatementKind::loop;
  result.location = now().location;
  advance();
  const Expression target = loop_target();
  if (!broken()) result.targets.push_back(target_of(target));
  if (!broken() && !at_name("in"))
    report(now().location, concat("expected 'in', found ", shown()), "write `for k in range(4):`");
  if (!broken()) advance();
  if (!broken()) result.value = tuple_expression();
  result.body = inner_block("for");
  if (!broken() && at_name("else"))
    report(now().location, "'else' after a loop is not supported", "write its statements after the loop");
  return result;
}

Statement StatementParser::branch() {
  Statement result;
  result.kind = StatementKind::branch;
  result.location = now().location;
  result.body.push_back(arm(true));
  while (!broken() && at_name("elif")) result.body.push_back(arm(true));
  if (!broken() && at_name("else")) result.body.push_back(arm(false));
  return result;
}

Statement StatementParser::arm(bool has_condition) {
  Statement result;
  result.kind = StatementKind::arm;
  result.location = now().location;
  const std::string word(now().text);
  advance();
  if (has_condition) {
    result.value = expression();
  } else {
    result.value.kind = ExpressionKind::boolean;
    result.value.number = 1;
  }
  result.body = inner_block(word);
  return result;
}

Statement StatementParser::returned() {
  Statement result;
  result.kind = StatementKind::returns;
  result.location = now().location;
  advance();
  if (now().kind == TokenKind::newline || now().kind == TokenKind::end) {
    report(result.location, "this return has no value", "write `return x` or `return x, y`");
    return result;
  }
  result.value = tuple_expression();
  expect_end_of_line();
  return result;
}

Statement StatementParser::assertion() {
  Statement result;
  result.kind = StatementKind::assertion;
  result.location = now().location;
  advance();
  result.value = expression();
  if (!broken() && take_symbol(",")) expression();  // its message
  expect_end_of_line();
  return result;
}

Statement StatementParser::assignment(std::string_view remedy) {
  Statement result;
  result.location = now().location;
  while (!broken()) {
    const SourceLocation location = now().location;
    Expression left = tuple_expression();
    if (broken()) break;
    if (at_symbol(":") && result.targets.empty() && left.kind == ExpressionKind::name) {
      advance();
      expression();  // a local's annotation adds nothing to its value
      if (!broken() && !at_symbol("=")) expect_symbol("=", "write `name: type = value`");
      if (broken()) break;
    }
    if (at_symbol("=")) {
      advance();
      result.targets.push_back(target_of(left));
    } else if (!result.targets.empty()) {
      result.value = std::move(left);
      break;
    } else if (at_update()) {
      update(result, left);
      break;
    } else if (append(result, left)) {
      break;
    } else if (left.kind == ExpressionKind::call && is_not_covered_function(left.prefix, left.text)) {
      const NotCovered unknown = not_covered_function(left.prefix, left.text);
      report(location, unknown.message, unknown.remedy);
    } else {
      report(location, "this statement assigns nothing", remedy);
    }
  }
  expect_end_of_line();
  return result;
}

bool StatementParser::at_update() const {
  static constexpr std::string_view kUpdates = "+-*/%@&|^<>";
  return now().kind == TokenKind::symbol && now().text.size() > 1 && now().text.back() == '=' &&
         kUpdates.find(now().text.front()) != std::string_view::npos && now().text != "<=" && now().text != ">=";
}

void StatementParser::update(Statement& statement, const Expression& left) {
  statement.kind = StatementKind::update;
  statement.location = now().location;
  statement.text = std::string(now().text.substr(0, now().text.size() - 1));
  if (left.kind != ExpressionKind::name || !left.prefix.empty()) {
    report(now().location, "in-place updates are not supported", "write `x = x + y`");
    return;
  }
  statement.targets.push_back(target_of(left));
  advance();
  statement.value = tuple_expression();
}

// Whether `left` is `name.append(value)`.
bool StatementParser::append(Statement& statement, Expression& left) {
  const bool fits = left.kind == ExpressionKind::call && left.text == "append" && !left.prefix.empty() &&
                    left.prefix.find('.') == std::string::npos && left.children.size() == 1 && left.keywords[0].empty();
  if (!fits) return false;
  statement.kind = StatementKind::append;
  statement.targets.push_back({left.prefix, left.location, {}});
  Expression value = std::move(left.children[0]);
  statement.value = std::move(value);
  return true;
}

}  // namespace millrace
