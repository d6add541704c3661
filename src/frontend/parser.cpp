#include "frontend/parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace millrace {
namespace {

constexpr int kMaxDepth = 100;
constexpr size_t kMaxItems = 4096;  // of one call, tuple, dictionary or parameter list

constexpr std::string_view kStatements = "a function's body has assignments and a return";
constexpr std::string_view kModule = "a module has imports, sizes (`P = W = 64`), SIZES and functions";
constexpr std::string_view kExpressions =
    "use + - * /, ** with a constant, comparisons in np.where, x[:, None, ...] and the named functions";

// After an error, `broken_` is set until the next statement; every loop tests it.
class Parser {
 public:
  Parser(const std::vector<Token>& tokens, Diagnostics& diagnostics) : tokens_(tokens), diagnostics_(diagnostics) {}

  Module run() {
    while (now().kind != TokenKind::end && !diagnostics_.full()) {
      broken_ = false;
      module_statement();
      if (broken_) skip_statement();
    }
    return std::move(module_);
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool at_symbol(std::string_view text) const { return now().kind == TokenKind::symbol && now().text == text; }
  bool at_name(std::string_view text) const { return now().kind == TokenKind::name && now().text == text; }
  void advance() {
    if (now().kind != TokenKind::end) ++at_;
  }

  void report(SourceLocation location, std::string_view message, std::string_view remedy) {
    if (!broken_) diagnostics_.report(location, message, remedy);
    broken_ = true;
  }

  std::string shown() const {
    switch (now().kind) {
      case TokenKind::end: return "the end of the text";
      case TokenKind::newline: return "the end of the line";
      case TokenKind::indent: return "an indented line";
      case TokenKind::dedent: return "the end of the indented lines";
      default: return concat("'", now().text.substr(0, 40), "'");
    }
  }

  bool take_symbol(std::string_view text) {
    if (!at_symbol(text)) return false;
    advance();
    return true;
  }

  void expect_symbol(std::string_view text, std::string_view remedy) {
    if (!take_symbol(text)) report(now().location, concat("expected '", text, "', found ", shown()), remedy);
  }

  std::string expect_name(std::string_view remedy) {
    if (now().kind != TokenKind::name) {
      report(now().location, concat("expected a name, found ", shown()), remedy);
      return {};
    }
    std::string name(now().text);
    advance();
    return name;
  }

  void expect_end_of_line() {
    if (broken_) return;
    if (now().kind == TokenKind::newline) {
      advance();
    } else if (now().kind != TokenKind::end && now().kind != TokenKind::dedent) {
      report(now().location, concat("expected the end of the statement, found ", shown()), kExpressions);
    }
  }

  // Skips to the end of the line, and over an indented block below it.
  void skip_statement() {
    while (now().kind != TokenKind::newline && now().kind != TokenKind::end && now().kind != TokenKind::dedent)
      advance();
    while (now().kind == TokenKind::newline) advance();
    if (now().kind != TokenKind::indent) return;
    int levels = 0;
    do {
      if (now().kind == TokenKind::indent) ++levels;
      if (now().kind == TokenKind::dedent) --levels;
      advance();
    } while (levels > 0 && now().kind != TokenKind::end);
  }

  void module_statement() {
    if (now().kind == TokenKind::newline || now().kind == TokenKind::dedent) {
      advance();
    } else if (now().kind == TokenKind::string) {
      advance();  // a docstring
      expect_end_of_line();
    } else if (at_name("import") || at_name("from")) {
      // Imports are ignored: names are resolved by their last component.
      while (now().kind != TokenKind::newline && now().kind != TokenKind::end) advance();
      expect_end_of_line();
    } else if (at_symbol("@")) {
      advance();
      expression();
      expect_end_of_line();
      if (!broken_ && !at_name("def") && !at_symbol("@")) {
        report(now().location, concat("expected a function after the decorator, found ", shown()), kModule);
      }
    } else if (at_name("def")) {
      function();
    } else if (now().kind == TokenKind::name && !is_reserved(now().text)) {
      module_.assignments.push_back(assignment());
      if (broken_) module_.assignments.pop_back();
    } else {
      report(now().location, concat(shown(), " is not allowed here"), kModule);
    }
  }

  static bool is_reserved(std::string_view word) {
    static constexpr auto kReserved = std::to_array<std::string_view>(
        {"and",    "as",     "assert", "async",  "await",   "break",    "class", "continue", "def",
         "del",    "elif",   "else",   "except", "finally", "for",      "from",  "global",   "if",
         "import", "in",     "is",     "lambda", "None",    "nonlocal", "not",   "or",       "pass",
         "raise",  "return", "try",    "True",   "False",   "while",    "with",  "yield"});
    return std::find(kReserved.begin(), kReserved.end(), word) != kReserved.end();
  }

  void function() {
    Function function;
    advance();
    function.location = now().location;
    function.name = expect_name("write `def name(x: float32[A, B]):`");
    expect_symbol("(", "write `def name(x: float32[A, B]):`");
    while (!broken_ && !at_symbol(")")) {
      if (function.parameters.size() >= kMaxItems)
        report(now().location, "the function has too many parameters", "split the function");
      Parameter parameter;
      parameter.location = now().location;
      parameter.name = expect_name("write parameters as `name: float32[A, B]`");
      if (take_symbol(":")) parameter.annotation = expression();
      if (take_symbol("=")) parameter.fallback = expression();
      function.parameters.push_back(std::move(parameter));
      if (!take_symbol(",")) break;
    }
    if (!broken_) expect_symbol(")", "close the parameters with ')'");
    if (!broken_ && take_symbol("->")) expression();
    if (!broken_) expect_symbol(":", "end the function's header with ':'");
    if (broken_) return;
    function_body(function);
    module_.functions.push_back(std::move(function));
  }

  void function_body(Function& function) {
    if (now().kind != TokenKind::newline) {
      function_statement(function);
      return;
    }
    advance();
    if (now().kind != TokenKind::indent) {
      report(now().location, concat("function '", function.name, "' has no body"), "indent its statements");
      return;
    }
    advance();
    while (now().kind != TokenKind::dedent && now().kind != TokenKind::end && !diagnostics_.full()) {
      broken_ = false;
      function_statement(function);
      if (broken_) skip_statement();
    }
    broken_ = false;
    if (now().kind == TokenKind::dedent) advance();
  }

  void function_statement(Function& function) {
    if (now().kind == TokenKind::newline) {
      advance();
    } else if (now().kind == TokenKind::string) {
      advance();  // a docstring
      expect_end_of_line();
    } else if (at_name("return")) {
      Assignment statement;
      statement.location = now().location;
      statement.returns = true;
      advance();
      if (now().kind == TokenKind::newline || now().kind == TokenKind::end) {
        report(statement.location, "this return has no value", "write `return x` or `return x, y`");
        return;
      }
      statement.value = tuple_expression();
      expect_end_of_line();
      if (!broken_) function.body.push_back(std::move(statement));
    } else if (now().kind == TokenKind::name && !is_reserved(now().text)) {
      Assignment statement = assignment();
      if (!broken_) function.body.push_back(std::move(statement));
    } else {
      report(now().location, concat(shown(), " is not allowed here"), kStatements);
    }
  }

  Assignment assignment() {
    Assignment statement;
    statement.location = now().location;
    while (!broken_) {
      const SourceLocation location = now().location;
      Expression left = tuple_expression();
      if (broken_) break;
      if (!at_symbol("=")) {
        if (statement.targets.empty()) {
          report_no_assignment(location);
          break;
        }
        statement.value = std::move(left);
        break;
      }
      advance();
      statement.targets.push_back(target_names(left));
    }
    expect_end_of_line();
    return statement;
  }

  void report_no_assignment(SourceLocation location) {
    static constexpr std::string_view kUpdates = "+-*/%@&|^";
    if (now().kind == TokenKind::symbol && kUpdates.find(now().text.front()) != std::string_view::npos) {
      report(now().location, "in-place updates are not supported", "write `x = x + y`");
    } else {
      report(location, "this statement assigns nothing", kStatements);
    }
  }

  std::vector<std::string> target_names(const Expression& target) {
    std::vector<std::string> names;
    const auto add = [&](const Expression& part) {
      if (part.kind == ExpressionKind::name && part.prefix.empty() && !is_reserved(part.text)) {
        names.push_back(part.text);
      } else {
        report(part.location, "only names can be assigned to", "write `name = …` or `a, b = …`");
      }
    };
    if (target.kind == ExpressionKind::tuple) {
      for (const Expression& part : target.children) add(part);
    } else {
      add(target);
    }
    return names;
  }

  Expression node(ExpressionKind kind, SourceLocation location) {
    Expression result;
    result.kind = kind;
    result.location = location;
    return result;
  }

  // Gives `parent` a child. Long chains nest too; the depth is limited so that recursion over them is safe.
  void adopt(Expression& parent, Expression child) {
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

  // `a, b` without brackets.
  Expression tuple_expression() {
    Expression first = expression();
    if (broken_ || !at_symbol(",")) return first;
    Expression tuple = node(ExpressionKind::tuple, first.location);
    adopt(tuple, std::move(first));
    while (!broken_ && take_symbol(",")) {
      if (now().kind == TokenKind::newline || at_symbol("=") || at_symbol(")")) break;
      adopt(tuple, expression());
    }
    return tuple;
  }

  Expression expression() {
    if (++nesting_ > kMaxDepth) {
      report(now().location, concat("this expression is nested more than ", kMaxDepth, " deep"),
             "split it into statements");
    }
    Expression result = broken_ ? Expression{} : comparison();
    --nesting_;
    if (!broken_ &&
        (at_name("if") || at_name("and") || at_name("or") || at_name("in") || at_name("is") || at_name("not"))) {
      report(now().location, concat("'", now().text, "' is not supported"), "select between tensors with np.where");
    }
    return result;
  }

  Expression binary(std::string_view op, SourceLocation location, Expression left, Expression right) {
    Expression result = node(ExpressionKind::binary, location);
    result.text = std::string(op);
    adopt(result, std::move(left));
    if (!broken_) adopt(result, std::move(right));
    return result;
  }

  Expression comparison() {
    Expression left = sum();
    static constexpr std::array<std::string_view, 6> kComparisons = {"<", "<=", ">", ">=", "==", "!="};
    if (!broken_ && now().kind == TokenKind::symbol &&
        std::find(kComparisons.begin(), kComparisons.end(), now().text) != kComparisons.end()) {
      const Token op = now();
      advance();
      left = binary(op.text, op.location, std::move(left), sum());
    }
    return left;
  }

  Expression sum() {
    Expression left = product();
    while (!broken_ && (at_symbol("+") || at_symbol("-"))) {
      if (ahead().kind == TokenKind::symbol && ahead().text == "=") break;  // an update in place
      const Token op = now();
      advance();
      left = binary(op.text, op.location, std::move(left), product());
    }
    return left;
  }

  Expression product() {
    Expression left = unary();
    while (!broken_ && (at_symbol("*") || at_symbol("/") || at_symbol("//") || at_symbol("@") || at_symbol("%"))) {
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

  Expression unary() {
    if (at_symbol("-") || at_symbol("+")) {
      Expression result = node(ExpressionKind::unary, now().location);
      result.text = std::string(now().text);
      advance();
      if (++nesting_ > kMaxDepth) {
        report(now().location, concat("this expression is nested more than ", kMaxDepth, " deep"),
               "split it into statements");
      }
      if (!broken_) adopt(result, unary());
      --nesting_;
      return result;
    }
    Expression base = postfix();
    if (!broken_ && at_symbol("**")) {
      const Token op = now();
      advance();
      if (++nesting_ > kMaxDepth) {
        report(now().location, concat("this expression is nested more than ", kMaxDepth, " deep"),
               "split it into statements");
      }
      if (!broken_) base = binary(op.text, op.location, std::move(base), unary());
      --nesting_;
    }
    return base;
  }

  Expression postfix() {
    Expression base = atom();
    while (!broken_) {
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

  Expression call(Expression callee) {
    Expression result = node(ExpressionKind::call, callee.location);
    if (callee.kind != ExpressionKind::name) {
      report(callee.location, "only named functions can be called", kExpressions);
      return result;
    }
    result.text = std::move(callee.text);
    result.prefix = std::move(callee.prefix);
    advance();
    while (!broken_ && !at_symbol(")")) {
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
    if (!broken_) expect_symbol(")", "separate arguments with ',' and close the call with ')'");
    return result;
  }

  Expression index(Expression base) {
    Expression result = node(ExpressionKind::index, now().location);
    adopt(result, std::move(base));
    advance();
    while (!broken_ && !at_symbol("]")) {
      if (at_symbol(":")) {
        Expression slice = node(ExpressionKind::slice, now().location);
        advance();
        if (!at_symbol(",") && !at_symbol("]")) {
          report(now().location, "only full slices are supported", "write x[:, None, ...]");
        }
        adopt(result, std::move(slice));
      } else {
        adopt(result, expression());
        if (!broken_ && at_symbol(":")) {
          report(now().location, "only full slices are supported", "write x[:, None, ...]");
        }
      }
      if (!take_symbol(",")) break;
    }
    if (!broken_) expect_symbol("]", "close the brackets with ']'");
    return result;
  }

  Expression atom() {
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

  Expression name() {
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

  Expression parenthesized() {
    const SourceLocation location = now().location;
    advance();
    if (at_symbol(")")) {
      advance();
      return node(ExpressionKind::tuple, location);
    }
    Expression inner = tuple_expression();
    if (!broken_) expect_symbol(")", "close the bracket with ')'");
    return inner;
  }

  Expression dictionary() {
    Expression result = node(ExpressionKind::dict, now().location);
    advance();
    while (!broken_ && !at_symbol("}")) {
      adopt(result, expression());
      if (!broken_) expect_symbol(":", "write {\"name\": value}");
      if (!broken_) adopt(result, expression());
      if (!take_symbol(",")) break;
    }
    if (!broken_) expect_symbol("}", "close the dictionary with '}'");
    return result;
  }

  Expression number(const Token& token) {
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

  static bool plain_decimal(std::string_view digits) { return digits.find_first_of(".eE") != std::string_view::npos; }

  const std::vector<Token>& tokens_;
  Diagnostics& diagnostics_;
  Module module_;
  size_t at_ = 0;
  int nesting_ = 0;
  bool broken_ = false;
};

}  // namespace

Module parse_module(const std::vector<Token>& tokens, Diagnostics& diagnostics) {
  return Parser(tokens, diagnostics).run();
}

}  // namespace millrace
