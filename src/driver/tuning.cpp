#include "driver/tuning.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/directories.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "codegen/cpu/generate.h"
#include "device/cpu/blas_library.h"
#include "device/cpu/kernel_cache.h"
#include "driver/stages.h"
#include "frontend/frontend.h"
#include "fusion/fuse.h"
#include "fusion/verify.h"
#include "measure/verify.h"
#include "select/select.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

// The folder of the file that this code was loaded from: a program, or a shared object in one.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

// Beside the program or the shared object, or where the library was installed.
Result<std::string> worker_path() {
  std::vector<std::string> places;
  if (const char* named =
          std::getenv("MILLRACE_WORKER")) {  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
    places.emplace_back(named);
  } else {
    std::array<char, PATH_MAX> self{};
    const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
    const std::string path(self.data(), length > 0 ? static_cast<size_t>(length) : 0);
    places.push_back(concat(path.substr(0, path.rfind('/')), "/millrace-worker"));
    if (const std::string folder = own_folder(); !folder.empty()) places.push_back(concat(folder, "/millrace-worker"));
    places.emplace_back(MILLRACE_LIBEXEC "/millrace-worker");
  }
  for (const std::string& place : places) {
    if (access(place.c_str(), X_OK) == 0) return place;
  }
  return Error::make(ErrorKind::unavailable, concat("millrace-worker is not at ", join(places, " or ")),
                     "set MILLRACE_WORKER to where it is");
}

// Whether the program's tensors fit into the last cache together: then a step finds them there.
bool is_cold(const Graph& graph, const CpuInfo& cpu) {
  double bytes = 0;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    if (words_of(graph, TensorId(k)) > 0)
      bytes += static_cast<double>(elements_of(graph, TensorId(k)) * bytes_of(graph.tensors[k].dtype));
  }
  return bytes > static_cast<double>(cpu.last_level_cache);
}

EnumerateOptions enumerate_options(const TuneProgram& program, const Machine& machine, bool exhaustive) {
  EnumerateOptions options;
  options.threads = machine.threads;
  options.libraries = machine.libraries;
  options.missing = machine.missing;
  options.layouts = program.layouts;
  if (exhaustive) options.most = std::numeric_limits<size_t>::max() / 8;
  return options;
}

}  // namespace

Result<Prepared> prepare(const TuneProgram& program, std::vector<StageTime>* timings) {
  Stages stages(timings);
  Result<TrainingGraph> training = stages.train(program.source, program.text);
  if (!training) return training.error();
  const auto check = [&](const FusedGraph& fused) { return verify(*training, fused); };
  Result<FusedGraph> fused = stages.run(
      "fuse", [&] { return Result<FusedGraph>(fuse(*training)); }, check);
  if (!fused) return fused.error();
  EnumerateOptions options;
  options.layouts = program.layouts;
  Result<Candidates> candidates = find_parts(*training, *fused, options);
  if (!candidates) return candidates.error();
  return Prepared{std::move(*training), std::move(*fused), std::move(*candidates)};
}

std::string greeting(const TuneProgram& program) {
  return Json{{"path", program.source.path},   {"entry", program.source.entry}, {"sizes", program.source.sizes},
              {"dtype", program.source.dtype}, {"text", program.text},          {"layouts", program.layouts}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);  // a path may hold anything; it is for messages
}

std::optional<TuneProgram> parse_greeting(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    TuneProgram program;
    json.at("path").get_to(program.source.path);
    json.at("entry").get_to(program.source.entry);
    json.at("sizes").get_to(program.source.sizes);
    json.at("dtype").get_to(program.source.dtype);
    json.at("text").get_to(program.text);
    json.at("layouts").get_to(program.layouts);
    return program;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string Machine::text() const {
  std::string text = concat("cpu ", cpu.identity(), ", ", threads, " threads of ", cpu.cores, " cores; ");
  text += compiler ? concat(compiler->version, " ", join(compiler->flags, " ")) : "no compiler";
  for (const BlasLibrary library : {BlasLibrary::openblas, BlasLibrary::blis}) {
    if (blas_info(library).there) text += concat("; ", name_of(library), " ", blas_info(library).version);
  }
  return text;
}

Machine find_machine(int threads) {
  Machine machine;
  machine.cpu = cpu_info();
  machine.threads = threads > 0 ? threads : ::millrace::threads();
  Result<Compiler> compiler = find_compiler();
  if (compiler) {
    machine.compiler = std::move(*compiler);
  } else {
    machine.no_compiler = compiler.error();
  }
  for (const auto& [library, blas] :
       {std::pair(GemmLibrary::openblas, BlasLibrary::openblas), std::pair(GemmLibrary::blis, BlasLibrary::blis)}) {
    if (blas_info(blas).there) {
      machine.libraries.push_back(library);
    } else {
      machine.missing[library] = blas_info(blas).missing;
    }
  }
  return machine;
}

Result<TuneProgram> tune_program(const ExploreOptions& options) {
  Result<std::string> text = read_file(options.program.path, kProgramBytes);
  if (!text) return text.error();
  TuneProgram program{options.program, std::move(*text), {}};
  for (const std::string& pin : options.layouts) {
    const size_t equals = pin.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Error::make(ErrorKind::bad_input, concat("--layout ", pin, ": not a tensor and its layout"),
                         "write NAME=AXES, as in x=BJI, or NAME=any");
    }
    program.layouts.emplace_back(pin.substr(0, equals), pin.substr(equals + 1));
  }
  return program;
}

Result<double> parse_duration(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, static_cast<const char*>(text.data() + text.size()));
  const double seconds = unit.empty() || unit == "s" ? 1 : unit == "m" || unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || seconds == 0 || !(value >= 0) || value * seconds > 1e7) {
    return Error::make(ErrorKind::bad_input, concat("--budget ", text, ": not a time"), "write it as 90s, 5m or 1h");
  }
  return value * seconds;
}

Result<Database> open_database(const std::string& path) {
  if (!path.empty()) return Database::open(path);
  const Result<std::string> folder = data_directory();
  if (!folder) return folder.error();
  return Database::open(concat(*folder, "/measurements.db"));
}

Result<Prepared> all_candidates(const ExploreOptions& options) {
  const Result<TuneProgram> program = tune_program(options);
  if (!program) return program.error();
  Result<Prepared> prepared = prepare(*program, nullptr);
  if (!prepared) return prepared;
  Result<Candidates> candidates =
      enumerate(prepared->training, prepared->fused, enumerate_options(*program, find_machine(options.threads), false));
  if (!candidates) return candidates.error();
  prepared->candidates = std::move(*candidates);
  return prepared;
}

Result<Tuned> tune(const ExploreOptions& options, Measuring measuring, std::vector<StageTime>* timings) {
  Result<TuneProgram> program = tune_program(options);
  if (!program) return program.error();
  return tune(options, std::move(*program), measuring, timings);
}

Result<Tuned> tune(const ExploreOptions& options, TuneProgram program, Measuring measuring,
                   std::vector<StageTime>* timings) {
  if (options.device != "cpu") {
    return Error::make(ErrorKind::unavailable, concat("device '", options.device, "' is not there"),
                       "this version explores --device cpu");
  }
  const Result<double> budget = parse_duration(options.budget);
  if (!budget) return budget.error();
  Result<Prepared> prepared = prepare(program, timings);
  if (!prepared) return prepared.error();
  Machine machine = find_machine(options.threads);
  const std::vector<PartCandidates>& parts = prepared->candidates.parts;
  const bool needs_kernels = std::any_of(parts.begin(), parts.end(),
                                         [](const PartCandidates& of) { return of.part.kind == PartKind::kernel; });
  if (measuring != Measuring::known && needs_kernels && !machine.compiler) return *machine.no_compiler;
  const EnumerateOptions enumerating = enumerate_options(program, machine, options.exhaustive);
  Stages stages(timings);
  Result<Candidates> candidates = stages.run(
      "candidates", [&] { return enumerate(prepared->training, prepared->fused, enumerating); },
      [](const Candidates&) { return Result<Done>(Done{}); });
  if (!candidates) return candidates.error();
  prepared->candidates = std::move(*candidates);

  if (measuring == Measuring::within_budget && options.notice) {
    double configurations = 0;
    for (const PartCandidates& of : prepared->candidates.parts) configurations += of.configurations;
    options.notice(concat(prepared->candidates.parts.size(), " parts, ", static_cast<int64_t>(configurations),
                          " configurations; ",
                          options.exhaustive ? std::string("all will be tried")
                                             : concat("the most promising ones are tried for ", options.budget)));
    if (!machine.compiler)
      options.notice(concat("no generated kernels: ", machine.no_compiler->diagnostics.front().message));
  }
  Result<Database> database = open_database(options.database);
  if (!database) return database.error();
  std::optional<KernelCache> kernels;
  if (machine.compiler) {
    const Result<std::string> cache = cache_directory();
    if (!cache) return cache.error();
    kernels.emplace(*cache, *machine.compiler, std::string(cpu_prelude()), machine.cpu.identity());
  }
  const Result<std::string> worker_program =
      measuring == Measuring::within_budget ? worker_path() : Result<std::string>(std::string());
  if (!worker_program) return worker_program.error();
  Worker worker({{*worker_program}, greeting(program), 0});

  ExploreSettings settings;
  settings.measure = measuring == Measuring::within_budget;
  settings.assume = measuring == Measuring::assumed;
  settings.budget_seconds = settings.measure ? *budget : 0;
  settings.exhaustive = settings.measure && options.exhaustive;
  settings.trial.cold = is_cold(prepared->training.graph, machine.cpu);
  settings.trial.cache_bytes = machine.cpu.last_level_cache;
  settings.device = concat(machine.text(), settings.trial.cold ? "; from memory" : "; from cache");
  settings.jobs = machine.cpu.cores;
  const Graph& graph = prepared->training.graph;
  settings.conversions = [&](TensorId tensor, int from, int to) {
    return conversions(graph, prepared->candidates.domains[tensor.at()], tensor, from, to, machine.threads);
  };
  if (options.progress) {
    settings.select = [](const Measurements& so_far) {
      const Result<Selection> selection = select(so_far, SelectMethod::sssp);
      return selection ? selection->cost : 0;
    };
    settings.progress = [&](const ExploreProgress& so_far) {
      options.progress({so_far.done, so_far.total, so_far.bound, so_far.seconds, so_far.left, so_far.doing});
    };
  }
  Result<Explored> explored = stages.run(
      "explore",
      [&] { return explore(graph, prepared->candidates, settings, kernels ? &*kernels : nullptr, *database, worker); },
      [](const Explored& made) { return verify(made.measurements); });
  if (!explored) return explored.error();
  return Tuned{std::move(program), std::move(*prepared), std::move(machine), std::move(*explored),
               !settings.trial.cold};
}

}  // namespace millrace
