// A program whose warnings are collected, each once, however often the program is read. They also go where its own
// warnings go. Test: tests/python/cli_test.py
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "millrace/millrace.h"

namespace millrace {

struct WarnedProgram {
  explicit WarnedProgram(ProgramSource given) : source(std::move(given)) {
    source.warn = [collected = warnings, next = source.warn](const Diagnostic& warning) {
      const auto same = [&](const Diagnostic& known) {
        return known.line == warning.line && known.column == warning.column && known.message == warning.message;
      };
      if (std::any_of(collected->begin(), collected->end(), same)) return;
      collected->push_back(warning);
      if (next) next(warning);
    };
  }

  std::shared_ptr<std::vector<Diagnostic>> warnings = std::make_shared<std::vector<Diagnostic>>();
  ProgramSource source;
};

}  // namespace millrace
