#include "tools/command_help.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/text.h"

namespace {

constexpr size_t kWidth = 100;
constexpr size_t kColumn = 28;  // where explanations begin

OptionHelp option_help(const CLI::Option& option) {
  OptionHelp made;
  for (const std::string& name : option.get_snames()) made.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) made.names.push_back("--" + name);
  if (made.names.empty()) made.names.push_back(option.get_name());
  if (option.get_items_expected_max() > 0) made.value = option.get_type_name();
  made.text = option.get_description();
  made.required = option.get_required();
  made.several = option.get_items_expected_max() > 1;
  return made;
}

// `text` in lines that begin at a column; the first one is already there.
std::string wrapped(const std::string& text, size_t column) {
  std::string lines;
  size_t at = column;
  for (const std::string& word : millrace::split(text, ' ')) {
    if (at > column && at + 1 + word.size() > kWidth) {
      lines += "\n" + std::string(column, ' ');
      at = column;
    } else if (at > column) {
      lines += " ";
      ++at;
    }
    lines += word;
    at += word.size();
  }
  return lines + "\n";
}

std::string entry(const std::string& name, const std::string& text) {
  std::string line = "  " + name;
  line += line.size() + 2 > kColumn ? "\n" + std::string(kColumn, ' ') : std::string(kColumn - line.size(), ' ');
  return line + wrapped(text, kColumn);
}

std::string entry(const OptionHelp& option) { return entry(names_and_value(option), option.text); }

std::string entries(const char* title, const std::vector<OptionHelp>& options) {
  std::string text = options.empty() ? "" : millrace::concat("\n", title, ":\n");
  for (const OptionHelp& option : options) text += entry(option);
  return text;
}

}  // namespace

CommandHelp describe(const CLI::App& app) {
  CommandHelp made;
  made.name = app.get_name();
  for (const CLI::App* above = app.get_parent(); above != nullptr; above = above->get_parent())
    made.name = millrace::concat(above->get_name(), " ", made.name);
  made.summary = app.get_description();
  made.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options())
    (option->get_positional() ? made.arguments : made.options).push_back(option_help(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    made.commands.push_back(describe(*command));
  return made;
}

std::string names_and_value(const OptionHelp& option) {
  const bool is_argument = option.names.front().front() != '-';
  const bool shown = !option.value.empty() && (!is_argument || !choices_of(option).empty());
  return millrace::concat(millrace::join(option.names, ", "), shown ? " " : "", shown ? option.value : "");
}

std::string usage_line(const CommandHelp& command) {
  std::string text = command.name + " [OPTIONS]";
  for (const OptionHelp& argument : command.arguments)
    text += millrace::concat(" ", argument.required ? "" : "[", argument.names.front(), argument.several ? " ..." : "",
                             argument.required ? "" : "]");
  return text + (command.commands.empty() ? "" : " COMMAND ...");
}

std::string help_text(const CommandHelp& command) {
  std::string text = millrace::concat(wrapped(command.summary, 0), "Usage: ", usage_line(command), "\n");
  text += entries("Arguments", command.arguments);
  if (!command.commands.empty()) text += "\nCommands:\n";
  for (const CommandHelp& each : command.commands) text += entry(last_word(each), each.summary);
  text += entries("Options", command.options);
  return command.footer.empty() ? text : millrace::concat(text, "\n", command.footer, "\n");
}

std::vector<std::string> choices_of(const OptionHelp& option) {
  const std::vector<std::string> words = millrace::split(option.value, '|');
  const auto is_literal = [](const std::string& word) {
    return !word.empty() && std::all_of(word.begin(), word.end(),
                                        [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
  };
  const bool literal = words.size() > 1 && std::all_of(words.begin(), words.end(), is_literal);
  return literal ? words : std::vector<std::string>();
}

std::string last_word(const CommandHelp& command) { return command.name.substr(command.name.rfind(' ') + 1); }
