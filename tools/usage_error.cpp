#include "tools/usage_error.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/text.h"
#include "tools/command_help.h"

namespace {

using millrace::concat;
using millrace::Error;
using millrace::ErrorKind;

// The command that was given last: `list` of `db list`.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  return given.empty() ? app : innermost(*given.back());
}

std::string help_of(const CommandHelp& command) {
  const size_t space = command.name.find(' ');
  return concat("millrace help", space == std::string::npos ? "" : command.name.substr(space));
}

Error wrong(const std::string& message, const std::string& remedy) {
  return Error::make(ErrorKind::bad_input, message, remedy);
}

std::string did_you_mean(const std::string& given, const std::vector<std::string>& names,
                         const std::string& otherwise) {
  const std::string near = millrace::nearest(given, names);
  return near.empty() ? otherwise : concat("did you mean '", near, "'?");
}

Error unknown_option(const std::string& given, const CommandHelp& command) {
  std::vector<std::string> names;
  for (const OptionHelp& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  const std::string name = given.substr(0, given.find('='));
  return wrong(concat("unknown option '", name, "' of ", command.name),
               did_you_mean(name, names, concat("see ", help_of(command))));
}

// The error about words that nothing took.
Error unexpected(const std::vector<std::string>& words, const CLI::App& app) {
  const CommandHelp command = describe(app);
  const bool is_option = words.front().size() > 1 && words.front().front() == '-';
  if (!command.commands.empty() && !is_option) return unknown_command(words.front(), app);
  for (const std::string& word : words) {
    if (word.size() > 1 && word.front() == '-') return unknown_option(word, command);
  }
  return wrong(concat("unexpected argument '", words.front(), "'"), concat("write ", usage_line(command)));
}

// "--size: 1 required TEXT missing" → "--size"
std::string option_in(const std::string& text) { return text.substr(0, text.find_first_of(": ")); }

// The text after an option.
std::string value_of(const std::string& name, const CommandHelp& command) {
  for (const OptionHelp& option : command.options) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) return option.value;
  }
  return "a value";
}

std::string message_of(const CLI::ParseError& error, const CommandHelp& command) {
  const std::string text = error.what();
  if (error.get_name() == "RequiredError") return concat(command.name, " needs ", option_in(text));
  if (error.get_name() == "ArgumentMismatch")
    return concat(option_in(text), " needs ", value_of(option_in(text), command));
  if (error.get_name() == "ExcludesError")
    return concat(option_in(text), " and ", text.substr(text.rfind(' ') + 1), " exclude each other");
  return text;
}

}  // namespace

Error unknown_command(const std::string& given, const CLI::App& parent) {
  const CommandHelp command = describe(parent);
  std::vector<std::string> names;
  for (const CommandHelp& each : command.commands) names.push_back(last_word(each));
  return wrong(concat("unknown command '", given, "' of ", command.name),
               did_you_mean(given, names, concat("use ", millrace::join(names, ", "))));
}

Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& given = innermost(app);
  if (const std::vector<std::string> words = given.remaining(); !words.empty()) return unexpected(words, given);
  const CommandHelp command = describe(given);
  if (const std::vector<std::string> words = app.remaining(true); !words.empty())
    return wrong(concat("'", words.front(), "' before the command"),
                 concat("write options after it: ", command.name, " ", words.front()));
  const std::string see = concat("see ", help_of(command));
  const bool incomplete = error.get_name() == "RequiredError";
  return wrong(message_of(error, command), incomplete ? concat("write ", usage_line(command), "; ", see) : see);
}
