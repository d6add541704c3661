// Commands that read a plan, or the machine: bench, report, doctor.
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "tools/command_line.h"
#include "tools/validators.h"

namespace {

using millrace::BenchOptions;
using millrace::DoctorOptions;
using millrace::ReportOptions;

void add_bench(CommandLine& line) {
  CLI::App& command =
      line.add(line.app, "bench", "time a plan and each of its launches, next to their predicted times");
  const auto options = std::make_shared<BenchOptions>();
  command.add_option("PLAN", options->path, "a plan.json, or its folder")->required();
  add_inputs(command, options->in,
             "file with arguments by name, and d_NAME for the results' gradients (default: random)");
  command.add_option("--seconds", options->seconds, "approximate time to spend (default: 3)")
      ->check(number(0.01, 3600))
      ->type_name("N");
  add_denormals(command, options->keep_denormals);
  command.add_option("--trace", options->trace, "file for a timeline of a few steps; open it in ui.perfetto.dev")
      ->type_name("FILE.json");
  command
      .add_flag("--kernels", options->kernels,
                "time generated kernels only, one by one, for tools that cannot handle library kernels")
      ->excludes("--trace");  // a trace shows whole steps
  add_json(command, options->format);
  command.footer(
      "Examples:\n"
      "  millrace bench plan\n"
      "  millrace bench plan/plan.json --seconds 10 --json\n"
      "  millrace bench plan --in t.safetensors\n"
      "  millrace bench plan --trace timeline.json\n"
      "  compute-sanitizer --tool racecheck millrace bench plan --kernels --seconds 0.1");
  line.set_action(command, "measuring", [options] { return millrace::bench_plan(*options); });
}

void add_report(CommandLine& line) {
  CLI::App& command =
      line.add(line.app, "report", "report data movement and times as one HTML file, from earlier measurements");
  const auto options = std::make_shared<ReportOptions>();
  add_search(command, options->explore, "a plan, or a program such as models/bert_encoder.py");
  command.get_option("PROGRAM")->required(false);
  add_method(command, options->method);
  command.add_option("--compare", options->compare, "compare two plans")->expected(2)->type_name("A B");
  command.add_option("--out", options->out, "file for the report (default: report.html, for a plan in its folder)")
      ->type_name("FILE.html");
  command.add_flag("--open", options->open, "open the report in the browser");
  command.add_option("--csv", options->csv, "folder for every table as CSV")->type_name("DIR");
  command.add_option("--svg", options->svg, "folder for every picture as SVG")->type_name("DIR");
  add_json(command, options->explore.format, "print all tables as JSON; errors are JSON, too");
  command.footer(
      "Measures nothing: run millrace optimize or explore first.\n\n"
      "Examples:\n"
      "  millrace report bert_encoder.plan --open\n"
      "  millrace report models/bert_encoder.py --size tiny --csv tables --svg pictures\n"
      "  millrace report --compare one.plan other.plan");
  line.set_action(command, "reporting", [&line, options] {
    line.listen(options->explore);
    options->colours = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
    return millrace::report_program(*options);
  });
}

void add_doctor(CommandLine& line) {
  CLI::App& command =
      line.add(line.app, "doctor", "show what Millrace finds on this machine, and how to install what is missing");
  const auto options = std::make_shared<DoctorOptions>();
  add_json(command, options->format);
  command.footer(
      "Examples:\n"
      "  millrace doctor\n"
      "  millrace doctor --json");
  line.set_action(command, "looking", [options] { return millrace::examine_machine(*options); });
}

}  // namespace

void add_plan_commands(CommandLine& line) {
  add_bench(line);
  add_report(line);
  add_doctor(line);
}
