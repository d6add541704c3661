#include "frontend/parser.h"

#include "base/text.h"
#include "frontend/imports.h"
#include "frontend/methods.h"
#include "frontend/not_covered.h"
#include "frontend/statement_parser.h"

namespace millrace {
namespace {

constexpr std::string_view kModule =
    "a module has imports, sizes (`P = W = 64`), SIZES, assertions about them and functions";

class Parser : private StatementParser {
 public:
  using StatementParser::StatementParser;

  Module run() {
    while (now().kind != TokenKind::end && !has_too_many_errors()) {
      begin_statement();
      module_statement();
      if (broken()) skip_statement();
    }
    resolve_imports(module_);
    return std::move(module_);
  }

 private:
  void module_statement() {
    if (now().kind == TokenKind::newline || now().kind == TokenKind::dedent) {
      advance();
    } else if (now().kind == TokenKind::string || at_name("pass")) {
      advance();  // a docstring
      expect_end_of_line();
    } else if (at_name("import") || at_name("from")) {
      import();
    } else if (at_symbol("@")) {
      advance();
      expression();
      expect_end_of_line();
      if (!broken() && !at_name("def") && !at_symbol("@")) {
        report(now().location, concat("expected a function after the decorator, found ", shown()), kModule);
      }
    } else if (at_name("def")) {
      function();
    } else if (at_name("if") && ahead().text == "__name__") {
      skip_statement();  // what the file does when Python runs it
    } else if (at_name("assert") || at_symbol("(") || (now().kind == TokenKind::name && !is_reserved(now().text))) {
      size_statement();
    } else if (now().kind == TokenKind::name && is_not_covered_word(now().text)) {
      const NotCovered unknown = not_covered_word(now().text);
      report(now().location, unknown.message, unknown.remedy);
    } else {
      report(now().location, concat(shown(), " is not allowed here"), kModule);
    }
  }

  void size_statement() {
    Statement statement = at_name("assert") ? assertion() : assignment(kModule);
    if (broken()) return;
    if (statement.kind == StatementKind::assign || statement.kind == StatementKind::assertion) {
      module_.statements.push_back(std::move(statement));
    } else {
      report(statement.location, "sizes are assigned once", "write `A = B + 1`");
      begin_statement();  // the line is read to its end
    }
  }

  // `import a.b as c, d` and `from a.b import c as d, (e, f)`.
  void import() {
    const bool from = at_name("from");
    advance();
    const std::string module = from ? dotted_name() : std::string();
    while (now().kind != TokenKind::newline && now().kind != TokenKind::end) {
      if (now().kind == TokenKind::name && !is_reserved(now().text)) {
        imported_name(module);
      } else {
        advance();
      }
    }
    expect_end_of_line();
  }

  void imported_name(const std::string& module) {
    std::string path = dotted_name();
    std::string name = path;
    if (at_name("as")) {
      advance();
      name = now().text;
      advance();
    } else if (module.empty()) {
      name = path = path.substr(0, path.find('.'));
    }
    module_.imports[name] = module.empty() ? path : concat(module, ".", path);
  }

  std::string dotted_name() {
    std::string name;
    while (at_symbol(".") || (now().kind == TokenKind::name && !is_reserved(now().text))) {
      name += now().text;
      advance();
      if (!at_symbol(".") && !name.ends_with('.')) break;
    }
    return name;
  }

  void function() {
    Function function;
    advance();
    function.location = now().location;
    function.name = expect_name("write `def name(x: float32[A, B]):`");
    expect_symbol("(", "write `def name(x: float32[A, B]):`");
    parameters(function);
    if (!broken()) expect_symbol(")", "close the parameters with ')'");
    if (!broken() && take_symbol("->")) expression();
    if (!broken()) expect_symbol(":", "end the function's header with ':'");
    if (broken()) return;
    function.body = block(
        [&] { report(now().location, concat("function '", function.name, "' has no body"), "indent its statements"); });
    resolve_methods(function);
    module_.functions.push_back(std::move(function));
  }

  void parameters(Function& function) {
    bool by_name = false;
    while (!broken() && !at_symbol(")")) {
      if (function.parameters.size() >= kMaxItems)
        report(now().location, "the function has too many parameters", "split the function");
      if (at_symbol("*") && ahead().text == "," && !by_name) {
        by_name = true;
        advance();
        advance();
        continue;
      }
      if (at_symbol("*") || at_symbol("**")) {
        report(now().location, "a function takes a fixed number of arguments",
               "name each parameter; pass several tensors as one tuple");
      }
      function.parameters.push_back(parameter(by_name));
      if (!take_symbol(",")) break;
    }
  }

  Parameter parameter(bool by_name) {
    Parameter result;
    result.by_name = by_name;
    result.location = now().location;
    result.name = expect_name("write parameters as `name: float32[A, B]`");
    if (take_symbol(":")) result.annotation = expression();
    if (take_symbol("=")) result.fallback = expression();
    return result;
  }

  Module module_;
};

}  // namespace

Module parse_module(const std::vector<Token>& tokens, Diagnostics& diagnostics) {
  return Parser(tokens, diagnostics).run();
}

}  // namespace millrace
