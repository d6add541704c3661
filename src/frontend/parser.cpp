#include "frontend/parser.h"

#include "base/text.h"
#include "frontend/expression_parser.h"

namespace millrace {
namespace {

constexpr std::string_view kStatements = "a function's body has assignments and a return";
constexpr std::string_view kModule = "a module has imports, sizes (`P = W = 64`), SIZES and functions";

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Module run() {
    while (now().kind != TokenKind::end && !has_too_many_errors()) {
      begin_statement();
      module_statement();
      if (broken()) skip_statement();
    }
    return std::move(module_);
  }

 private:
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
      if (!broken() && !at_name("def") && !at_symbol("@")) {
        report(now().location, concat("expected a function after the decorator, found ", shown()), kModule);
      }
    } else if (at_name("def")) {
      function();
    } else if (now().kind == TokenKind::name && !is_reserved(now().text)) {
      module_.assignments.push_back(assignment());
      if (broken()) module_.assignments.pop_back();
    } else {
      report(now().location, concat(shown(), " is not allowed here"), kModule);
    }
  }

  void function() {
    Function function;
    advance();
    function.location = now().location;
    function.name = expect_name("write `def name(x: float32[A, B]):`");
    expect_symbol("(", "write `def name(x: float32[A, B]):`");
    while (!broken() && !at_symbol(")")) {
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
    if (!broken()) expect_symbol(")", "close the parameters with ')'");
    if (!broken() && take_symbol("->")) expression();
    if (!broken()) expect_symbol(":", "end the function's header with ':'");
    if (broken()) return;
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
    while (now().kind != TokenKind::dedent && now().kind != TokenKind::end && !has_too_many_errors()) {
      begin_statement();
      function_statement(function);
      if (broken()) skip_statement();
    }
    begin_statement();
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
      if (!broken()) function.body.push_back(std::move(statement));
    } else if (now().kind == TokenKind::name && !is_reserved(now().text)) {
      Assignment statement = assignment();
      if (!broken()) function.body.push_back(std::move(statement));
    } else {
      report(now().location, concat(shown(), " is not allowed here"), kStatements);
    }
  }

  Assignment assignment() {
    Assignment statement;
    statement.location = now().location;
    while (!broken()) {
      const SourceLocation location = now().location;
      Expression left = tuple_expression();
      if (broken()) break;
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

  Module module_;
};

}  // namespace

Module parse_module(const std::vector<Token>& tokens, Diagnostics& diagnostics) {
  return Parser(tokens, diagnostics).run();
}

}  // namespace millrace
