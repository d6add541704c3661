#include "campaigns/checks/mutate.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "base/text.h"

namespace millrace::campaigns {
namespace {

struct Fault {
  size_t at = 0;
  size_t size = 0;
  std::string replacement;
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Every occurrence of these texts becomes the other one.
const std::vector<std::pair<std::string, std::string>>& exchanges() {
  static const std::vector<std::pair<std::string, std::string>> known = {
      {" + ", " - "},     {" - ", " + "},          {" * ", " + "},
      {" / ", " * "},     {" % ", " / "},          {" < ", " <= "},
      {" == ", " != "},   {" && ", " || "},        {" ? ", " ? -"},
      {"exp(", "tanh("},  {"log(", "exp("},        {"Sum", "Largest"},
      {"Largest", "Sum"}, {"tanh(", "exp("},       {"sqrt(", "exp("},
      {"F(0)", "F(1)"},   {"infinity()", "F(-3)"}, {"subsequences[", "subsequences[1 + "},
      {" = -", " = "}};
  return known;
}

// The words of the text: where each begins, and its size.
std::vector<std::pair<size_t, size_t>> words_of(const std::string& text) {
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_word(text[at])) continue;
    size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    words.emplace_back(at, end - at);
    at = end;
  }
  return words;
}

bool is_number(const std::string& word) {
  return word.size() < 10 &&
         std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// x0, y1_0, p2, i3: variables, whose last number can be another one.
bool is_variable(const std::string& word) {
  constexpr std::string_view kKinds = "xyrtpib";
  return word.size() > 1 && kKinds.find(word[0]) != std::string_view::npos &&
         std::all_of(word.begin() + 1, word.end(), [](unsigned char c) { return std::isdigit(c) != 0 || c == '_'; });
}

void add_words(const std::string& text, std::vector<Fault>& faults) {
  for (const auto& [at, size] : words_of(text)) {
    const std::string word = text.substr(at, size);
    if (is_number(word)) {
      faults.push_back({at, size, std::to_string(std::stol(word) + 1)});
      if (word != "0") faults.push_back({at, size, std::to_string(std::stol(word) - 1)});
    } else if (is_variable(word) && std::isdigit(static_cast<unsigned char>(word.back())) != 0) {
      faults.push_back({at, size, word.substr(0, size - 1) + (word.back() == '0' ? '1' : '0')});
    }
  }
}

void add_exchanges(const std::string& text, std::vector<Fault>& faults) {
  for (const auto& [from, to] : exchanges()) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1))
      faults.push_back({at, from.size(), to});
  }
}

// Statements that declare nothing: stores, accumulations, assignments, calls.
void add_omissions(const std::string& text, std::vector<Fault>& faults) {
  size_t begin = 0;
  for (const std::string& line : split(text, '\n')) {
    const bool declares = line.find("const ") != std::string::npos || line.find("using ") != std::string::npos;
    const bool is_statement = line.ends_with(";") && !line.ends_with("};");
    const bool acts = line.find("mr::") != std::string::npos || line.find("] = ") != std::string::npos;
    if (is_statement && acts && !declares) faults.push_back({begin, line.size(), "  ;"});
    begin += line.size() + 1;
  }
}

}  // namespace

Mutant mutated(const std::string& kernel, std::mt19937_64& random) {
  // The function's head and its pointers are fixed by the launch.
  std::vector<Fault> faults;
  add_words(kernel, faults);
  add_exchanges(kernel, faults);
  add_omissions(kernel, faults);
  const size_t body = kernel.find('{');
  std::erase_if(faults, [&](const Fault& fault) { return fault.at < body; });
  if (faults.empty()) return {};
  const Fault& fault = faults[random() % faults.size()];
  const auto line = 1 + std::count(kernel.begin(), kernel.begin() + static_cast<std::ptrdiff_t>(fault.at), '\n');
  std::string text = kernel;
  text.replace(fault.at, fault.size, fault.replacement);
  const size_t start = kernel.rfind('\n', fault.at) + 1;
  const std::string whole = kernel.substr(start, kernel.find('\n', fault.at) - start);
  return {std::move(text), concat("line ", line, ": '", kernel.substr(fault.at, fault.size), "' becomes '",
                                  fault.replacement, "' in: ", whole)};
}

}  // namespace millrace::campaigns
