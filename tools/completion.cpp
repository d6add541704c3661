#include "tools/completion.h"

#include <functional>

#include "base/text.h"

namespace {

using millrace::concat;
using millrace::join;

void for_each_command(const CommandHelp& command, const std::function<void(const CommandHelp&)>& visit) {
  visit(command);
  for (const CommandHelp& each : command.commands) for_each_command(each, visit);
}

bool is_command(const CommandHelp& command) { return command.name.find(' ') != std::string::npos; }

std::vector<std::string> names_of(const std::vector<CommandHelp>& commands) {
  std::vector<std::string> names;
  for (const CommandHelp& command : commands) names.push_back(last_word(command));
  return names;
}

// A text in single quotes; `quote` is how the shell writes one inside.
std::string quoted(const std::string& text, const std::string& quote) {
  std::string made = "'";
  for (const char c : text) made += c == '\'' ? quote : std::string(1, c);
  return made + "'";
}

std::string shell_quoted(const std::string& text) { return quoted(text, "'\\''"); }

// --- bash and zsh: a function that walks the words to find the command, then branches on it ---

// The branches that find the command, from the words before the one to complete.
std::string command_branches(const CommandHelp& program) {
  std::string text;
  for_each_command(program, [&](const CommandHelp& command) {
    if (is_command(command)) text += concat("      '", command.name, "') command='", command.name, "' ;;\n");
  });
  return text;
}

// The branches for an option's value: `choose` lists words, `file` completes files.
std::string value_branches(const CommandHelp& program, const std::string& choose, const std::string& file) {
  std::string text;
  for_each_command(program, [&](const CommandHelp& command) {
    for (const OptionHelp& option : command.options) {
      if (option.value.empty()) continue;
      const std::vector<std::string> choices = choices_of(option);
      for (const std::string& name : option.names)
        text += concat("    '", command.name, " ", name, "') ",
                       choices.empty() ? file : concat(choose, " '", join(choices, " "), "'"), "; return ;;\n");
    }
  });
  return text;
}

// The words that can come in place of an option: commands, or the choices of an argument.
std::vector<std::string> words_of(const CommandHelp& program, const CommandHelp& command) {
  if (last_word(command) == "help") return names_of(program.commands);
  if (!command.commands.empty()) return names_of(command.commands);
  return command.arguments.empty() ? std::vector<std::string>() : choices_of(command.arguments.front());
}

std::string bash_script(const CommandHelp& program) {
  std::string options;
  std::string words;
  for_each_command(program, [&](const CommandHelp& command) {
    std::vector<std::string> names;
    for (const OptionHelp& option : command.options)
      names.insert(names.end(), option.names.begin(), option.names.end());
    options += concat("      '", command.name, "') _millrace_offer '", join(names, " "), "' ;;\n");
    words += concat("      '", command.name, "') _millrace_offer '", join(words_of(program, command), " "), "' ;;\n");
  });
  return concat(
      "# Completes millrace in bash; made by `millrace completion bash`.\n"
      "_millrace_offer() { COMPREPLY=($(compgen -W \"$1\" -- \"${COMP_WORDS[COMP_CWORD]}\")); }\n"
      "_millrace() {\n  local command=millrace k\n  COMPREPLY=()\n  for ((k = 1; k < COMP_CWORD; ++k)); do\n"
      "    case \"$command ${COMP_WORDS[k]}\" in\n",
      command_branches(program), "    esac\n  done\n  case \"$command ${COMP_WORDS[COMP_CWORD-1]}\" in\n",
      value_branches(program, "_millrace_offer", ":"),
      "  esac\n  if [[ ${COMP_WORDS[COMP_CWORD]} == -* ]]; then\n    case $command in\n", options,
      "    esac\n  else\n    case $command in\n", words,
      "    esac\n  fi\n}\ncomplete -o default -F _millrace millrace\n");
}

// "name:explanation" for zsh's _describe.
std::string described(const std::string& name, const std::string& text) {
  return shell_quoted(concat(name, ":", text)) + " ";
}

std::string zsh_script(const CommandHelp& program) {
  std::string options;
  std::string words;
  for_each_command(program, [&](const CommandHelp& command) {
    std::string names;
    for (const OptionHelp& option : command.options) {
      for (const std::string& name : option.names) names += described(name, option.text);
    }
    options += concat("      '", command.name, "') offered=(", names, ") ;;\n");
    std::string offered;
    for (const std::string& word : words_of(program, command)) offered += concat(word, " ");
    if (last_word(command) != "help" && !command.commands.empty()) {
      offered.clear();
      for (const CommandHelp& each : command.commands) offered += described(last_word(each), each.summary);
    }
    words += concat("      '", command.name, "') offered=(", offered, ") ;;\n");
  });
  return concat(
      "#compdef millrace\n# Completes millrace in zsh; made by `millrace completion zsh`.\n"
      "_millrace_choose() { compadd -- ${=1}; }\n"
      "_millrace() {\n  local command=millrace k\n  local -a offered\n  for ((k = 2; k < CURRENT; ++k)); do\n"
      "    case \"$command ${words[k]}\" in\n",
      command_branches(program), "    esac\n  done\n  case \"$command ${words[CURRENT-1]}\" in\n",
      value_branches(program, "_millrace_choose", "_files"),
      "  esac\n  if [[ ${words[CURRENT]} == -* ]]; then\n    case $command in\n", options,
      "    esac\n  else\n    case $command in\n", words,
      "    esac\n  fi\n  if (( ${#offered} )); then _describe millrace offered; else _files; fi\n}\n"
      "if [[ $funcstack[1] == _millrace ]]; then _millrace \"$@\"; else compdef _millrace millrace; fi\n");
}

// --- fish: one line for everything that can be completed ---

// Whether the words of a command's name were typed.
std::string fish_condition(const CommandHelp& command) {
  std::vector<std::string> seen;
  const std::vector<std::string> words = millrace::split(command.name, ' ');
  for (size_t k = 1; k < words.size(); ++k) seen.push_back(concat("__fish_seen_subcommand_from ", words[k]));
  if (!command.commands.empty())
    seen.push_back(concat("not __fish_seen_subcommand_from ", join(names_of(command.commands), " ")));
  return join(seen, "; and ");
}

std::string fish_quoted(const std::string& text) { return quoted(text, "\\'"); }

std::string fish_option(const std::string& begin, const OptionHelp& option) {
  std::string line = begin;
  for (const std::string& name : option.names)
    line += name.starts_with("--") ? concat(" -l ", name.substr(2)) : concat(" -s ", name.substr(1));
  const std::vector<std::string> choices = choices_of(option);
  if (!option.value.empty()) line += choices.empty() ? " -r" : concat(" -x -a '", join(choices, " "), "'");
  return concat(line, " -d ", fish_quoted(option.text), "\n");
}

std::string fish_script(const CommandHelp& program) {
  std::string text = "# Completes millrace in fish; made by `millrace completion fish`.\n";
  for_each_command(program, [&](const CommandHelp& command) {
    const std::string begin = concat("complete -c millrace -n ", fish_quoted(fish_condition(command)));
    for (const CommandHelp& each : command.commands)
      text += concat(begin, " -f -a ", last_word(each), " -d ", fish_quoted(each.summary), "\n");
    const std::vector<std::string> words = command.commands.empty() ? words_of(program, command) : names_of({});
    if (!words.empty()) text += concat(begin, " -f -a '", join(words, " "), "'\n");
    for (const OptionHelp& option : command.options) text += fish_option(begin, option);
  });
  return text;
}

}  // namespace

millrace::Result<std::string> completion_script(const CommandHelp& program, const std::string& shell) {
  if (shell == "bash") return bash_script(program);
  if (shell == "zsh") return zsh_script(program);
  if (shell == "fish") return fish_script(program);
  return millrace::Error::make(millrace::ErrorKind::bad_input, concat("no completion for the shell '", shell, "'"),
                               "use bash, zsh or fish");
}
