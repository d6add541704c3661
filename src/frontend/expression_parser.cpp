#include "frontend/expression_parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace millrace {
namespace {

constexpr int kMaxDepth = 100;

Expression node(ExpressionKind kind, SourceLocation location) {
  Expression result;
  result.kind = kind;
  result.location = location;
  return result;
}

bool plain_decimal(std::string_view digits) { return digits.find_first_of(".eE") != std::string_view::npos; }

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

Expression ExpressionParser::tuple_expression() {
  Expression first = expression();
  if (broken() || !at_symbol(",")) return first;
  Expression tuple = node(ExpressionKind::tuple, first.location);
  adopt(tuple, std::move(first));
  while (!broken() && take_symbol(",")) {
    if (now().kind == TokenKind::newline || at_symbol("=") || at_symbol(")")) break;
    adopt(tuple, expression());
  }
  return tuple;
}

Expression ExpressionParser::expression() {
  if (++nesting_ > kMaxDepth) {
    report(now().location, concat("this expression is nested more than ", kMaxDepth, " deep"),
           "split it into statements");
  }
  Expression result = broken() ? Expression{} : comparison();
  --nesting_;
  if (!broken() &&
      (at_name("if") || at_name("and") || at_name("or") || at_name("in") || at_name("is") || at_name("not"))) {
    report(now().location, concat("'", now().text, "' is not supported"), "select between tensors with np.where");
  }
  return result;
}

Expression ExpressionParser::binary(std::string_view op, SourceLocation location, Expression left, Expression right) {
  Expression result = node(ExpressionKind::binary, location);
  result.text = std::string(op);
  adopt(result, std::move(left));
  if (!broken()) adopt(result, std::move(right));
  return result;
}

Expression ExpressionParser::comparison() {
  Expression left = sum();
  static constexpr std::array<std::string_view, 6> kComparisons = {"<", "<=", ">", ">=", "==", "!="};
  if (!broken() && now().kind == TokenKind::symbol &&
      std::find(kComparisons.begin(), kComparisons.end(), now().text) != kComparisons.end()) {
    const Token op = now();
    advance();
    left = binary(op.text, op.location, std::move(left), sum());
  }
  return left;
}

Expression ExpressionParser::sum() {
  Expression left = product();
  while (!broken() && (at_symbol("+") || at_symbol("-"))) {
    if (ahead().kind == TokenKind::symbol && ahead().text == "=") break;  // an update in place
    const Token op = now();
    advance();
    left = binary(op.text, op.location, std::move(left), product());
  }
  return left;
}

Expression ExpressionParser::product() {
  Expression left = unary();
  while (!broken() && (at_symbol("*") || at_symbol("/") || at_symbol("//") || at_symbol("@") || at_symbol("%"))) {
    if (ahead().kind == TokenKind::symbol && ahead().text == "=") break;
    const Token op = now();
    if (op.text == "@" || op.text == "%") {
      report(op.location, concat("'", op.text, "' is not supported"),
             op.text == "@" ? "write the product as np.einsum(\"ij,jk->ik\", a, b)" : kExpressions);
      break;
    }
    advance();
    left = binary(op.text, op.location, std::move(left), unary());
  }
  return left;
}

Expression ExpressionParser::unary() {
  if (at_symbol("-") || at_symbol("+")) {
    Expression result = node(ExpressionKind::unary, now().location);
    result.text = std::string(now().text);
    advance();
    if (++nesting_ > kMaxDepth) {
      report(now().location, concat("this expression is nested more than ", kMaxDepth, " deep"),
             "split it into statements");
    }
    if (!broken()) adopt(result, unary());
    --nesting_;
    return result;
  }
  Expression base = postfix();
  if (!broken() && at_symbol("**")) {
    const Token op = now();
    advance();
    if (++nesting_ > kMaxDepth) {
      report(now().location, concat("this expression is nested more than ", kMaxDepth, " deep"),
             "split it into statements");
    }
    if (!broken()) base = binary(op.text, op.location, std::move(base), unary());
    --nesting_;
  }
  return base;
}

Expression ExpressionParser::postfix() {
  Expression base = atom();
  while (!broken()) {
    if (at_symbol("(")) {
      base = call(std::move(base));
    } else if (at_symbol("[")) {
      base = index(std::move(base));
    } else if (at_symbol(".")) {
      report(now().location, "attributes of values are not supported", "write np.sum(x) for x.sum()");
    } else {
      break;
    }
  }
  return base;
}

Expression ExpressionParser::call(Expression callee) {
  Expression result = node(ExpressionKind::call, callee.location);
  if (callee.kind != ExpressionKind::name) {
    report(callee.location, "only named functions can be called", kExpressions);
    return result;
  }
  result.text = std::move(callee.text);
  result.prefix = std::move(callee.prefix);
  advance();
  while (!broken() && !at_symbol(")")) {
    std::string keyword;
    if (now().kind == TokenKind::name && ahead().kind == TokenKind::symbol && ahead().text == "=") {
      keyword = std::string(now().text);
      advance();
      advance();
    } else if (!result.keywords.empty() && !result.keywords.back().empty()) {
      report(now().location, "a positional argument follows a named one", "put positional arguments first");
    }
    adopt(result, expression());
    result.keywords.push_back(std::move(keyword));
    if (!take_symbol(",")) break;
  }
  if (!broken()) expect_symbol(")", "separate arguments with ',' and close the call with ')'");
  return result;
}

Expression ExpressionParser::index(Expression base) {
  Expression result = node(ExpressionKind::index, now().location);
  adopt(result, std::move(base));
  advance();
  while (!broken() && !at_symbol("]")) {
    if (at_symbol(":")) {
      Expression slice = node(ExpressionKind::slice, now().location);
      advance();
      if (!at_symbol(",") && !at_symbol("]")) {
        report(now().location, "only full slices are supported", "write x[:, None, ...]");
      }
      adopt(result, std::move(slice));
    } else {
      adopt(result, expression());
      if (!broken() && at_symbol(":")) {
        report(now().location, "only full slices are supported", "write x[:, None, ...]");
      }
    }
    if (!take_symbol(",")) break;
  }
  if (!broken()) expect_symbol("]", "close the brackets with ']'");
  return result;
}

Expression ExpressionParser::atom() {
  const Token token = now();
  switch (token.kind) {
    case TokenKind::number: advance(); return number(token);
    case TokenKind::string: {
      Expression result = node(ExpressionKind::string, token.location);
      result.text = std::string(token.text);
      advance();
      return result;
    }
    case TokenKind::name: return name();
    case TokenKind::symbol:
      if (token.text == "(") return parenthesized();
      if (token.text == "{") return dictionary();
      if (token.text == "...") {
        advance();
        return node(ExpressionKind::ellipsis, token.location);
      }
      [[fallthrough]];
    default: report(token.location, concat("expected an expression, found ", shown()), kExpressions); return {};
  }
}

Expression ExpressionParser::name() {
  Expression result = node(ExpressionKind::name, now().location);
  if (at_name("None") || at_name("True") || at_name("False")) {
    result.kind = at_name("None") ? ExpressionKind::none : ExpressionKind::boolean;
    result.number = at_name("True") ? 1 : 0;
    advance();
    return result;
  }
  if (is_reserved(now().text)) {
    report(now().location, concat("'", now().text, "' is not supported"), kExpressions);
    return result;
  }
  result.text = std::string(now().text);
  advance();
  while (at_symbol(".") && ahead().kind == TokenKind::name) {
    advance();
    result.prefix += (result.prefix.empty() ? "" : ".") + result.text;
    result.text = std::string(now().text);
    advance();
  }
  if (!result.prefix.empty() && result.text == "newaxis") result.kind = ExpressionKind::none;
  return result;
}

Expression ExpressionParser::parenthesized() {
  const SourceLocation location = now().location;
  advance();
  if (at_symbol(")")) {
    advance();
    return node(ExpressionKind::tuple, location);
  }
  Expression inner = tuple_expression();
  if (!broken()) expect_symbol(")", "close the bracket with ')'");
  return inner;
}

Expression ExpressionParser::dictionary() {
  Expression result = node(ExpressionKind::dict, now().location);
  advance();
  while (!broken() && !at_symbol("}")) {
    adopt(result, expression());
    if (!broken()) expect_symbol(":", "write {\"name\": value}");
    if (!broken()) adopt(result, expression());
    if (!take_symbol(",")) break;
  }
  if (!broken()) expect_symbol("}", "close the dictionary with '}'");
  return result;
}

Expression ExpressionParser::number(const Token& token) {
  Expression result = node(ExpressionKind::number, token.location);
  std::string digits(token.text);
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  const char* const end = digits.data() + digits.size();
  int64_t integer = 0;
  const auto whole = std::from_chars(digits.data(), end, integer);
  if (whole.ec == std::errc() && whole.ptr == end) {
    result.integer = integer;
    result.number = static_cast<double>(integer);
    return result;
  }
  const auto real = std::from_chars(digits.data(), end, result.number);
  if (real.ec != std::errc() || real.ptr != end || !std::isfinite(result.number) || !plain_decimal(digits)) {
    report(token.location, concat("'", token.text.substr(0, 40), "' is not a valid number"),
           "write a decimal number such as 64 or 1e-5, within double precision (integers within 64 bits)");
  }
  return result;
}

}  // namespace millrace
