// The public API: the commands of the `millrace` program, as functions from options to the printed text.
// Test: tests/python/cli_test.py
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// How often a waiting thread of OpenMP looks again before it sleeps (GOMP_SPINCOUNT), in the program and in workers. In
// other programs, such as Python, their own setting applies.
inline constexpr const char* kSpinCount = "100";

// A program file and how to read it.
struct ProgramSource {
  std::string path;
  std::string entry;                                 // the function to compile; empty: the last one
  std::vector<std::string> sizes;                    // "tiny" (a set of SIZES) or "J=128"; later ones win
  std::string dtype;                                 // the storage type of every tensor; empty: as annotated
  std::function<void(const Diagnostic&)> warn = {};  // called with each warning for its author
};

enum class Format {
  text,   // a table for people
  json,   // for programs, with a schema_version
  dot,    // for Graphviz
  graph,  // the dataflow graph, one line per operator
};

// How long one stage took.
struct StageTime {
  std::string name;
  double seconds = 0;
};

struct AnalyzeOptions {
  ProgramSource program;
  Format format = Format::text;
  int64_t fast_memory_bytes = int64_t{50} << 20;  // an H200's L2 cache
  int width = 100;                                // columns of the table
  std::vector<StageTime>* timings = nullptr;      // filled if not null
};

// Flop, words, class and I/O lower bound of every operator, forward and backward.
Result<std::string> analyze_program(const AnalyzeOptions& options);

struct FuseOptions {
  ProgramSource program;
  Format format = Format::text;
  bool explain = false;  // every neighbouring pair, and why it did or did not fuse
  int width = 100;
  std::vector<StageTime>* timings = nullptr;
};

// The operators that run as one kernel, and the words that this saves.
Result<std::string> fuse_program(const FuseOptions& options);

struct RunOptions {
  ProgramSource program;  // its path may be a plan's
  std::string device;     // reference, or the plan's device; empty: reference for a program, its device for a plan
  std::string in;     // a safetensors file with the arguments, and d_NAME for results' gradients; empty: random values
  std::string out;    // file for results and gradients; empty: none
  uint64_t seed = 0;  // of random inputs and of dropout
  uint32_t step = 0;  // of dropout
  bool keep_denormals = false;  // by default, plans on the CPU flush denormal numbers to zero: computing them is slow
  Format format = Format::text;
  std::function<void(const std::string&)> notice;  // a line for the user, before long work
};

// Runs forward and backward once; the text summarizes the results.
Result<std::string> run_program(const RunOptions& options);

struct BenchOptions {
  std::string path;             // of a plan
  std::string in;               // a safetensors file, as for RunOptions; empty: random values
  double seconds = 3;           // approximate time to spend
  bool keep_denormals = false;  // as for RunOptions
  std::string trace;            // file for a timeline of a few steps, for Perfetto; empty: none
  bool kernels = false;         // generated kernels only, one by one, for tools that cannot handle a library's
  Format format = Format::text;
  int width = 100;
};

// Times the plan's forward, backward and step, and each launch next to its predicted time.
Result<std::string> bench_plan(const BenchOptions& options);

struct DatabaseOptions {
  std::string path;                 // the database; empty: the user's own
  std::string file;                 // to import or export; export without one returns the rows
  std::vector<std::string> others;  // databases to merge into it
  Format format = Format::text;
  int width = 100;
  std::function<void(const std::string&)> notice;  // a message in addition to the result
  // For prune_database: selects the rows that satisfy all given conditions.
  std::string before;      // "2026-01-31": taken before this day
  std::string other_than;  // of devices whose text does not contain this
  bool refused = false;    // of candidates that were wrong, crashed or failed
  bool dry_run = false;    // count them, but delete nothing
};

// What the database of measurements contains, per device and per program.
Result<std::string> list_database(const DatabaseOptions& options);
// Adds other databases' rows; of two rows with the same key the later one is kept.
Result<std::string> merge_database(const DatabaseOptions& options);
// All rows as JSON lines; of a damaged database those that can be read, with a notice.
Result<std::string> export_database(const DatabaseOptions& options);
// Adds exported rows, all or none.
Result<std::string> import_database(const DatabaseOptions& options);

// Deletes rows.
Result<std::string> prune_database(const DatabaseOptions& options);

struct CacheOptions {
  Format format = Format::text;
};

// Where compiled kernels are, how many, and their size.
Result<std::string> show_cache(const CacheOptions& options);
// Deletes them. They are compiled again when they are needed.
Result<std::string> clean_cache(const CacheOptions& options);

// The state of an exploration, for display.
struct Progress {
  double done = 0;  // candidates
  double total = 0;
  double bound = 0;    // lower bound of a step so far, in seconds: every partition with its fastest candidate
  double seconds = 0;  // of the best selection so far; 0: none yet
  double left = 0;     // seconds left of the budget; 0: no budget
  std::string doing;
};

struct ExploreOptions {
  ProgramSource program;
  std::string device = "cpu";
  std::vector<std::string> layouts;  // of the caller's tensors: "x=BJI", "wq=any", "wq+wk=stacked"; else as written
  std::string budget;                // "90s", "5m", "1h"; empty: 60s, on a GPU 240s
  bool exhaustive = false;
  std::string shard;     // "3/16": try only this share of the candidates; empty: all
  int threads = 0;       // 0: OMP_NUM_THREADS, or all cores
  std::string database;  // empty: the user's own
  bool explain = false;  // list candidates and why others were rejected; measure nothing
  Format format = Format::text;
  std::string out;  // JSON file for the measurements; empty: none
  int width = 100;
  std::function<void(const Progress&)> progress;
  std::function<void(const std::string&)> notice;  // a line for the user, before the work
};

// Checks and times candidates, and stores every outcome in the database.
Result<std::string> explore_program(const ExploreOptions& options);

// What the database contains about the program on this machine. Measures nothing.
Result<std::string> show_measurements(const ExploreOptions& options);

struct SelectOptions {
  ExploreOptions explore;        // its program may be a JSON file of measurements
  std::string method = "exact";  // or "sssp", the paper's shortest path
  double seconds = 10;           // the search ends after this time, with the best selection found so far
};

// The best combination of what has been measured.
Result<std::string> select_program(const SelectOptions& options);

struct OptimizeOptions {
  ExploreOptions explore;
  std::string method = "exact";
  std::string out;  // the plan's folder; empty: NAME.plan in the working directory
  std::string in;   // a safetensors file of example inputs, as for RunOptions, to time and check with; empty: random
};

// Explores, selects, writes a plan, checks it against the reference, and reports the gain.
Result<std::string> optimize_program(const OptimizeOptions& options);

// Writes a plan without measuring or checking: it uses earlier measurements, and where there are none a model of the
// bytes moved. The text is the plan's folder.
Result<std::string> plan_program(const OptimizeOptions& options);

struct ReportOptions {
  ExploreOptions explore;            // its program's path may be a plan's
  std::string method = "exact";      // how to select, for a program
  std::vector<std::string> compare;  // two plans to compare, in place of a program
  std::string out;                   // empty: report.html, of a plan in the plan's folder
  bool open = false;                 // opens it with the desktop's browser
  std::string csv;                   // folder for every table; empty: none
  std::string svg;                   // folder for every picture; empty: none
  bool colours = false;              // in the text
};

// Reports data movement and times from earlier measurements: an HTML file, and a summary as text or JSON.
Result<std::string> report_program(const ReportOptions& options);

struct DoctorOptions {
  Format format = Format::text;
};

// What Millrace finds on this machine, and how to install what is missing. Creates nothing.
Result<std::string> examine_machine(const DoctorOptions& options);

// A warning, printed as errors are: `file:line:column: warning: …`
std::string warning_text(const Diagnostic& warning);

// An error as a JSON object, with the exit code of the program that fails with it.
std::string error_json(const Error& error, int exit_code);

// "0.1.0"
std::string version();

}  // namespace millrace
