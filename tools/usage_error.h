// What is wrong with a command line, in the style of all other errors, with a suggestion for a near miss.
// Test: tests/python/command_line_test.py
#pragma once

#include <string>
#include <vector>

#include "millrace/result.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

// `app` has just failed to parse.
millrace::Error usage_error(const CLI::App& app, const CLI::ParseError& error);

// A command that does not exist: `given` after `parent`.
millrace::Error unknown_command(const std::string& given, const CLI::App& parent);
