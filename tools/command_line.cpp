#include "tools/command_line.h"

#include <memory>
#include <set>

#include "tools/command_help.h"
#include "tools/validators.h"

using millrace::ExploreOptions;
using millrace::Format;
using millrace::ProgramSource;

CommandLine::CommandLine() : app("Millrace analyzes the data movement of transformer training and optimizes it.") {
  app.name("millrace");
  app.formatter_fn(
      [](const CLI::App* asked, const std::string&, CLI::AppFormatMode) { return help_text(describe(*asked)); });
  app.require_subcommand(0, 1);  // the words after a command are its own, also if they are names of commands
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("-V,--version", millrace::version(), "print the version");
  add_loudness(app);
  app.footer(
      "Start with:\n"
      "  millrace analyze models/bert_encoder.py\n"
      "  millrace optimize models/bert_encoder.py --size tiny\n\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 3 missing device or feature,\n"
      "4 no valid candidate, 130 interrupted.");
  add_program_commands(*this);
  add_plan_commands(*this);
  add_stored_commands(*this);
  add_help_commands(*this);
}

CLI::App& CommandLine::add(CLI::App& parent, const char* name, const char* help) {
  CLI::App& command = *parent.add_subcommand(name, help);
  command.footer("");  // not that of its parent
  add_loudness(command);
  return command;
}

void CommandLine::add_loudness(CLI::App& command) {
  command.add_flag("-q,--quiet", quiet, "print nothing but the result and errors");
  command.add_flag("-v,--verbose", verbose, "print each phase as it begins, even without a terminal");
}

void CommandLine::set_action(CLI::App& command, const char* what, Action chosen) {
  command.callback([this, what, chosen = std::move(chosen)] {
    action = chosen;
    doing = what;
  });
}

void CommandLine::set_measuring_action(CLI::App& command, Action chosen) {
  command.callback([this, chosen = std::move(chosen)] {
    action = chosen;
    doing = "preparing";
    interruptible = true;
  });
}

std::function<void(const millrace::Diagnostic&)> CommandLine::warn() const {
  // A command may read a program several times.
  return [print = notice, told = std::make_shared<std::set<std::string>>()](const millrace::Diagnostic& warning) {
    std::string text = millrace::warning_text(warning);
    if (text.ends_with('\n')) text.pop_back();
    if (told->insert(text).second) print(text);
  };
}

void CommandLine::listen(ExploreOptions& options) const {
  options.progress = progress;
  options.notice = notice;
  options.program.warn = warn();
}

void add_program(CLI::App& command, ProgramSource& program, const std::string& help) {
  command.add_option("PROGRAM", program.path, help)->required();
  command
      .add_option("--size", program.sizes,
                  "a set from the program's SIZES, or NAME=INTEGER; separate several by commas")
      ->delimiter(',')
      ->type_name("SET|NAME=N");
  command.add_option("--dtype", program.dtype, "store every tensor as this type (default: as annotated)")
      ->type_name("float16|bfloat16|float32|float64");
  command.add_option("--entry", program.entry, "the function to compile (default: the last one)")->type_name("NAME");
}

void add_json(CLI::App& command, Format& format, const std::string& help) {
  command.add_flag_callback(
      "--json", [&format] { format = Format::json; }, help);
}

void add_search(CLI::App& command, ExploreOptions& options, const std::string& help) {
  add_program(command, options.program, help);
  command.add_option("--device", options.device, "the device; cuda is an NVIDIA GPU (default: cpu)")
      ->type_name("cpu|cuda");
  command
      .add_option("--layout", options.layouts,
                  "layout of a caller's tensor or gradient: NAME=AXES or NAME=any; A+B=stacked: contiguous in memory")
      ->delimiter(',')
      ->type_name("NAME=AXES");
  command.add_option("--threads", options.threads, "number of threads (default: OMP_NUM_THREADS, or all cores)")
      ->check(whole_number(1, 4096))
      ->type_name("N");
  command.add_option("--db", options.database, "database of measurements (default: the user's own)")->type_name("FILE");
}

void add_method(CLI::App& command, std::string& method) {
  command.add_option("--method", method, "how to select; sssp is the paper's shortest path (default: exact)")
      ->type_name("exact|sssp");
}

void add_inputs(CLI::App& command, std::string& in, const std::string& help) {
  command.add_option("--in", in, help)->type_name("FILE.safetensors");
}

void add_denormals(CLI::App& command, bool& keep) {
  command.add_flag("--keep-denormals", keep,
                   "compute denormal numbers on the CPU, slowly, instead of flushing them to zero");
}
