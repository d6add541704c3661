#include "frontend/expression_parser.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "frontend/not_covered.h"

namespace millrace {
namespace {

constexpr int kMaxDepth = 100;

}  // namespace

void ExpressionParser::adopt(Expression& parent, Expression child) {
  parent.depth = std::max(parent.depth, child.depth + 1);
  if (parent.depth > kMaxDepth) {
    report(parent.location, concat("this expression is nested more than ", kMaxDepth, " deep"),
           "split it into statements");
    return;
  }
  if (parent.children.size() >= 2 * kMaxItems) {
    report(child.location, concat("this list has more than ", kMaxItems, " items"), "split it into statements");
    return;
  }
  parent.children.push_back(std::move(child));
}

void ExpressionParser::enter() {
  if (++nesting_ > kMaxDepth) {
    report(now().location, concat("this expression is nested more than ", kMaxDepth, " deep"),
           "split it into statements");
  }
}

Expression ExpressionParser::tuple_expression() {
  Expression first = expression();
  if (broken() || !at_symbol(",")) return first;
  Expression tuple;
  tuple.kind = ExpressionKind::tuple;
  tuple.location = first.location;
  adopt(tuple, std::move(first));
  while (!broken() && take_symbol(",")) {
    if (now().kind == TokenKind::newline || at_symbol("=") || at_symbol(")") || at_symbol(":")) break;
    adopt(tuple, expression());
  }
  return tuple;
}

// Targets are postfix expressions: `in` ends them, so it is not read as an operator.
Expression ExpressionParser::loop_target() {
  Expression first = postfix();
  if (broken() || !at_symbol(",")) return first;
  Expression tuple;
  tuple.kind = ExpressionKind::tuple;
  tuple.location = first.location;
  adopt(tuple, std::move(first));
  while (!broken() && take_symbol(",")) {
    if (at_name("in")) break;
    adopt(tuple, postfix());
  }
  return tuple;
}

AssignmentTarget ExpressionParser::target_of(const Expression& expression) {
  AssignmentTarget target;
  target.location = expression.location;
  if (expression.kind == ExpressionKind::name && expression.prefix.empty() && !is_reserved(expression.text)) {
    target.name = expression.text;
  } else if ((expression.kind == ExpressionKind::tuple || expression.kind == ExpressionKind::list) &&
             !expression.children.empty()) {
    for (const Expression& part : expression.children) target.parts.push_back(target_of(part));
  } else if (expression.kind == ExpressionKind::index) {
    report(expression.location, "only names can be assigned to",
           "write `name = …` or `a, b = …`; build x from its parts with np.where, np.stack or np.concatenate");
  } else {
    report(expression.location, "only names can be assigned to", "write `name = …` or `a, b = …`");
  }
  return target;
}

Expression ExpressionParser::expression() {
  enter();
  Expression result = broken() ? Expression{} : disjunction();
  if (!broken() && at_name("if")) {
    Expression choice;
    choice.kind = ExpressionKind::choice;
    choice.location = now().location;
    advance();
    adopt(choice, std::move(result));
    if (!broken()) adopt(choice, disjunction());
    if (!broken() && !at_name("else"))
      report(now().location, concat("expected 'else', found ", shown()), "write `a if condition else b`");
    if (!broken()) advance();
    if (!broken()) adopt(choice, expression());
    result = std::move(choice);
  }
  leave();
  return result;
}

Expression ExpressionParser::binary(std::string_view op, SourceLocation location, Expression left, Expression right) {
  Expression result;
  result.kind = ExpressionKind::binary;
  result.location = location;
  result.text = std::string(op);
  adopt(result, std::move(left));
  if (!broken()) adopt(result, std::move(right));
  return result;
}

Expression ExpressionParser::chain(std::initializer_list<std::string_view> operators, Level next) {
  Expression left = (this->*next)();
  const auto at_one = [&] {
    const bool may_be = now().kind == TokenKind::symbol || now().kind == TokenKind::name;
    return may_be && std::find(operators.begin(), operators.end(), now().text) != operators.end();
  };
  while (!broken() && at_one()) {
    const Token op = now();
    advance();
    left = binary(op.text, op.location, std::move(left), (this->*next)());
  }
  return left;
}

Expression ExpressionParser::negation() {
  if (!at_name("not")) return comparison();
  Expression result;
  result.kind = ExpressionKind::unary;
  result.location = now().location;
  result.text = "not";
  advance();
  enter();
  if (!broken()) adopt(result, negation());
  leave();
  return result;
}

// The comparison at this token, which may be of two words; empty if there is none.
std::string ExpressionParser::comparison_operator() {
  static constexpr auto kComparisons = std::to_array<std::string_view>({"<", "<=", ">", ">=", "==", "!="});
  if (now().kind == TokenKind::symbol &&
      std::find(kComparisons.begin(), kComparisons.end(), now().text) != kComparisons.end()) {
    return std::string(now().text);
  }
  if (at_name("is")) return ahead().kind == TokenKind::name && ahead().text == "not" ? "is not" : "is";
  if (at_name("in")) return "in";
  if (at_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") return "not in";
  return {};
}

Expression ExpressionParser::comparison() {
  Expression left = bit_or();
  const std::string op = broken() ? "" : comparison_operator();
  if (op.empty()) return left;
  const SourceLocation location = now().location;
  if (op == "in" || op == "not in") {
    report(location, concat("'", op, "' is not supported"),
           "compare with each item: (a == b) | (a == c) of tensors, `a == b or a == c` of numbers");
    return left;
  }
  advance();
  if (op == "is not") advance();
  left = binary(op, location, std::move(left), bit_or());
  if (!broken() && !comparison_operator().empty()) {
    report(now().location, "chained comparisons are not supported",
           "write (a < b) & (b < c), or `a < b and b < c` of numbers");
  }
  return left;
}

Expression ExpressionParser::unary() {
  if (at_symbol("-") || at_symbol("+") || at_symbol("~")) {
    Expression result;
    result.kind = ExpressionKind::unary;
    result.location = now().location;
    result.text = std::string(now().text);
    advance();
    enter();
    if (!broken()) adopt(result, unary());
    leave();
    return result;
  }
  Expression base = postfix();
  if (!broken() && at_symbol("**")) {
    const Token op = now();
    advance();
    enter();
    if (!broken()) base = binary(op.text, op.location, std::move(base), unary());
    leave();
  }
  return base;
}

}  // namespace millrace
