#include "driver/tuning.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/directories.h"
#include "base/file.h"
#include "base/installation.h"
#include "base/temporary_directory.h"
#include "base/text.h"
#include "candidates/candidate_source.h"
#include "codegen/lower.h"
#include "device/cpu/ceilings.h"
#include "device/cpu/machine_load.h"
#include "driver/file_kind.h"
#include "driver/pipeline.h"
#include "driver/plan_folder.h"
#include "frontend/frontend.h"
#include "measure/shard.h"
#include "measure/timing_class.h"
#include "report/exploration_report.h"
#include "select/cost_bounds.h"
#include "select/price.h"
#include "select/select.h"

namespace millrace {
namespace {

// Next to the program or the shared object, or in the installation.
Result<std::string> worker_path() {
  constexpr const char* kFile = "millrace-worker";
  std::vector<std::string> paths;
  if (const char* named = std::getenv("MILLRACE_WORKER")) {  // NOLINT(concurrency-mt-unsafe): nothing sets variables
    paths.emplace_back(named);
  } else {
    for (const auto& place : installed_places(kFile, InstalledIn::libexec)) paths.push_back(place.string());
  }
  for (const std::string& path : paths) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return Error::make(ErrorKind::unavailable, concat("millrace-worker is not at ", join(paths, " or ")),
                     "set MILLRACE_WORKER to its path");
}

bool is_set(const char* variable) {
  return std::getenv(variable) != nullptr;  // NOLINT(concurrency-mt-unsafe): nothing sets variables
}

// The reference allocates gigabytes for every partition. With 4 KiB pages that takes longer than computing the values,
// so workers for a device with its own memory use huge pages. Workers that time CPU kernels do not, because plans run
// with 4 KiB pages. Threads that wait spin briefly, as in the program.
std::map<std::string, std::string> worker_environment(const Machine& machine) {
  constexpr const char* kTunables = "GLIBC_TUNABLES";
  constexpr const char* kSpins = "GOMP_SPINCOUNT";
  std::map<std::string, std::string> variables;
  if (machine.target().own_memory && !is_set(kTunables)) variables[kTunables] = "glibc.malloc.hugetlb=1";
  if (!is_set(kSpins) && !is_set("OMP_WAIT_POLICY")) variables[kSpins] = kSpinCount;
  return variables;
}

// A candidate must not take all of the machine's memory. On a GPU there is no such limit, since it would count memory
// that the driver maps: the worker watches its own.
uint64_t worker_memory(const Machine& machine) {
  return machine.target().own_memory ? 0 : static_cast<uint64_t>(workers_share_of_memory());
}

}  // namespace

int64_t workers_share_of_memory() {
  constexpr double kShare = 0.8;  // of what is free
  return static_cast<int64_t>(kShare * static_cast<double>(available_memory()));
}

namespace {

// Up to this many combinations, the candidates of a partition are listed and counted one by one: before measuring, and
// for --explain.
constexpr double kMostCombinations = 15'000;
constexpr double kMostExplained = 100'000;
constexpr double kListingShare = 0.1;  // of the budget

// In seconds.
Result<double> budget_of(const ExploreOptions& options) {
  const Result<const BackendKind*> backend = backend_named(options.device);
  if (!backend) return backend.error();
  return parse_duration(options.budget.empty() ? std::string((*backend)->default_budget) : options.budget);
}

}  // namespace

EnumerateOptions enumerate_options(const TuneProgram& program, const Machine& machine) {
  EnumerateOptions options;
  options.threads = machine.threads;
  options.target = machine.target();
  options.libraries = machine.backend->libraries().there;
  options.missing = machine.backend->libraries().missing;
  options.lacking = machine.backend->libraries().lacking;
  options.layouts = program.layouts;
  options.most_combinations = kMostCombinations;
  return options;
}

Result<Prepared> prepare(Stages& stages, const TuneProgram& program) {
  const Result<const BackendKind*> backend = backend_named(program.device);
  if (!backend) return backend.error();
  const Result<TrainingGraph> training = train(stages, program.source, program.text);
  if (!training) return training.error();
  Result<Recomputed> made = program.fusing == Fusing::separate ? leave_separate(stages, *training)
                                                               : fuse_for_plan(stages, *training, (*backend)->target);
  if (!made) return made.error();
  EnumerateOptions options;
  options.layouts = program.layouts;
  options.target = (*backend)->target;
  Result<Candidates> candidates = find_partitions(stages, made->training, made->fused, options);
  if (!candidates) return candidates.error();
  return Prepared{std::move(made->training), std::move(made->fused), std::move(*candidates)};
}

std::string greeting(const TuneProgram& program) {
  return nlohmann::json{{"path", program.source.path},   {"entry", program.source.entry},
                        {"sizes", program.source.sizes}, {"dtype", program.source.dtype},
                        {"text", program.text},          {"layouts", program.layouts},
                        {"device", program.device}}
      .dump(-1, ' ', false,
            nlohmann::json::error_handler_t::replace);  // the path may contain any bytes; it is for messages
}

std::optional<TuneProgram> parse_greeting(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    TuneProgram program;
    json.at("path").get_to(program.source.path);
    json.at("entry").get_to(program.source.entry);
    json.at("sizes").get_to(program.source.sizes);
    json.at("dtype").get_to(program.source.dtype);
    json.at("text").get_to(program.text);
    json.at("layouts").get_to(program.layouts);
    json.at("device").get_to(program.device);
    return program;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

Result<Machine> find_machine(const std::string& device, int threads) {
  Result<std::shared_ptr<Backend>> backend = find_backend(device, threads);
  if (!backend) return backend.error();
  Machine machine;
  machine.backend = std::move(*backend);
  machine.cpu = cpu_info();
  machine.threads = threads > 0 ? threads : ::millrace::threads();
  const double begin = now();
  const Result<Done> compiles = machine.backend->can_compile();
  if (!machine.target().own_memory) machine.compiler_seconds = now() - begin;
  if (!compiles) {
    if (machine.target().own_memory) return compiles.error();  // nothing can be checked there
    machine.no_compiler = compiles.error();
  }
  return machine;
}

Result<KernelCache> kernel_cache_of(const Compiler& compiler) {
  const Result<std::string> directory = cache_directory();
  if (!directory) return directory.error();
  return cpu_kernel_cache(*directory, compiler);
}

Result<TuneProgram> tune_program(const ExploreOptions& options) {
  Result<std::string> text = read_program(options.program.path);
  if (!text) return text.error();
  TuneProgram program{options.program, std::move(*text), {}, options.device, Fusing::fused};
  for (const std::string& pin : options.layouts) {
    const size_t equals = pin.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error::make(ErrorKind::bad_input, concat("--layout ", pin, ": invalid layout"),
                         "write NAME=AXES, as in x=BJI, or NAME=any, or A+B=stacked");
    }
    program.layouts.emplace_back(pin.substr(0, equals), pin.substr(equals + 1));
  }
  return program;
}

TuneProgram tune_program(const StepPlan& plan) {
  const PlanProgram& program = plan.program;
  return {{program.file, program.entry, program.sizes, program.dtype},
          program.text,
          program.layouts,
          std::string(backend_of(plan).name),
          program.fusing};
}

Result<double> parse_duration(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, static_cast<const char*>(text.data() + text.size()));
  const double seconds = unit.empty() || unit == "s" ? 1 : unit == "m" || unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || seconds == 0 || !(value >= 0) || value * seconds > 1e7) {
    return Error::make(ErrorKind::bad_input, concat("--budget ", text, ": invalid time"), "write it as 90s, 5m or 1h");
  }
  return value * seconds;
}

Result<std::string> database_path(const std::string& path) {
  if (path.empty())
    if (const Result<std::string> folder = data_directory(); !folder) return folder;
  return find_database_path(path);
}

Result<std::string> find_database_path(const std::string& path) {
  if (!path.empty()) return path;
  Result<std::string> folder = find_data_directory();
  if (!folder) return folder;
  return concat(*folder, "/measurements.db");
}

Result<Prepared> all_candidates(const ExploreOptions& options) {
  const Result<TuneProgram> program = tune_program(options);
  if (!program) return program.error();
  Stages stages;
  Result<Prepared> prepared = prepare(stages, *program);
  if (!prepared) return prepared;
  const Result<Machine> machine = find_machine(options.device, options.threads);
  if (!machine) return machine.error();
  EnumerateOptions enumerating = enumerate_options(*program, *machine);
  enumerating.most_combinations = kMostExplained;
  Result<Candidates> candidates = enumerate(stages, prepared->training, prepared->fused, enumerating);
  if (!candidates) return candidates.error();
  prepared->candidates = std::move(*candidates);
  return prepared;
}

Result<Deadline> deadline_of(const ExploreOptions& options) {
  const Result<double> budget = budget_of(options);
  if (!budget) return budget.error();
  return options.exhaustive ? Deadline::never() : Deadline::after(*budget);
}

Result<Tuned> tune(const ExploreOptions& options, Measuring measuring, Phases& phases, FinishEstimate finish) {
  Result<TuneProgram> program = tune_program(options);
  if (!program) return program.error();
  return tune(options, std::move(*program), measuring, phases, finish);
}

namespace {

constexpr double kBaselineGraceSeconds = 3;  // after the budget, so that a plan of a tiny one is measured too

void announce(const ExploreOptions& options, const Candidates& candidates, const Machine& machine, double budget) {
  double configurations = 0;
  bool estimated = false;
  for (const PartitionCandidates& entry : candidates.partitions) {
    configurations += entry.configurations;
    estimated = estimated || entry.estimated;
  }
  options.notice(concat(
      candidates.partitions.size(), " partitions, ", estimated ? about(configurations) : with_commas(configurations),
      " candidates besides layout conversions",
      machine.target().gemm_algorithms ? ", plus all library algorithms of the best products" : "", "; ",
      options.exhaustive ? std::string("measuring all of them")
                         : concat("measuring the most promising ones; done after about ", fixed(budget, 0), " s")));
  if (machine.no_compiler)
    options.notice(concat("no generated kernels: ", machine.no_compiler->diagnostics.front().message));
}

Result<std::unique_ptr<KernelMaker>> kernel_maker_of(const Machine& machine) {
  const Result<std::string> directory = cache_directory();
  if (!directory) return directory.error();
  return make_kernel_maker(*machine.backend, *directory, machine.cpu.cores);
}

Wanted used_by(const Measurements& measurements, const Selection& selection) {
  Wanted wanted;
  for (const SelectedPartition& selected : selection.partitions) {
    const MeasuredPartition& partition = measurements.partitions[as_index(selected.partition)];
    wanted.candidates.push_back({partition.name, partition.candidates[as_index(selected.candidate)].candidate});
  }
  for (const SelectedConversion& conversion : selection.conversions) {
    for (const auto& [from, to] : conversion.chain())
      wanted.conversions.push_back({measurements.tensors[as_index(conversion.tensor)].name, from, to});
  }
  return wanted;
}

// A guess of the best selection, inside the stage `measure`: it guides the exploration and is no artefact.
Wanted wanted_of(const Measurements& measurements, double seconds) {
  const Result<Selection> selection = select_roughly(measurements, {std::min(seconds, kRoughLimits.seconds)});
  return selection ? used_by(measurements, *selection) : Wanted();
}

// Inside the stage `measure` too. Where candidates have unknown layouts, the bound ignores all layouts.
StepProof proof_of(const Measurements& measured, const BoundedMeasurements& bounded, double seconds) {
  StepProof proof;
  const Result<Selection> best = select(measured, SelectMethod::exact, {seconds / 3});
  if (!best) return proof;
  proof.step = best->cost;
  proof.lower_bound = unconstrained_bound(bounded.measurements);
  if (!bounded.every_layout) return proof;
  CostBounds bounds = cost_bounds(bounded.measurements, seconds / 3);
  proof.with = std::move(bounds.with);
  const Result<Selection> fastest = select(bounded.measurements, SelectMethod::exact, {seconds / 3});
  proof.lower_bound = std::max({proof.lower_bound, bounds.all, fastest ? fastest->lower_bound : 0.0});
  if (fastest) proof.wanted = used_by(bounded.measurements, *fastest);
  return proof;
}

// The machine, and in which caches trials find their tensors: what the times of a candidate depend on.
std::string device_text(const Machine& machine, const std::string& cache_use) {
  return concat(machine.text(), "; ", cache_use);
}

// Settings for a device with its own memory: compiling does not disturb its measurements, and products have many
// algorithms.
void set_for_own_memory(const Graph& graph, const Candidates& candidates, const EnumerateOptions& enumerating,
                        const Machine& machine, ExploreSettings& settings) {
  constexpr size_t kGpuBatch = 64;
  constexpr double kGpuHangSeconds = 180;  // the reference computes whole tensors
  settings.trial.caches = {true, machine.backend->gpu()->info().l2_bytes, 0};
  settings.batch = kGpuBatch;
  settings.compile_ahead = true;
  settings.hang_seconds = kGpuHangSeconds;
  settings.timing_class = [&graph, &candidates](const Partition& partition, const Candidate& candidate) {
    return timing_class_key(graph, candidates.domains, partition, candidate);
  };
  settings.refinements = [&graph, &candidates, &enumerating, gpu = machine.backend->gpu()](const Partition& partition,
                                                                                           const Candidate& candidate) {
    if (!std::holds_alternative<GemmConfig>(candidate.config))
      return configs_under(graph, candidates.domains, enumerating, partition, candidate.layouts);
    std::vector<Candidate> made;
    const Launch launch =
        lower(graph, partition, layouts_of(candidates.domains, partition, candidate), candidate.config);
    const Result<std::vector<GemmAlgorithm>> algorithms = gpu->algorithms(launch.gemm);
    if (!algorithms) return made;
    for (const GemmAlgorithm& algorithm : *algorithms) {
      made.push_back(candidate);
      std::get<GemmConfig>(made.back().config).algorithm = algorithm;
    }
    return made;
  };
}

// Records what was explored, as a user would ask for it, for `db list`.
Result<Done> name_program(const ProgramSource& program, const std::string& device, const Prepared& prepared,
                          Database& database) {
  const std::string name =
      concat(program.path, program.sizes.empty() ? "" : concat(" --size ", join(program.sizes, ",")),
             program.dtype.empty() ? "" : concat(" --dtype ", program.dtype),
             program.entry.empty() ? "" : concat(" --entry ", program.entry));
  std::vector<std::string> partitions;
  for (const PartitionCandidates& entry : prepared.candidates.partitions)
    partitions.push_back(print_partition(prepared.training.graph, entry.partition));
  return database.name_program(name, device, partitions);
}

struct OpenedDatabase {
  std::optional<TemporaryDirectory> folder;  // of a database that is not kept
  Database database;
};

// Commands that only read measurements need no permission to write, and create no database. The user's own may be
// missing, but not one that the user names.
Result<OpenedDatabase> open_database(const ExploreOptions& options, const std::string& path, Measuring measuring) {
  std::error_code failed;
  std::optional<TemporaryDirectory> folder;
  const bool may_be_missing = measuring == Measuring::assumed || options.database.empty();
  if (measuring != Measuring::within_budget && may_be_missing && !std::filesystem::exists(path, failed)) {
    Result<TemporaryDirectory> made = TemporaryDirectory::make();
    if (!made) return made.error();
    folder = std::move(*made);
  }
  const bool read = measuring != Measuring::within_budget && !folder;
  Result<Database> database =
      Database::open(folder ? folder->path() + "/none.db" : path, read ? DatabaseAccess::read : DatabaseAccess::write);
  if (!database) return database.error();
  return OpenedDatabase{std::move(folder), std::move(*database)};
}

}  // namespace

Result<Tuned> tune(const ExploreOptions& options, TuneProgram program, Measuring measuring, Phases& phases,
                   FinishEstimate finish) {
  const Result<double> budget = budget_of(options);
  if (!budget) return budget.error();
  const Result<Shard> shard = parse_shard(options.shard);
  if (!shard) return shard.error();
  if (measuring != Measuring::known && options.threads > thread_limit())
    return Error::make(ErrorKind::bad_input,
                       concat("--threads ", options.threads, ": the variable OMP_THREAD_LIMIT allows ", thread_limit()),
                       "unset it, or give fewer threads");
  phases.begin("fusing");
  program.device = options.device;
  Stages stages;
  const double begin = now();
  Result<Prepared> prepared = prepare(stages, program);
  if (!prepared) return prepared.error();
  const double prepare_seconds = now() - begin;
  Result<Machine> found = find_machine(options.device, options.threads);
  if (!found) return found.error();
  Machine& machine = *found;
  const std::vector<PartitionCandidates>& partitions = prepared->candidates.partitions;
  const bool needs_kernels = std::any_of(partitions.begin(), partitions.end(), [](const PartitionCandidates& entry) {
    return entry.partition.kind == PartitionKind::kernel;
  });
  if (measuring != Measuring::known && needs_kernels && machine.no_compiler) return *machine.no_compiler;
  EnumerateOptions enumerating = enumerate_options(program, machine);
  enumerating.every_shape = options.exhaustive;
  if (!options.exhaustive) enumerating.deadline = phases.deadline().share(kListingShare);
  phases.begin("enumerating");
  Result<Candidates> candidates = enumerate(stages, prepared->training, prepared->fused, enumerating);
  if (!candidates) return candidates.error();
  prepared->candidates = std::move(*candidates);
  if (measuring == Measuring::within_budget && options.notice)
    announce(options, prepared->candidates, machine, *budget);
  const Result<std::string> path =
      measuring == Measuring::within_budget ? database_path(options.database) : find_database_path(options.database);
  if (!path) return path.error();
  Result<OpenedDatabase> opened = open_database(options, *path, measuring);
  if (!opened) return opened.error();
  Database& database = opened->database;
  const Result<std::unique_ptr<KernelMaker>> kernels = kernel_maker_of(machine);
  if (!kernels) return kernels.error();
  const Result<std::string> worker_program =
      measuring == Measuring::within_budget ? worker_path() : Result<std::string>(std::string());
  if (!worker_program) return worker_program.error();
  Worker worker({{*worker_program}, greeting(program), worker_memory(machine), worker_environment(machine)});

  ExploreSettings settings;
  settings.measure = measuring == Measuring::within_budget;
  settings.compilers = static_cast<size_t>(std::max(machine.cpu.cores, 1));
  settings.assume = measuring == Measuring::assumed;
  settings.exhaustive = settings.measure && options.exhaustive;
  if (!settings.measure) settings.deadline = Deadline::after(0);
  const FinishTime finishing = finish ? finish(*prepared, machine, *budget) : FinishTime{0, kBaselineGraceSeconds};
  if (settings.measure && !settings.exhaustive) settings.deadline = phases.deadline().earlier_by(finishing.reserved);
  settings.baseline_grace = finishing.grace;
  const Graph& graph = prepared->training.graph;
  settings.trial.caches = cache_use(bytes_of_tensors(graph), machine.cpu.last_level_cache);
  if (machine.target().own_memory) set_for_own_memory(graph, prepared->candidates, enumerating, machine, settings);
  settings.device = device_text(machine, print_cache_use(settings.trial.caches));
  if (!machine.target().own_memory) {
    for (const std::string& use : all_cache_uses(machine.cpu.last_level_cache))
      settings.similar_devices.push_back(device_text(machine, use));
  }
  CandidateSources sources(graph, prepared->candidates, enumerating);
  settings.more = [&](size_t partition, size_t most) { return sources.next(partition, most); };
  settings.configs_under = [&](const Partition& partition, const std::vector<int>& layouts) {
    return configs_under(graph, prepared->candidates.domains, enumerating, partition, layouts);
  };
  settings.conversions = [&](TensorId tensor, int from, int to) {
    return conversions(graph, prepared->candidates.domains[tensor.at()], tensor, from, to, machine.threads,
                       enumerating.target);
  };
  settings.wanted = wanted_of;
  if (settings.measure) settings.prove = proof_of;
  settings.threads = machine.threads;
  if (settings.measure && !machine.target().own_memory)
    settings.ceilings = measure_ceilings(
        {machine.threads, settings.trial.caches.cold ? settings.trial.caches.cache_bytes : int64_t{0}});
  if (shard->count > 1)
    settings.mine = [shard = *shard](const std::string& partition, const std::string& candidate) {
      return shard.has(partition, candidate);
    };
  settings.select = [](const Measurements& so_far, double seconds) {
    const Result<Selection> selection = select_roughly(so_far, {std::min(seconds, kRoughLimits.seconds)});
    return selection ? selection->cost : 0;
  };
  if (options.progress) settings.progress = [&](const ExploreProgress& so_far) { phases.explore(so_far); };
  Result<Explored> explored = measure(stages, graph, prepared->candidates, settings, kernels->get(), database, worker);
  if (!explored) return explored.error();
  if (settings.measure) {
    if (Result<Done> named = name_program(options.program, settings.device, *prepared, database); !named)
      return named.error();
  }
  return Tuned{std::move(program),
               std::move(*prepared),
               std::move(machine),
               std::move(*explored),
               !settings.trial.caches.cold,
               options.exhaustive ? std::numeric_limits<double>::infinity() : *budget,
               prepare_seconds};
}

}  // namespace millrace
