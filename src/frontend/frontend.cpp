#include "frontend/frontend.h"

#include <algorithm>

#include "base/text.h"
#include "frontend/diagnostics.h"
#include "frontend/fold.h"
#include "frontend/lexer.h"
#include "frontend/lower.h"
#include "frontend/parser.h"
#include "frontend/sizes.h"
#include "frontend/split_axes.h"
#include "ir/push_slices.h"

namespace millrace {

Result<Graph> parse_program(std::string_view text, const ProgramOptions& options) {
  Diagnostics diagnostics(options.file, text);
  if (static_cast<int64_t>(text.size()) > kProgramBytes) {
    return Error::make(ErrorKind::bad_input, concat(options.file, ": the program has ", text.size(), " bytes"),
                       concat("at most ", kProgramBytes, " are read"));
  }
  const size_t valid = valid_utf8_prefix(text);
  if (valid < text.size()) {
    Diagnostics prefix(options.file, text.substr(0, valid));
    prefix.report({valid}, "the text is not valid UTF-8 from here on", "save it as UTF-8");
    return prefix.error();
  }
  const std::vector<Token> tokens = tokenize(text, diagnostics);
  const Module module = parse_module(tokens, diagnostics);
  if (diagnostics.any()) return diagnostics.error();  // errors found in broken syntax would only mislead
  const Numbers numbers = evaluate_sizes(module, options, diagnostics);
  if (diagnostics.any()) return diagnostics.error();
  Graph graph = lower_module(module, numbers, options, diagnostics);
  if (diagnostics.any()) return diagnostics.error();
  const std::set<std::string> copies = whole_copies(graph);
  push_slices(graph, Pass::forward, {});
  split_axes(graph);
  absorb_copies(graph, copies);
  fold_scales(graph);
  remove_unused(graph);
  if (options.warn) std::for_each(diagnostics.warnings().begin(), diagnostics.warnings().end(), options.warn);
  return graph;
}

}  // namespace millrace
