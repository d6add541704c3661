// help, version and completion.
#include <memory>

#include "base/text.h"
#include "tools/command_help.h"
#include "tools/command_line.h"
#include "tools/completion.h"
#include "tools/manual.h"
#include "tools/usage_error.h"

namespace {

using millrace::concat;
using millrace::Format;
using millrace::Result;

Result<std::string> help_of(CLI::App& app, const std::vector<std::string>& names) {
  const CLI::App* command = &app;
  for (const std::string& name : names) {
    const auto found = command->get_subcommands([&](const CLI::App* each) { return each->get_name() == name; });
    if (found.empty()) return unknown_command(name, *command);
    command = found.front();
  }
  return help_text(describe(*command));
}

void add_help(CommandLine& line) {
  struct Asked {
    std::vector<std::string> names;
    bool manual = false;
  };
  CLI::App& command = line.add(line.app, "help", "print the help of Millrace or of a command");
  const auto asked = std::make_shared<Asked>();
  command.add_option("COMMAND", asked->names, "such as optimize, or db list");
  command.add_flag("--man", asked->manual, "print the manual page of all commands, for man -l")->excludes("COMMAND");
  command.footer(
      "Examples:\n"
      "  millrace help optimize\n"
      "  millrace help db list");
  line.set_action(command, "", [&line, asked]() -> Result<std::string> {
    if (asked->manual) return manual_page(describe(line.app), millrace::version());
    return help_of(line.app, asked->names);
  });
}

void add_version(CommandLine& line) {
  CLI::App& command = line.add(line.app, "version", "print the version");
  const auto format = std::make_shared<Format>(Format::text);
  add_json(command, *format);
  command.footer(
      "Examples:\n"
      "  millrace version\n"
      "  millrace version --json");
  line.set_action(command, "", [format]() -> Result<std::string> {
    if (*format == Format::text) return millrace::version() + "\n";
    return concat("{\n  \"schema_version\": 1,\n  \"version\": \"", millrace::version(), "\"\n}\n");
  });
}

void add_completion(CommandLine& line) {
  CLI::App& command = line.add(line.app, "completion", "print a script that completes commands in a shell");
  const auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "the shell")->type_name("bash|zsh|fish")->required();
  command.footer(
      "Examples:\n"
      "  millrace completion bash > ~/.local/share/bash-completion/completions/millrace\n"
      "  millrace completion zsh > \"${fpath[1]}/_millrace\"\n"
      "  millrace completion fish > ~/.config/fish/completions/millrace.fish");
  line.set_action(command, "", [&line, shell] { return completion_script(describe(line.app), *shell); });
}

}  // namespace

void add_help_commands(CommandLine& line) {
  add_help(line);
  add_version(line);
  add_completion(line);
}
