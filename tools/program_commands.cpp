// Commands that read a program: analyze, fuse, run, explore, optimize, select.
#include <limits>
#include <memory>

#include "tools/command_line.h"
#include "tools/validators.h"

namespace {

using millrace::AnalyzeOptions;
using millrace::ExploreOptions;
using millrace::Format;
using millrace::FuseOptions;
using millrace::OptimizeOptions;
using millrace::RunOptions;
using millrace::SelectOptions;

void add_timings(CLI::App& command, CommandLine& line, std::vector<millrace::StageTime>*& times) {
  command.add_flag_callback(
      "--timings", [&line, &times] { times = &line.times; }, "print each stage's time to standard error");
}

// Other formats of analyze; each excludes all others.
void add_format(CLI::App& command, const std::string& flag, const std::string& help, Format format, Format& chosen) {
  CLI::Option* const added = command.add_flag_callback(
      flag, [format, &chosen] { chosen = format; }, help);
  for (CLI::Option* const other : command.get_options()) {
    if (other->check_name("--json") || other->check_name("--dot")) {
      if (other != added) added->excludes(other);
    }
  }
}

void add_analyze(CommandLine& line) {
  CLI::App& command = line.add(line.app, "analyze",
                               "show flop, words, class and I/O lower bound of every operator, forward and backward");
  const auto options = std::make_shared<AnalyzeOptions>();
  add_program(command, options->program);
  add_json(command, options->format);
  add_format(command, "--dot", "print the graph for Graphviz, with words on the edges", Format::dot, options->format);
  add_format(command, "--graph", "print the graph as text, with the values saved for backward", Format::graph,
             options->format);
  command
      .add_option("--fast-memory", options->fast_memory_bytes,
                  "cache size for the I/O lower bound (default: 50MiB, the L2 of an H200)")
      ->transform(bytes())
      ->type_name("BYTES");
  add_timings(command, line, options->timings);
  command.footer(
      "Examples:\n"
      "  millrace analyze models/bert_encoder.py\n"
      "  millrace analyze models/bert_encoder.py --size B=96,J=128 --json\n"
      "  millrace analyze models/mha.py --dot | dot -Tsvg > mha.svg");
  line.set_action(command, "analyzing", [&line, options] {
    if (line.verbose) options->timings = &line.times;
    options->program.warn = line.warn();
    return millrace::analyze_program(*options);
  });
}

void add_fuse(CommandLine& line) {
  CLI::App& command =
      line.add(line.app, "fuse", "show which operators run as one kernel, and how many words that saves");
  const auto options = std::make_shared<FuseOptions>();
  add_program(command, options->program);
  command.add_flag("--explain", options->explain, "print whether each neighbouring pair fused, and if not, why");
  add_json(command, options->format);
  add_timings(command, line, options->timings);
  command.footer(
      "Examples:\n"
      "  millrace fuse models/bert_encoder.py\n"
      "  millrace fuse models/llama_block.py --size tiny --explain");
  line.set_action(command, "fusing", [&line, options] {
    if (line.verbose) options->timings = &line.times;
    options->program.warn = line.warn();
    return millrace::fuse_program(*options);
  });
}

void add_run(CommandLine& line) {
  CLI::App& command = line.add(line.app, "run", "run forward and backward of a program or plan once");
  const auto options = std::make_shared<RunOptions>();
  add_program(command, options->program, "a program, such as models/bert_encoder.py, or a plan");
  command
      .add_option("--device", options->device,
                  "reference: an interpreter in float64 (default for a program); a plan runs on its own device")
      ->type_name("reference|cpu|cuda");
  add_inputs(command, options->in,
             "file with arguments by name, and d_NAME for the results' gradients (default: random)");
  command.add_option("--out", options->out, "file for the results, and d_NAME for the arguments' gradients")
      ->type_name("FILE.safetensors");
  add_denormals(command, options->keep_denormals);
  command.add_option("--seed", options->seed, "seed of random inputs and dropout")
      ->check(whole_number(0, std::numeric_limits<int64_t>::max()))
      ->type_name("N");
  command.add_option("--step", options->step, "step number for dropout: every step has different masks")
      ->check(whole_number(0, std::numeric_limits<uint32_t>::max()))
      ->type_name("N");
  add_json(command, options->format);
  command.footer(
      "Examples:\n"
      "  millrace run models/bert_encoder.py --size tiny\n"
      "  millrace run models/mha.py --size tiny --in t.safetensors --out r.safetensors\n"
      "  millrace run plan/plan.json --in t.safetensors --out r.safetensors");
  line.set_action(command, "running", [&line, options] {
    options->notice = line.notice;
    options->program.warn = line.warn();
    return millrace::run_program(*options);
  });
}

void add_budget(CLI::App& command, ExploreOptions& options) {
  command.add_option("--budget", options.budget, "time for the whole command (default: 60s; on a GPU 240s)")
      ->type_name("TIME");
  command.add_flag("--exhaustive", options.exhaustive,
                   "measure every candidate (on a GPU one per timing class), however long it takes");
}

void add_explore(CommandLine& line) {
  CLI::App& command = line.add(line.app, "explore", "check and time candidates for every partition of a program");
  const auto options = std::make_shared<ExploreOptions>();
  add_search(command, *options);
  add_budget(command, *options);
  command.add_option("--shard", options->shard, "try only this share of the candidates; db merge joins the results")
      ->type_name("NUMBER/COUNT");
  command.add_flag("--explain", options->explain,
                   "count the candidates, and say why others were rejected, without measuring");
  command.add_option("--out", options->out, "file for the measurements")->type_name("FILE.json");
  add_json(command, options->format, "print the measurements as JSON, with --explain the counts; errors are JSON, too");
  command.footer(
      "Every outcome is stored: an interrupted run continues where it stopped.\n\n"
      "Examples:\n"
      "  millrace explore models/bert_encoder.py --size tiny --budget 20s\n"
      "  millrace explore models/bert_encoder.py --size tiny --budget 20s --shard 3/16 --db shard3.db\n"
      "  millrace explore models/mha.py --size tiny --explain");
  line.set_measuring_action(command, [&line, options] {
    line.listen(*options);
    return millrace::explore_program(*options);
  });
}

void add_optimize(CommandLine& line) {
  CLI::App& command =
      line.add(line.app, "optimize", "find the fastest plan for forward and backward, write it, check it and time it");
  const auto options = std::make_shared<OptimizeOptions>();
  add_search(command, options->explore);
  add_budget(command, options->explore);
  add_method(command, options->method);
  command.add_option("--out", options->out, "folder for the plan (default: NAME.plan)")->type_name("DIR");
  add_inputs(command, options->in,
             "file of example inputs, as for run: the plan is timed and checked with them (default: random)");
  add_json(command, options->explore.format);
  command.footer(
      "Measurements are stored: an interrupted run continues where it stopped.\n\n"
      "Examples:\n"
      "  millrace optimize models/bert_encoder.py --size tiny\n"
      "  millrace optimize models/bert_encoder.py --size base --dtype float32 --budget 5m --out bert.plan");
  line.set_measuring_action(command, [&line, options] {
    line.listen(options->explore);
    return millrace::optimize_program(*options);
  });
}

void add_select(CommandLine& line) {
  CLI::App& command = line.add(line.app, "select", "find the fastest combination of measured candidates");
  const auto options = std::make_shared<SelectOptions>();
  add_search(command, options->explore);
  add_method(command, options->method);
  command
      .add_option("--seconds", options->seconds,
                  "end the search after this time, with the best selection found so far (default: 10)")
      ->check(number(0, std::numeric_limits<double>::max()))
      ->type_name("N");
  add_json(command, options->explore.format);
  command.footer(
      "PROGRAM may be a JSON file of measurements, as written by explore --out.\n\n"
      "Examples:\n"
      "  millrace select models/bert_encoder.py --size tiny\n"
      "  millrace select measurements.json --method sssp");
  line.set_action(command, "reading", [&line, options] {
    line.listen(options->explore);
    return millrace::select_program(*options);
  });
}

}  // namespace

void add_program_commands(CommandLine& line) {
  add_analyze(line);
  add_fuse(line);
  add_run(line);
  add_explore(line);
  add_optimize(line);
  add_select(line);
}
