#include "tools/manual.h"

#include "base/text.h"

namespace {

using millrace::concat;

// A text as roff prints it: a line that begins with a dot or a quote would be an instruction.
std::string escaped(const std::string& text) {
  std::string made;
  for (const char c : text) {
    const bool begins = made.empty() || made.back() == '\n';
    if (begins && (c == '.' || c == '\'')) made += "\\&";
    made += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return made;
}

std::string tagged(const std::string& name, const std::string& text) {
  return concat(".TP\n.B \"", escaped(name), "\"\n", escaped(text), "\n");
}

// A command's footer: lines of text, and examples.
std::string footer(const std::string& text) {
  return text.empty() ? "" : concat(".PP\n.nf\n", escaped(text), "\n.fi\n");
}

std::string section_of(const CommandHelp& command) {
  std::string text = concat(".SS \"", escaped(usage_line(command)), "\"\n", escaped(command.summary), "\n");
  for (const OptionHelp& argument : command.arguments) text += tagged(names_and_value(argument), argument.text);
  for (const OptionHelp& option : command.options) {
    if (option.names.front() != "-h") text += tagged(names_and_value(option), option.text);
  }
  text += footer(command.footer);
  for (const CommandHelp& each : command.commands) text += section_of(each);
  return text;
}

constexpr const char* kFiles =
    ".SH ENVIRONMENT\n"
    ".TP\n.B MILLRACE_DATA_DIR\nthe folder of measurements.db (default: $XDG_DATA_HOME/millrace)\n"
    ".TP\n.B MILLRACE_CACHE_DIR\nthe folder of compiled kernels (default: $XDG_CACHE_HOME/millrace)\n"
    ".TP\n.B MILLRACE_ONEDNN\nthe file of oneDNN to load\n"
    ".TP\n.B MILLRACE_MKL\nthe file of MKL to load\n"
    ".TP\n.B OMP_NUM_THREADS\nthe number of threads\n"
    ".TP\n.B CXX\nthe C++ compiler of generated kernels\n"
    ".TP\n.B NO_COLOR\nprint no colours\n";

}  // namespace

std::string manual_page(const CommandHelp& program, const std::string& version) {
  std::string text = concat(".TH MILLRACE 1 \"\" \"millrace ", version, "\" \"Millrace\"\n.SH NAME\n",
                            "millrace \\- analyze and optimize the data movement of transformer training\n",
                            ".SH SYNOPSIS\n.B millrace\n.I COMMAND\n[\\fIOPTIONS\\fR] ...\n.SH DESCRIPTION\n",
                            escaped(program.summary), "\n", footer(program.footer), ".SH OPTIONS\n");
  for (const OptionHelp& option : program.options) text += tagged(names_and_value(option), option.text);
  text += ".SH COMMANDS\n";
  for (const CommandHelp& command : program.commands) text += section_of(command);
  return text + kFiles;
}
