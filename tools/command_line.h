// The commands and options of `millrace`. Parsing a command line chooses one action, which calls the API.
// Test: tests/python/command_line_test.py
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "millrace/millrace.h"

struct CommandLine {
  using Action = std::function<millrace::Result<std::string>()>;

  CommandLine();

  // A command of `parent`, with the options that every command has.
  CLI::App& add(CLI::App& parent, const char* name, const char* help);
  // -q and -v.
  void add_loudness(CLI::App& command);
  // `doing`: what the command does, shown on the status line until there is progress.
  void set_action(CLI::App& command, const char* what, Action chosen);
  // The same for a command that stores measurements as it goes.
  void set_measuring_action(CLI::App& command, Action chosen);
  // Says where progress and notices go. Call it before an action.
  void listen(millrace::ExploreOptions& options) const;
  // Sends warnings about a program to the notices.
  std::function<void(const millrace::Diagnostic&)> warn() const;

  CLI::App app;

  // What the parsed command line asks for.
  Action action;  // none: a command is missing, or help was asked for
  std::string doing;
  bool quiet = false;
  bool verbose = false;
  bool interruptible = false;  // measurements are kept: the same command goes on

  // For actions.
  std::function<void(const millrace::Progress&)> progress;
  std::function<void(const std::string&)> notice;
  std::vector<millrace::StageTime> times;  // of stages
};

// Each adds some commands.
void add_program_commands(CommandLine& line);
void add_plan_commands(CommandLine& line);
void add_stored_commands(CommandLine& line);  // what is stored: db, cache
void add_help_commands(CommandLine& line);

// Options that several commands have.
void add_program(CLI::App& command, millrace::ProgramSource& program,
                 const std::string& help = "a program, such as models/bert_encoder.py");
void add_json(CLI::App& command, millrace::Format& format,
              const std::string& help = "print JSON; errors are JSON, too");
void add_search(CLI::App& command, millrace::ExploreOptions& options,
                const std::string& help = "a program, such as models/bert_encoder.py");
void add_method(CLI::App& command, std::string& method);
void add_inputs(CLI::App& command, std::string& in, const std::string& help);
void add_denormals(CLI::App& command, bool& keep);
