// What explore, select, optimize and report share: a program's candidates, the machine, and its measurements. Test:
// tests/python/optimize_test.py
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/enumerate.h"
#include "device/backend.h"
#include "device/cpu/compiler.h"
#include "device/cpu/cpu_info.h"
#include "device/cpu/kernel_cache.h"
#include "driver/phases.h"
#include "driver/stages.h"
#include "fusion/fused_graph.h"
#include "measure/explore.h"
#include "millrace/millrace.h"
#include "plan/plan.h"

namespace millrace {

// A program and the layouts of the caller's tensors.
struct TuneProgram {
  ProgramSource source;
  std::string text;
  std::vector<std::pair<std::string, std::string>> layouts;
  std::string device;  // a backend's name
  Fusing fusing = Fusing::fused;
};

// A program's partitions, without configs.
struct Prepared {
  TrainingGraph training;
  FusedGraph fused;
  Candidates candidates;
};

Result<Prepared> prepare(Stages& stages, const TuneProgram& program);

// A worker's first line, and its parser.
std::string greeting(const TuneProgram& program);
std::optional<TuneProgram> parse_greeting(const std::string& line);

// The processor, and the backend that kernels run on, with its libraries.
struct Machine {
  std::shared_ptr<const Backend> backend;
  CpuInfo cpu;
  int threads = 1;
  std::optional<Error> no_compiler;  // why kernels cannot be compiled
  double compiler_seconds = 0.2;     // what a small kernel takes; on a busy machine more

  const Target& target() const { return backend->target(); }
  // Everything that affects times, as one text.
  std::string text() const { return backend->text(); }
};

// `device`: a backend's name.
Result<Machine> find_machine(const std::string& device, int threads);

// The bytes of the machine's memory that a worker may use.
int64_t workers_share_of_memory();

// Finds the configs of its partitions on a machine.
EnumerateOptions enumerate_options(const TuneProgram& program, const Machine& machine);

// The user's cache of kernels for this processor and compiler.
Result<KernelCache> kernel_cache_of(const Compiler& compiler);

Result<TuneProgram> tune_program(const ExploreOptions& options);
// The program of a plan.
TuneProgram tune_program(const StepPlan& plan);

// "90s", "5m", "1.5h"; plain numbers are seconds.
Result<double> parse_duration(const std::string& text);

// `path`, or the path of the user's own database if it is empty.
Result<std::string> database_path(const std::string& path);
// The same for a reader: creates no folder.
Result<std::string> find_database_path(const std::string& path);

// All candidates of a program on this machine.
Result<Prepared> all_candidates(const ExploreOptions& options);

// A program's candidates and their measurements.
struct Tuned {
  TuneProgram program;
  Prepared prepared;
  Machine machine;
  Explored explored;
  bool from_cache = false;     // the tensors of a step fit into the cache
  double budget = 0;           // seconds; infinite: none
  double prepare_seconds = 0;  // that fusing took, and finding the partitions
};

enum class Measuring {
  within_budget,
  known,    // measure nothing: use the database
  assumed,  // measure nothing: use the database, and the model where it has no time
};

// When a command with this budget must end; never if the exploration is exhaustive.
Result<Deadline> deadline_of(const ExploreOptions& options);

// What a command needs after the exploration.
struct FinishTime {
  double reserved = 0;  // seconds of the budget
  double grace = 0;     // seconds that an exploration may take longer to measure a first plan
};
// Null: nothing.
using FinishEstimate = FinishTime (*)(const Prepared& prepared, const Machine& machine, double budget);

Result<Tuned> tune(const ExploreOptions& options, Measuring measuring, Phases& phases, FinishEstimate finish = nullptr);
// The same for a program that was already read.
Result<Tuned> tune(const ExploreOptions& options, TuneProgram program, Measuring measuring, Phases& phases,
                   FinishEstimate finish = nullptr);

}  // namespace millrace
