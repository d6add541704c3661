// The public API: what the `millrace` program does, as functions from options to the text it prints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// A program on disk and how to read it.
struct ProgramSource {
  std::string path;
  std::string entry;               // the function to take; empty: the last one
  std::vector<std::string> sizes;  // "tiny" (a set of SIZES) or "J=128"; later ones win
  std::string dtype;               // stores every tensor as this; empty: as annotated
};

enum class Format {
  text,   // a table for people
  json,   // for programs, with a schema_version
  dot,    // for Graphviz
  graph,  // the dataflow graph, one line an operator
};

// One stage of the way through, as it was run.
struct StageTime {
  std::string name;
  double seconds = 0;
};

struct AnalyzeOptions {
  ProgramSource program;
  Format format = Format::text;
  int64_t fast_memory_bytes = int64_t{50} << 20;  // an H200's L2 cache
  int width = 100;                                // columns of the table
  std::vector<StageTime>* timings = nullptr;      // filled when there
};

// Flop, words, class and lower bound of every operator of forward and backward.
Result<std::string> analyze_program(const AnalyzeOptions& options);

struct FuseOptions {
  ProgramSource program;
  Format format = Format::text;
  bool explain = false;  // every neighbouring pair, and why it fused or did not
  int width = 100;
  std::vector<StageTime>* timings = nullptr;
};

// The groups of operators that run as one kernel each, and the words that saves.
Result<std::string> fuse_program(const FuseOptions& options);

struct RunOptions {
  ProgramSource program;  // its path may be a plan's
  std::string device;     // reference, or for a plan cpu; empty: reference for a program, cpu for a plan
  std::string in;     // a safetensors file with the arguments, and d_NAME for results' gradients; empty: all are drawn
  std::string out;    // where results and gradients go; empty: nowhere
  uint64_t seed = 0;  // of drawn tensors and of dropout
  uint32_t step = 0;  // of dropout
  Format format = Format::text;
  std::function<void(const std::string&)> notice;  // a line for the user, before long work
};

// Forward and backward once; the text says what came out.
Result<std::string> run_program(const RunOptions& options);

struct BenchOptions {
  std::string path;      // of a plan
  std::string in;        // safetensors with arguments by name, and d_NAME for results' gradients; empty: drawn
  double seconds = 3;    // to spend on timing, about
  std::string trace;     // where a timeline of a few steps goes, for Perfetto; empty: nowhere
  bool kernels = false;  // only generated kernels, one by one: for tools that cannot follow a library's
  Format format = Format::text;
  int width = 100;
};

// The plan's forward, backward and step, timed, and each of its launches beside its predicted time.
Result<std::string> bench_plan(const BenchOptions& options);

struct DatabaseOptions {
  std::string path;  // the database; empty: the user's own
  std::string file;  // of rows: what is merged or imported, or where they go; empty: into the result
  Format format = Format::text;
  int width = 100;
  std::string* notice = nullptr;  // filled, when there, with what must be said beside the result
};

// What the database of measurements holds, for each device.
Result<std::string> list_database(const DatabaseOptions& options);
// Takes over another database's rows; of two with the same key the later one stays.
Result<std::string> merge_database(const DatabaseOptions& options);
// All rows as JSON lines; of a damaged database those that can be read, which the notice says.
Result<std::string> export_database(const DatabaseOptions& options);
// Takes over exported rows, all or none.
Result<std::string> import_database(const DatabaseOptions& options);

// How far an exploration is; shown on a terminal.
struct Progress {
  double done = 0;  // candidates
  double total = 0;
  double bound = 0;    // seconds of a step so far, if every partition could take its fastest way
  double seconds = 0;  // of the best selection so far; 0: none yet
  double left = 0;     // seconds of the budget; 0: no budget
  std::string doing;
};

struct ExploreOptions {
  ProgramSource program;
  std::string device = "cpu";
  std::vector<std::string>
      layouts;         // "x=BJI", "wq=any", "wq+wk=stacked": how the caller's tensors lie; else as written
  std::string budget;  // "90s", "5m", "1h"; empty: 60s, on a GPU 240s
  bool exhaustive = false;
  int threads = 0;       // 0: OMP_NUM_THREADS, or the cores that there are
  std::string database;  // empty: the user's own
  bool explain = false;  // what was rejected, and why, in place of measuring
  Format format = Format::text;
  std::string out;  // where the measurements go as JSON; empty: nowhere
  int width = 100;
  std::function<void(const Progress&)> progress;
  std::function<void(const std::string&)> notice;  // a line for the user, before the work
};

// Checks and times candidates, and keeps every outcome in the database.
Result<std::string> explore_program(const ExploreOptions& options);

struct SelectOptions {
  ExploreOptions explore;        // its program, or a JSON file of measurements
  std::string method = "exact";  // or "sssp", the paper's
};

// The best combination of what has been measured.
Result<std::string> select_program(const SelectOptions& options);

struct OptimizeOptions {
  ExploreOptions explore;
  std::string method = "exact";
  std::string out;  // the plan's folder; empty: NAME.plan in the working directory
};

// All of it: explores, selects, writes a plan, runs it against the reference, and says what was gained.
Result<std::string> optimize_program(const OptimizeOptions& options);

// A plan at once: nothing is measured or checked; what earlier explorations found is used, and where there is nothing a
// model of the bytes that are moved. The text is the plan's folder.
Result<std::string> plan_program(const OptimizeOptions& options);

struct ReportOptions {
  ExploreOptions explore;            // its program's path may be a plan's
  std::string method = "exact";      // of a program: how to select
  std::vector<std::string> compare;  // two plans, in place of a program
  std::string out = "report.html";
  std::string csv;       // folder for every table; empty: none
  std::string svg;       // folder for every picture; empty: none
  bool colours = false;  // in the text
};

// Where the data goes, from what was measured before: one HTML file, and its summary as text or JSON.
Result<std::string> report_program(const ReportOptions& options);

struct DoctorOptions {
  Format format = Format::text;
};

// What Millrace finds on this machine, and for what is missing how to get it. Makes nothing.
Result<std::string> examine_machine(const DoctorOptions& options);

// "0.1.0"
std::string version();

}  // namespace millrace
