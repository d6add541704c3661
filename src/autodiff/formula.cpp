#include "autodiff/formula.h"

#include <charconv>
#include <cstdlib>

namespace millrace {
namespace {

bool ends_word(char c) { return c == '(' || c == ',' || c == ')' || c == '|'; }

// The formulas are ours, so there are no error messages: a wrong one would fail in every run.
Formula parse(std::string_view text, size_t& at) {
  const size_t begin = at;
  while (at < text.size() && !ends_word(text[at])) ++at;
  const std::string_view word = text.substr(begin, at - begin);
  Formula formula;
  if (word == "-") return formula;
  if (at < text.size() && text[at] == '(') {
    const auto callee = operator_named(word);
    if (!callee) std::abort();
    formula.kind = Formula::Kind::call;
    formula.callee = *callee;
    do {
      ++at;
      formula.arguments.push_back(parse(text, at));
    } while (text[at] == ',');
    ++at;
    return formula;
  }
  if (word.size() == 1 && word[0] >= 'a' && word[0] <= 'z') {
    formula.kind = Formula::Kind::symbol;
    formula.symbol = word[0];
    return formula;
  }
  formula.kind = Formula::Kind::number;
  if (std::from_chars(word.data(), word.data() + word.size(), formula.number).ec != std::errc()) std::abort();
  return formula;
}

}  // namespace

std::vector<Formula> gradient_formulas(OperatorKind kind) {
  const std::string_view text = info_of(kind).gradient;
  std::vector<Formula> formulas;
  if (text == "rule") return formulas;
  size_t at = 0;
  while (true) {
    formulas.push_back(parse(text, at));
    if (at >= text.size()) return formulas;
    ++at;  // the '|'
  }
}

}  // namespace millrace
