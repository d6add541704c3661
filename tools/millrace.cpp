// The `millrace` program: options in, text out. Data goes to standard output, messages to standard error.
#include "millrace/millrace.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "tools/status_line.h"

namespace {

using millrace::AnalyzeOptions;
using millrace::BenchOptions;
using millrace::DatabaseOptions;
using millrace::DoctorOptions;
using millrace::ErrorKind;
using millrace::ExploreOptions;
using millrace::Format;
using millrace::FuseOptions;
using millrace::OptimizeOptions;
using millrace::ProgramSource;
using millrace::ReportOptions;
using millrace::Result;
using millrace::RunOptions;
using millrace::SelectOptions;
using millrace::StageTime;

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int kUnavailable = 3;
constexpr int kNoConfiguration = 4;

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_input: return kWrongUsage;
    case ErrorKind::unavailable: return kUnavailable;
    case ErrorKind::no_configuration: return kNoConfiguration;
    case ErrorKind::failed: break;
  }
  return kFailed;
}

int finish(const Result<std::string>& result) {
  if (!result) {
    std::cerr << millrace::to_string(result.error());
    return exit_code(result.error().kind);
  }
  std::cout << *result << std::flush;
  if (std::cout) return kDone;
  std::cerr << "error: cannot write to standard output\n";
  return kFailed;
}

void add_program_options(CLI::App& command, ProgramSource& program,
                         const std::string& help = "a program, such as models/bert_encoder.py") {
  command.add_option("PROGRAM", program.path, help)->required();
  command
      .add_option("--size", program.sizes,
                  "a set from the program's SIZES, or NAME=INTEGER; separate several by commas")
      ->delimiter(',')
      ->type_name("SET|NAME=N");
  command.add_option("--dtype", program.dtype, "store every tensor as float16, bfloat16, float32 or float64")
      ->type_name("TYPE");
  command.add_option("--entry", program.entry, "the function to compile (default: the last one)")->type_name("NAME");
}

// One of several flags that choose the output format.
void add_format(CLI::Option_group& group, const std::string& flag, const std::string& help, Format format,
                Format& chosen) {
  group.add_flag_callback(
      flag, [format, &chosen] { chosen = format; }, help);
}

CLI::App* add_analyze(CLI::App& app, AnalyzeOptions& options, bool& timings) {
  CLI::App* const command =
      app.add_subcommand("analyze", "flop, words, class and I/O lower bound of every operator, forward and backward");
  add_program_options(*command, options.program);
  CLI::Option_group& formats = *command->add_option_group("output");
  formats.require_option(0, 1);
  add_format(formats, "--json", "print JSON", Format::json, options.format);
  add_format(formats, "--dot", "print the graph for Graphviz, with words on the edges", Format::dot, options.format);
  add_format(formats, "--graph", "print the graph as text, with the values saved for backward", Format::graph,
             options.format);
  command
      ->add_option("--fast-memory", options.fast_memory_bytes,
                   "cache size for the I/O lower bound (default: 50MiB, the L2 of an H200)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES");
  command->add_flag("--timings", timings, "print each stage's time to standard error");
  command->footer(
      "Examples:\n"
      "  millrace analyze models/bert_encoder.py\n"
      "  millrace analyze models/bert_encoder.py --size B=96,J=128 --json\n"
      "  millrace analyze models/mha.py --dot | dot -Tsvg > mha.svg");
  return command;
}

CLI::App* add_fuse(CLI::App& app, FuseOptions& options, bool& timings) {
  CLI::App* const command =
      app.add_subcommand("fuse", "which operators run as one kernel, and how many words that saves");
  add_program_options(*command, options.program);
  command->add_flag("--explain", options.explain, "print whether each neighbouring pair fused, and if not, why");
  CLI::Option_group& formats = *command->add_option_group("output");
  add_format(formats, "--json", "print JSON", Format::json, options.format);
  command->add_flag("--timings", timings, "print each stage's time to standard error");
  command->footer(
      "Examples:\n"
      "  millrace fuse models/bert_encoder.py\n"
      "  millrace fuse models/llama_block.py --size tiny --explain");
  return command;
}

void add_denormals(CLI::App& command, bool& keep) {
  command.add_flag("--keep-denormals", keep,
                   "compute denormal numbers on the CPU, slowly, instead of flushing them to zero");
}

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* const command = app.add_subcommand("run", "run forward and backward of a program or plan once");
  add_program_options(*command, options.program, "a program, such as models/bert_encoder.py, or a plan");
  command
      ->add_option("--device", options.device,
                   "reference (interpreter in float64); default: reference for a program, its device for a plan")
      ->type_name("DEVICE");
  command
      ->add_option("--in", options.in,
                   "file with arguments by name, and d_NAME for the results' gradients (default: random)")
      ->type_name("FILE.safetensors");
  command->add_option("--out", options.out, "file for the results, and d_NAME for the arguments' gradients")
      ->type_name("FILE.safetensors");
  add_denormals(*command, options.keep_denormals);
  command->add_option("--seed", options.seed, "seed of random inputs and dropout")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  command->add_option("--step", options.step, "step number for dropout: every step has different masks")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  CLI::Option_group& formats = *command->add_option_group("output");
  add_format(formats, "--json", "print JSON", Format::json, options.format);
  command->footer(
      "Examples:\n"
      "  millrace run models/bert_encoder.py --size tiny\n"
      "  millrace run models/mha.py --size tiny --in t.safetensors --out r.safetensors\n"
      "  millrace run plan/plan.json --in t.safetensors --out r.safetensors");
  return command;
}

CLI::App* add_bench(CLI::App& app, BenchOptions& options) {
  CLI::App* const command = app.add_subcommand("bench", "time a plan, and each launch next to its predicted time");
  command->add_option("PLAN", options.path, "a plan.json, or its folder")->required();
  command
      ->add_option("--in", options.in,
                   "file with arguments by name, and d_NAME for the results' gradients (default: random)")
      ->type_name("FILE.safetensors");
  command->add_option("--seconds", options.seconds, "approximate time to spend (default: 3)")
      ->check(CLI::Range(0.01, 3600.0))
      ->type_name("N");
  add_denormals(*command, options.keep_denormals);
  command->add_option("--trace", options.trace, "file for a timeline of a few steps; open it in ui.perfetto.dev")
      ->type_name("FILE.json");
  command
      ->add_flag("--kernels", options.kernels,
                 "time generated kernels only, one by one, for tools that cannot handle library kernels")
      ->excludes("--trace");  // a trace shows whole steps
  CLI::Option_group& formats = *command->add_option_group("output");
  add_format(formats, "--json", "print JSON", Format::json, options.format);
  command->footer(
      "Examples:\n"
      "  millrace bench plan\n"
      "  millrace bench plan/plan.json --seconds 10 --json\n"
      "  millrace bench plan --in t.safetensors\n"
      "  millrace bench plan --trace timeline.json\n"
      "  compute-sanitizer --tool racecheck millrace bench plan --kernels --seconds 0.1");
  return command;
}

// `millrace db ...`: each action is a function of the API.
CLI::App* add_db(CLI::App& app, DatabaseOptions& options, Result<std::string> (*&action)(const DatabaseOptions&)) {
  CLI::App* const command = app.add_subcommand("db", "list, merge, export or import the database of measurements");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, Result<std::string> (*function)(const DatabaseOptions&)) {
    CLI::App* const added = command->add_subcommand(name, help);
    added->add_option("--db", options.path, "the database (default: measurements.db in the user's data folder)")
        ->type_name("PATH");
    added->callback([&action, function] { action = function; });
    return added;
  };
  const auto add_json = [&](CLI::App* to) {
    add_format(*to->add_option_group("output"), "--json", "print JSON", Format::json, options.format);
  };
  add_json(add("list", "list devices and their numbers of rows", millrace::list_database));
  CLI::App* const merge = add("merge", "add other databases' rows; later rows win", millrace::merge_database);
  merge->add_option("OTHER", options.others, "other databases of measurements")->required();
  add_json(merge);
  CLI::App* const write =
      add("export", "write all rows as JSON lines, also from a damaged file", millrace::export_database);
  write->add_option("FILE", options.file, "output file (default: standard output)");
  CLI::App* const read = add("import", "add exported rows, all or none", millrace::import_database);
  read->add_option("FILE", options.file, "JSON lines, as export writes them")->required();
  add_json(read);
  command->footer(
      "Examples:\n"
      "  millrace db list\n"
      "  millrace db export rows.jsonl\n"
      "  millrace db import rows.jsonl --db new.db\n"
      "  millrace db merge new.db");
  return command;
}

// Options of every command that needs candidates.
void add_explore_options(CLI::App& command, ExploreOptions& options,
                         const std::string& help = "a program, such as models/bert_encoder.py") {
  add_program_options(command, options.program, help);
  command.add_option("--device", options.device, "cpu (default) or cuda, an NVIDIA GPU")->type_name("DEVICE");
  command
      .add_option("--layout", options.layouts,
                  "layout of a caller's tensor or gradient: NAME=AXES or NAME=any; A+B=stacked: contiguous in memory")
      ->delimiter(',')
      ->type_name("NAME=AXES");
  command.add_option("--threads", options.threads, "number of threads (default: OMP_NUM_THREADS, or all cores)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  command.add_option("--db", options.database, "database of measurements (default: the user's own)")->type_name("FILE");
}

void add_budget(CLI::App& command, ExploreOptions& options) {
  command.add_option("--budget", options.budget, "time for measuring candidates (default: 60s; on a GPU 240s)")
      ->type_name("TIME");
  command.add_flag("--exhaustive", options.exhaustive,
                   "measure every candidate (on a GPU one per timing class), however long it takes");
}

CLI::App* add_explore(CLI::App& app, ExploreOptions& options) {
  CLI::App* const command = app.add_subcommand("explore", "check and time candidates for every partition of a program");
  add_explore_options(*command, options);
  add_budget(*command, options);
  command->add_option("--shard", options.shard, "try only this share of the candidates; join them with db merge")
      ->type_name("NUMBER/COUNT");
  command->add_flag("--explain", options.explain,
                    "list the candidates and why others were rejected, without measuring");
  command->add_option("--out", options.out, "file for the measurements")->type_name("FILE.json");
  CLI::Option_group& formats = *command->add_option_group("output");
  add_format(formats, "--json", "print the measurements as JSON", Format::json, options.format);
  command->footer(
      "Every outcome is stored: an interrupted run continues where it stopped.\n"
      "Examples:\n"
      "  millrace explore models/bert_encoder.py --size tiny --budget 20s\n"
      "  millrace explore models/bert_encoder.py --size tiny --budget 20s --shard 3/16 --db shard3.db\n"
      "  millrace explore models/mha.py --size tiny --explain");
  return command;
}

CLI::App* add_select(CLI::App& app, SelectOptions& options) {
  CLI::App* const command = app.add_subcommand("select", "find the best combination of what was measured");
  add_explore_options(*command, options.explore);
  command->add_option("--method", options.method, "exact, or sssp, the paper's shortest path (default: exact)")
      ->type_name("METHOD");
  command
      ->add_option("--seconds", options.seconds,
                   "end the search after this time, with the best selection found so far (default: 10)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N");
  CLI::Option_group& formats = *command->add_option_group("output");
  add_format(formats, "--json", "print JSON", Format::json, options.explore.format);
  command->footer(
      "PROGRAM may be a JSON file of measurements, as written by explore --out.\n"
      "Examples:\n"
      "  millrace select models/bert_encoder.py --size tiny\n"
      "  millrace select measurements.json --method sssp");
  return command;
}

CLI::App* add_optimize(CLI::App& app, OptimizeOptions& options) {
  CLI::App* const command =
      app.add_subcommand("optimize", "find the fastest plan for forward and backward, write it, check it and time it");
  add_explore_options(*command, options.explore);
  add_budget(*command, options.explore);
  command->add_option("--method", options.method, "exact, or sssp, the paper's shortest path (default: exact)")
      ->type_name("METHOD");
  command->add_option("--out", options.out, "folder for the plan (default: NAME.plan)")->type_name("DIR");
  command
      ->add_option("--in", options.in,
                   "file of example inputs, as for run: the plan is timed and checked with them (default: random)")
      ->type_name("FILE.safetensors");
  CLI::Option_group& formats = *command->add_option_group("output");
  add_format(formats, "--json", "print JSON", Format::json, options.explore.format);
  command->footer(
      "Measurements are stored: an interrupted run continues where it stopped.\n"
      "Examples:\n"
      "  millrace optimize models/bert_encoder.py --size tiny\n"
      "  millrace optimize models/bert_encoder.py --size base --dtype float32 --budget 5m --out bert.plan");
  return command;
}

CLI::App* add_report(CLI::App& app, ReportOptions& options) {
  CLI::App* const command =
      app.add_subcommand("report", "report data movement and times as one HTML file, from earlier measurements");
  add_explore_options(*command, options.explore, "a plan, or a program such as models/bert_encoder.py");
  command->get_option("PROGRAM")->required(false);
  command->add_option("--method", options.method, "for a program: exact or sssp (default: exact)")->type_name("METHOD");
  command->add_option("--compare", options.compare, "compare two plans")->expected(2)->type_name("A B");
  command->add_option("--out", options.out, "file for the report (default: report.html)")->type_name("FILE.html");
  command->add_option("--csv", options.csv, "folder for every table as CSV")->type_name("DIR");
  command->add_option("--svg", options.svg, "folder for every picture as SVG")->type_name("DIR");
  CLI::Option_group& formats = *command->add_option_group("output");
  add_format(formats, "--json", "print all tables as JSON", Format::json, options.explore.format);
  command->footer(
      "Measures nothing: run millrace optimize or explore first.\n"
      "Examples:\n"
      "  millrace report bert_encoder.plan --out bert.html\n"
      "  millrace report models/bert_encoder.py --size tiny --csv tables --svg pictures\n"
      "  millrace report --compare one.plan other.plan");
  return command;
}

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options) {
  CLI::App* const command =
      app.add_subcommand("doctor", "show what Millrace finds on this machine, and how to install what is missing");
  CLI::Option_group& formats = *command->add_option_group("output");
  add_format(formats, "--json", "print JSON", Format::json, options.format);
  command->footer(
      "Examples:\n"
      "  millrace doctor --json\n"
      "  millrace doctor");
  return command;
}

// A thread of OpenMP that waits spins for milliseconds unless it is told otherwise. On a busy machine it then takes the
// core from the thread that it waits for: kernels of 10 µs took 2 ms on average. After a short spin it should sleep.
// The library reads this when the program starts, hence the restart.
void spin_briefly(char** argv) {
  constexpr const char* kSpins = "GOMP_SPINCOUNT";
  if (std::getenv(kSpins) != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (setenv(kSpins, millrace::kSpinCount, 1) == 0) execv("/proc/self/exe", argv);
}

// What a command does before it says more.
std::string doing_of(const std::string& command) {
  static const std::map<std::string, std::string> kDoing = {
      {"analyze", "analyzing"},   {"fuse", "fusing"},    {"run", "running"},     {"explore", "preparing"},
      {"optimize", "preparing"},  {"select", "reading"}, {"bench", "measuring"}, {"report", "reporting"},
      {"db", "reading the rows"}, {"doctor", "looking"}};
  const auto found = kDoing.find(command);
  return found == kDoing.end() ? command : found->second;
}

// Every outcome is stored at once, so an interrupt loses at most the trial that runs.
void say_what_is_kept(int signal) {
  constexpr std::string_view kText =
      "\ninterrupted: the measurements so far are kept; the same command continues from them\n";
  if (write(STDERR_FILENO, kText.data(), kText.size()) < 0) _exit(128 + signal);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

int run(int argc, char** argv) {
  CLI::App app{"Millrace analyzes the data movement of transformer training and optimizes it."};
  app.set_version_flag("--version", millrace::version());
  app.require_subcommand(1);
  AnalyzeOptions analyze;
  bool timings = false;
  FuseOptions fuse;
  RunOptions run;
  CLI::App* const analyze_command = add_analyze(app, analyze, timings);
  CLI::App* const fuse_command = add_fuse(app, fuse, timings);
  CLI::App* const run_command = add_run(app, run);
  ExploreOptions explore;
  CLI::App* const explore_command = add_explore(app, explore);
  OptimizeOptions optimize;
  CLI::App* const optimize_command = add_optimize(app, optimize);
  SelectOptions select;
  CLI::App* const select_command = add_select(app, select);
  BenchOptions bench;
  CLI::App* const bench_command = add_bench(app, bench);
  ReportOptions report;
  CLI::App* const report_command = add_report(app, report);
  DatabaseOptions db;
  Result<std::string> (*db_action)(const DatabaseOptions&) = nullptr;
  CLI::App* const db_command = add_db(app, db, db_action);
  DoctorOptions doctor;
  CLI::App* const doctor_command = add_doctor(app, doctor);
  app.footer(
      "Start with:\n"
      "  millrace analyze models/bert_encoder.py\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 3 missing device or feature,\n"
      "4 no valid configuration, 130 interrupted.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kWrongUsage;
  }
  std::vector<StageTime> times;
  if (timings) analyze.timings = fuse.timings = &times;
  const auto parsed = app.get_subcommands();
  StatusLine status(parsed.empty() ? std::string() : doing_of(parsed.front()->get_name()));
  const auto notice = [&](const std::string& line) { status.print(line); };
  for (ExploreOptions* options : {&explore, &optimize.explore, &select.explore, &report.explore}) {
    options->progress = [&](const millrace::Progress& progress) { status.show(progress); };
  }
  explore.notice = optimize.explore.notice = run.notice = notice;
  report.colours = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  std::string db_notice;
  db.notice = &db_notice;
  const auto ending = [&](const Result<std::string>& result) {
    status.finish();
    std::cerr << db_notice;
    return finish(result);
  };
  if (optimize_command->parsed() || explore_command->parsed()) std::signal(SIGINT, say_what_is_kept);
  int code = kWrongUsage;
  if (analyze_command->parsed()) code = ending(millrace::analyze_program(analyze));
  if (fuse_command->parsed()) code = ending(millrace::fuse_program(fuse));
  if (optimize_command->parsed()) code = ending(millrace::optimize_program(optimize));
  if (explore_command->parsed()) code = ending(millrace::explore_program(explore));
  if (select_command->parsed()) code = ending(millrace::select_program(select));
  if (run_command->parsed()) code = ending(millrace::run_program(run));
  if (bench_command->parsed()) code = ending(millrace::bench_plan(bench));
  if (report_command->parsed()) code = ending(millrace::report_program(report));
  if (doctor_command->parsed()) code = ending(millrace::examine_machine(doctor));
  if (db_command->parsed()) code = ending(db_action(db));
  for (const StageTime& stage : times) std::cerr << stage.name << ": " << stage.seconds * 1e3 << " ms\n";
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  // A write beyond `ulimit -f` fails with an error, which says so, in place of a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  spin_briefly(argv);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return kFailed;
  }
}
