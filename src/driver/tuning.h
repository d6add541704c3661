// What exploring, selecting and optimizing share: the program down to its partitions, and the machine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/enumerate.h"
#include "device/cpu/compiler.h"
#include "device/cpu/cpu_info.h"
#include "device/cpu/kernel_cache.h"
#include "device/gpu.h"
#include "fusion/fused_graph.h"
#include "measure/explore.h"
#include "millrace/millrace.h"
#include "plan/plan.h"

namespace millrace {

// A program and how its caller's tensors lie.
struct TuneProgram {
  ProgramSource source;
  std::string text;
  std::vector<std::pair<std::string, std::string>> layouts;
  std::string device = "cpu";
};

// The program down to its partitions, without ways.
struct Prepared {
  TrainingGraph training;
  FusedGraph fused;
  Candidates candidates;
};

Result<Prepared> prepare(const TuneProgram& program);

// A worker's first line, and back.
std::string greeting(const TuneProgram& program);
std::optional<TuneProgram> parse_greeting(const std::string& line);

// What the text of a machine begins with where it is a GPU's.
inline constexpr const char* kGpuDevice = "gpu ";

// The processor with its libraries and compiler, and the GPU where that is what kernels run on.
struct Machine {
  CpuInfo cpu;
  int threads = 1;
  std::optional<Compiler> compiler;
  std::optional<Error> no_compiler;  // why there is none
  std::shared_ptr<Gpu> gpu;
  std::shared_ptr<GpuCompiler> gpu_compiler;
  std::vector<GemmLibrary> libraries;
  std::map<GemmLibrary, std::string> missing;

  // All that changes a time, as one text.
  std::string text() const;
};

// `device`: "cpu" or "cuda".
Result<Machine> find_machine(const std::string& device, int threads);

// The user's kernels for this machine's processor, by this compiler.
Result<KernelCache> kernel_cache_of(const Compiler& compiler);

Result<TuneProgram> tune_program(const ExploreOptions& options);
// The one that a plan was made of.
TuneProgram tune_program(const StepPlan& plan);

// "90s", "5m", "1.5h"; plain numbers are seconds.
Result<double> parse_duration(const std::string& text);

// Of the user's own database, where `path` names no other.
Result<std::string> database_path(const std::string& path);

// All candidates of a program on this machine.
Result<Prepared> all_candidates(const ExploreOptions& options);

// And what came of trying them.
struct Tuned {
  TuneProgram program;
  Prepared prepared;
  Machine machine;
  Explored explored;
  bool from_cache = false;  // a step finds its tensors in the cache
};

enum class Measuring {
  within_budget,
  known,    // nothing: what the database has
  assumed,  // nothing: what the database has, and beside it what the model says
};

Result<Tuned> tune(const ExploreOptions& options, Measuring measuring);
// The same of a program that is at hand.
Result<Tuned> tune(const ExploreOptions& options, TuneProgram program, Measuring measuring);

}  // namespace millrace
