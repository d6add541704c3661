// A program that is just an attention, with variants for tests.
#pragma once

#include <array>
#include <string>

#include "autodiff/differentiate.h"
#include "base/text.h"
#include "frontend/program_text.h"
#include "ir/attention.h"

namespace millrace {

struct AttentionProgram {
  std::string q = "bhjp";
  std::string k = "bhkp";
  std::string v = "bhkw";
  std::string scores = "bhjk";
  std::string o = "bhjw";
  std::string scale = "0.5 * ";
  std::string scaled = "";                              // the same, after them
  std::string weights = "dropout(softmax(s), p=0.25)";  // of s
  std::string factor = "";                              // of o
  std::string type = "float16";
  std::string without_gradient = "";  // of q, k and v
  std::string arguments = "";         // further ones
  std::string before = "";            // lines before the scores
  std::string more = "";              // lines before the return
  std::string results = "o";
  std::string of_q = "q";  // the tensors in their roles
  std::string of_k = "k";
  std::string of_v = "v";
  int keys = 7;

  std::string text() const {
    const auto tensor = [&](const std::string& name, const std::string& axes) {
      std::vector<std::string> sizes;
      for (const char axis : axes) sizes.emplace_back(1, static_cast<char>(axis - 'a' + 'A'));
      const bool fixed = without_gradient.find(name) != std::string::npos;
      return concat(name, fixed ? ": fixed." : ": ", type, "[", join(sizes, ", "), "]");
    };
    return concat("B = 2\nG = 3\nH = 3\nJ = 5\nK = ", keys, "\nP = 4\nR = 2\nW = 6\nX = 2\n\n\ndef layer(",
                  tensor("q", q), ", ", tensor("k", k), ", ", tensor("v", v), arguments, "):\n", before,
                  "    s = ", scale, "np.einsum(\"", q, ",", k, "->", scores, "\", ", of_q, ", ", of_k, ")", scaled,
                  "\n    a = ", weights, "\n    o = ", factor, "np.einsum(\"", scores, ",", v, "->", o, "\", a, ", of_v,
                  ")\n", more, "    return ", results, "\n");
  }
};

// Queries, keys, inner columns and values.
using AttentionSizes = std::array<int, 4>;

inline void replace_each(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

inline std::string text_with(const AttentionProgram& program, const AttentionSizes& sizes, const std::string& type) {
  std::string text = program.text();
  const std::array<std::string, 4> given = {"\nJ = 5", concat("\nK = ", program.keys), "\nP = 4", "\nW = 6"};
  for (size_t k = 0; k < given.size(); ++k)
    replace_each(text, given[k] + "\n", concat(given[k].substr(0, 5), sizes[k], "\n"));
  for (const char* const own : {"float16", "bfloat16"}) {
    if (program.type == own) replace_each(text, own, type);
  }
  return text;
}

// The tensors of a training graph that are returned to the caller.
inline std::vector<bool> callers_of(const TrainingGraph& training) {
  std::vector<bool> callers(training.graph.tensors.size(), false);
  for (const Output& result : training.graph.results) callers[result.tensor.at()] = true;
  for (const TensorId gradient : training.argument_gradients) {
    if (gradient.valid()) callers[gradient.at()] = true;
  }
  return callers;
}

}  // namespace millrace
