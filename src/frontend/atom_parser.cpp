#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "frontend/expression_parser.h"
#include "frontend/not_covered.h"

namespace millrace {
namespace {

Expression node(ExpressionKind kind, SourceLocation location) {
  Expression result;
  result.kind = kind;
  result.location = location;
  return result;
}

bool plain_decimal(std::string_view digits) { return digits.find_first_of(".eE") != std::string_view::npos; }

}  // namespace

Expression ExpressionParser::postfix() {
  Expression base = atom();
  while (!broken()) {
    if (at_symbol("(")) {
      base = call(std::move(base));
    } else if (at_symbol("[")) {
      base = index(std::move(base));
    } else if (at_symbol(".")) {
      base = attribute(std::move(base));
    } else {
      break;
    }
  }
  return base;
}

Expression ExpressionParser::attribute(Expression base) {
  Expression result = node(ExpressionKind::attribute, base.location);
  adopt(result, std::move(base));
  advance();
  result.text = expect_name("write x.shape, x.T or a method such as x.sum(axis=0)");
  return result;
}

Expression ExpressionParser::call(Expression callee) {
  Expression result = node(ExpressionKind::call, callee.location);
  if (callee.kind == ExpressionKind::attribute) {
    result.text = std::move(callee.text);
    result.method = true;
    adopt(result, std::move(callee.children[0]));
    result.keywords.emplace_back();
  } else if (callee.kind == ExpressionKind::name) {
    result.text = std::move(callee.text);
    result.prefix = std::move(callee.prefix);
  } else {
    report(callee.location, "only named functions can be called", kExpressions);
    return result;
  }
  advance();
  arguments(result);
  if (!broken()) expect_symbol(")", "separate arguments with ',' and close the call with ')'");
  return result;
}

void ExpressionParser::arguments(Expression& call) {
  const size_t first = call.children.size();
  while (!broken() && !at_symbol(")")) {
    std::string keyword;
    if (at_symbol("*") || at_symbol("**")) {
      report(now().location, "arguments cannot be unpacked here", "write each argument: f(xs[0], xs[1])");
    } else if (now().kind == TokenKind::name && ahead().kind == TokenKind::symbol && ahead().text == "=") {
      keyword = std::string(now().text);
      advance();
      advance();
    } else if (!call.keywords.empty() && !call.keywords.back().empty()) {
      report(now().location, "a positional argument follows a named one", "put positional arguments first");
    }
    const SourceLocation location = now().location;
    Expression value = expression();
    if (!broken() && at_name("for")) {
      if (!keyword.empty() || call.children.size() > first)
        report(now().location, "a comprehension among other arguments needs brackets", "write f([x for x in xs], y)");
      value = comprehension(location, std::move(value));
    }
    if (!broken()) adopt(call, std::move(value));
    call.keywords.push_back(std::move(keyword));
    if (!take_symbol(",")) break;
  }
}

Expression ExpressionParser::index(Expression base) {
  Expression result = node(ExpressionKind::index, now().location);
  adopt(result, std::move(base));
  advance();
  if (at_symbol("]")) report(now().location, "this index is empty", "write x[:, None, ...]");
  while (!broken() && !at_symbol("]")) {
    adopt(result, index_item());
    if (!take_symbol(",")) break;
  }
  if (!broken()) expect_symbol("]", "close the brackets with ']'");
  return result;
}

// An index, or a slice `start:stop:step` of which any may be absent.
Expression ExpressionParser::index_item() {
  const SourceLocation location = now().location;
  Expression first = node(ExpressionKind::none, location);
  if (!at_symbol(":")) first = expression();
  if (broken() || !at_symbol(":")) return first;
  Expression slice = node(ExpressionKind::slice, location);
  adopt(slice, std::move(first));
  while (!broken() && slice.children.size() < 3 && take_symbol(":")) {
    const bool absent = at_symbol(":") || at_symbol(",") || at_symbol("]");
    adopt(slice, absent ? node(ExpressionKind::none, now().location) : expression());
  }
  const bool full = std::all_of(slice.children.begin(), slice.children.end(),
                                [](const Expression& bound) { return bound.kind == ExpressionKind::none; });
  if (full) slice.children.clear();
  while (!full && slice.children.size() < 3) slice.children.push_back(node(ExpressionKind::none, location));
  return slice;
}

Expression ExpressionParser::atom() {
  const Token token = now();
  switch (token.kind) {
    case TokenKind::number: advance(); return number(token);
    case TokenKind::string: return string();
    case TokenKind::name: return name();
    case TokenKind::symbol:
      if (token.text == "(") return parenthesized();
      if (token.text == "[") return list();
      if (token.text == "{") return dictionary();
      if (token.text == "...") {
        advance();
        return node(ExpressionKind::ellipsis, token.location);
      }
      if (token.text == "*") {
        report(token.location, "starred names are not supported",
               "name each item, or take a slice: `a, b = xs[0], xs[1:]`");
        return {};
      }
      [[fallthrough]];
    default: report(token.location, concat("expected an expression, found ", shown()), kExpressions); return {};
  }
}

// Adjacent strings are one string.
Expression ExpressionParser::string() {
  Expression result = node(ExpressionKind::string, now().location);
  while (now().kind == TokenKind::string) {
    result.text += now().text;
    advance();
  }
  return result;
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
    const NotCovered unknown = not_covered_word(now().text);
    report(now().location, unknown.message, unknown.remedy);
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
  if (!broken() && at_name("for"))
    report(now().location, "generators are not supported", "write a list: [f(x) for x in xs]");
  if (!broken()) expect_symbol(")", "close the bracket with ')'");
  return inner;
}

Expression ExpressionParser::list() {
  Expression result = node(ExpressionKind::list, now().location);
  enter();
  advance();
  while (!broken() && !at_symbol("]")) {
    Expression item = expression();
    if (!broken() && at_name("for") && result.children.empty()) {
      result = comprehension(result.location, std::move(item));
      break;
    }
    if (!broken()) adopt(result, std::move(item));
    if (!take_symbol(",")) break;
  }
  leave();
  if (!broken()) expect_symbol("]", "close the list with ']'");
  return result;
}

Expression ExpressionParser::comprehension(SourceLocation location, Expression item) {
  Expression result = node(ExpressionKind::comprehension, location);
  adopt(result, std::move(item));
  advance();
  Expression target = loop_target();
  if (!broken()) target_of(target);
  if (!broken()) adopt(result, std::move(target));
  if (!broken() && !at_name("in"))
    report(now().location, concat("expected 'in', found ", shown()), "write [f(x) for x in xs]");
  if (!broken()) advance();
  if (!broken()) adopt(result, disjunction());
  while (!broken() && at_name("if")) {
    advance();
    adopt(result, disjunction());
  }
  if (!broken() && at_name("for"))
    report(now().location, "a list has one 'for'", "nest the lists: [[f(a, b) for b in ys] for a in xs]");
  return result;
}

Expression ExpressionParser::dictionary() {
  Expression result = node(ExpressionKind::dict, now().location);
  advance();
  while (!broken() && !at_symbol("}")) {
    adopt(result, expression());
    if (!broken() && at_name("for")) break;
    if (!broken()) expect_symbol(":", "write {\"name\": value}");
    if (!broken()) adopt(result, expression());
    if (!take_symbol(",")) break;
  }
  if (!broken() && at_name("for"))
    report(now().location, "comprehensions of dictionaries and sets are not supported",
           "write a list: [f(x) for x in xs]");
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
