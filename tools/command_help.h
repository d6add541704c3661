// What the help says of a command: the one source of `millrace help`, of the manual page and of shell completion.
// Test: tests/python/command_line_test.py
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}  // namespace CLI

struct OptionHelp {
  std::vector<std::string> names;  // "-q", "--quiet"; of a positional argument "PROGRAM"
  std::string value;               // "FILE.json"; "cpu|cuda" if it is one of several words; empty for a flag
  std::string text;
  bool required = false;
  bool several = false;  // a positional argument that takes any number of words
};

struct CommandHelp {
  std::string name;  // with its parents: "millrace db list"
  std::string summary;
  std::vector<OptionHelp> arguments;  // positional ones
  std::vector<OptionHelp> options;
  std::vector<CommandHelp> commands;
  std::string footer;
};

CommandHelp describe(const CLI::App& app);

// "-q, --quiet", "--out FILE.json"
std::string names_and_value(const OptionHelp& option);

// "millrace bench [OPTIONS] PLAN"
std::string usage_line(const CommandHelp& command);

// For a terminal.
std::string help_text(const CommandHelp& command);

// The words that an option's value can be: {"cpu", "cuda"}. None if it can be anything.
std::vector<std::string> choices_of(const OptionHelp& option);

// The last word of a command's name: "list".
std::string last_word(const CommandHelp& command);
