#include "codegen/trials_of_programs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "autodiff/differentiate.h"
#include "base/long_run.h"
#include "base/sanitized.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "codegen/cpu/generate.h"
#include "codegen/cuda/generate.h"
#include "codegen/lower.h"
#include "device/cpu/blas_library.h"
#include "device/cpu/cpu_info.h"
#include "device/cpu/module.h"
#include "device/emulated/emulated_text.h"
#include "device/test_kernels.h"
#include "frontend/frontend.h"
#include "fusion/predicates.h"
#include "golden/golden.h"
#include "measure/trial.h"
#include "random/generator.h"

namespace millrace {
namespace {

constexpr int64_t kLanes = 16;  // of float

// How a join's inputs run along the vector, if the vector crosses the borders of their regions.
void add_borders(const TriedProgram& program, const Partition& partition, const Candidate& candidate,
                 std::vector<std::string>& shapes) {
  const Graph& graph = program.training.graph;
  const int vector = std::get<KernelConfig>(candidate.config).vector;
  const std::vector<Layout> layouts = layouts_of(program.candidates.domains, partition, candidate);
  for (size_t m = 0; m < partition.members.size(); ++m) {
    const Operator& op = graph.operators[partition.members[m].at()];
    for (size_t index = 0; index < op.space.size() && !op.regions.empty(); ++index) {
      if (vector == kNoIndex || partition.index_of[m][index] != vector) continue;
      for (size_t input = 0; input < op.inputs.size(); ++input) {
        const Access& access = op.inputs[input];
        const auto at = std::find(partition.reads.begin(), partition.reads.end(), access.tensor);
        if (at == partition.reads.end() || op.regions[input][index].length() == graph.extent(op.space[index])) continue;
        const std::vector<int64_t> strides =
            strides_of(graph, access.tensor, layouts[static_cast<size_t>(at - partition.reads.begin())]);
        int64_t step = 0;
        for (size_t axis = 0; axis < strides.size(); ++axis)
          step += access.axes[axis].stride_along(static_cast<int>(index)) * strides[axis];
        shapes.emplace_back(step == 0   ? "borders in vectors, the same element"
                            : step == 1 ? "borders in vectors, neighbours"
                                        : "borders in vectors, steps");
      }
    }
  }
}

std::vector<std::string> with_masks(const TriedProgram& program, const Partition& partition, const Candidate& candidate,
                                    std::vector<std::string> shapes) {
  const std::vector<Layout> layouts = layouts_of(program.candidates.domains, partition, candidate);
  const std::vector<TensorId> tensors = tensors_of(partition);
  for (size_t k = 0; k < layouts.size(); ++k) {
    const char* const how = k < partition.reads.size() ? "read" : "written";
    const bool boolean = program.training.graph.tensor(tensors[k]).dtype == DType::boolean;
    if (layouts[k].storage == MaskStorage::bits)
      shapes.push_back(concat(boolean ? "booleans " : "a mask ", how, " as bits"));
    if (layouts[k].storage == MaskStorage::regenerated) shapes.push_back(concat("a regenerated mask ", how));
  }
  add_borders(program, partition, candidate, shapes);
  return shapes;
}

// What a kernel's text depends on.
std::vector<std::string> shapes_of(const TriedProgram& program, const Partition& partition,
                                   const Candidate& candidate) {
  const auto& config = std::get<KernelConfig>(candidate.config);
  const bool vector = config.vector != kNoIndex;
  const bool lanes = config.rows && vector && partition.space[static_cast<size_t>(config.vector)].outer;
  const int64_t extent = vector ? partition.space[static_cast<size_t>(config.vector)].extent : 0;
  if (config.gpu) {
    const int64_t width = std::gcd(static_cast<int64_t>(config.gpu->width), std::max<int64_t>(extent, 1));
    return with_masks(program, partition, candidate,
                      {!config.rows ? (config.block == kNoIndex ? "flat" : "flat in tiles")
                       : lanes      ? "rows in lanes"
                                    : "rows",
                       width > 1 ? concat("width ", width) : "no width",
                       config.gpu->row_threads > 32  ? "rows of several warps"
                       : config.gpu->row_threads > 1 ? "rows in a warp"
                                                     : "rows of a thread",
                       config.gpu->row_threads == config.gpu->threads ? "one row per block" : "several rows per block",
                       config.gpu->prefetch > 0 ? "across rows, the next one ahead"
                       : config.gpu->blocks > 0 ? "across rows"
                                                : "no reduction across rows"});
  }
  std::vector<std::string> shapes = {!config.rows ? (config.block == kNoIndex ? "flat" : "flat in blocks")
                                     : lanes      ? "rows in lanes"
                                                  : "rows",
                                     config.threads > 1 ? "threads" : "one thread",
                                     extent % kLanes == 0 ? "whole vectors"
                                     : extent < kLanes    ? "less than a vector"
                                                          : "vectors and a rest"};
  return with_masks(program, partition, candidate, std::move(shapes));
}

std::vector<std::string> operators_of(const TrainingGraph& training, const Partition& partition) {
  const Graph& graph = training.graph;
  std::set<std::string> names;
  for (const OperatorId member : training.repeated) {
    if (partition.operators.size() > 1 &&
        std::find(partition.members.begin(), partition.members.end(), member) != partition.members.end())
      names.insert(concat(info_of(graph.operators[member.at()].kind).name, " recomputed"));
  }
  for (const OperatorId member : partition.members) names.emplace(info_of(graph.operators[member.at()].kind).name);
  if (partition.operators.empty()) names.insert("conversion");
  return {names.begin(), names.end()};
}

std::string dtype_of(const Graph& graph, const Partition& partition) {
  for (const std::vector<TensorId>* tensors : {&partition.writes, &partition.reads}) {
    for (const TensorId tensor : *tensors) {
      if (graph.tensor(tensor).dtype != DType::boolean) return std::string(name_of(graph.tensor(tensor).dtype));
    }
  }
  return "boolean";
}

}  // namespace

Result<KernelCache> kernel_cache_of_tests(size_t batch) {
  static const Result<Compiler> compiler = find_compiler();
  if (!compiler) return compiler.error();
  const std::string folder = test_kernels("test_kernels", MILLRACE_BINARY);
  return KernelCache(folder, *compiler, std::string(cpu_prelude()), cpu_info().identity(), {300, batch});
}

std::string emulated_prelude() {
  return concat(text_of_file(concat(MILLRACE_SOURCE_DIR, "/tests/codegen/emulated_hardware.h")), cuda_prelude());
}

Result<KernelCache> emulated_kernel_cache(const std::string& after_prelude) {
  static const Result<Compiler> found = find_compiler();
  if (!found) return found.error();
  Compiler compiler = *found;
  compiler.flags.emplace_back("-U_FORTIFY_SOURCE");  // emulated_hardware.h says why
  std::replace(compiler.flags.begin(), compiler.flags.end(), std::string("-O3"), std::string("-Og"));  // each runs once
  const std::string folder = test_kernels("test_cuda_kernels", MILLRACE_BINARY);
  return KernelCache(folder, std::move(compiler), emulated_prelude() + after_prelude, cpu_info().identity(), {300, 24});
}

std::string emulated_source(const Launch& launch) {
  std::string text = emulated::with_emulated_matrices(launch.kernel);
  const std::string first = ") MILLRACE_KERNEL(";
  text.replace(text.find(first), first.size(), ") MILLRACE_KERNEL_first(");
  const bool together = text.find("reduce") != std::string::npos || text.find("barrier") != std::string::npos;
  text +=
      "extern \"C\" __attribute__((visibility(\"default\"))) void MILLRACE_KERNEL(const mr::HostArguments* host) {\n";
  for (const GpuGrid& grid : launch.grids) {
    text += concat("  mr::launch(&", grid.function == "MILLRACE_KERNEL" ? "MILLRACE_KERNEL_first" : grid.function,
                   ", host, ", grid.blocks, ", ", grid.threads, ", ", together ? "true" : "false", ", ",
                   grid.shared_bytes, ");\n");
  }
  return text + "}\n";
}

TriedProgram tried_program(const std::string& name, const std::string& text, const std::vector<std::string>& sizes,
                           const std::string& dtype, const Candidates* enumerated, TriedOn device) {
  TriedProgram made;
  made.name = concat(name, " ", join(sizes, " "), " ", dtype);
  ProgramOptions options;
  options.sizes = sizes;
  if (!dtype.empty()) options.dtype = dtype_named(dtype);
  const Result<Graph> graph = parse_program(text, options);
  EXPECT_TRUE(graph) << name << ": " << to_string(graph.error());
  if (!graph) return made;
  Recomputed recomputed = save_predicates(differentiate(*graph), device == TriedOn::gpu);
  made.training = std::move(recomputed.training);
  if (enumerated != nullptr) {
    made.candidates = *enumerated;
    return made;
  }
  EnumerateOptions enumerating;
  enumerating.threads = 2;
  enumerating.most = 500;
  if (device == TriedOn::gpu) enumerating.target = gpu_target({2});
  for (const GemmLibrary library : {GemmLibrary::openblas, GemmLibrary::blis}) {
    if (device == TriedOn::cpu && blas_info(library).there) enumerating.libraries.push_back(library);
  }
  Result<Candidates> candidates = enumerate(made.training, recomputed.fused, enumerating);
  EXPECT_TRUE(candidates) << name << ": " << to_string(candidates.error());
  if (candidates) made.candidates = std::move(*candidates);
  return made;
}

// A kernel is compiled if it covers a pair of operator, shape and type for the first time.
bool TrialsOfPrograms::take_features(const TriedProgram& program, const Partition& partition,
                                     const Candidate& candidate, bool covering) {
  const std::vector<std::string> shapes = shapes_of(program, partition, candidate);
  const std::string dtype = dtype_of(program.training.graph, partition);
  std::vector<std::string> pairs;
  for (size_t k = 0; k < shapes.size(); ++k) {
    pairs.push_back(concat(shapes[k], " & ", dtype));
    for (size_t other = k + 1; other < shapes.size(); ++other) pairs.push_back(concat(shapes[k], " & ", shapes[other]));
  }
  // Half types are only stored: operators compute in float.
  for (const std::string& op : operators_of(program.training, partition)) {
    pairs.push_back(concat(op, " & ", shapes.front()));
    pairs.push_back(concat(op, " in ", dtype == "float64" ? "float64" : "float32"));
  }
  const bool fresh =
      std::any_of(pairs.begin(), pairs.end(), [&](const std::string& pair) { return !features_.contains(pair); });
  if (covering && !fresh) return false;
  features_.insert(pairs.begin(), pairs.end());
  return true;
}

void TrialsOfPrograms::draw_from(const TriedProgram& program, const PartitionCandidates& entry, size_t count,
                                 bool covering) {
  if (entry.candidates.empty()) return;
  for (size_t k = 0; k < count; ++k) {
    const Candidate& candidate = entry.candidates[random_() % entry.candidates.size()];
    const bool by_kernel = std::holds_alternative<KernelConfig>(candidate.config);
    if (by_kernel && !take_features(program, entry.partition, candidate, covering)) continue;
    if (kSanitized && !by_kernel && k > 0) {
      random_();  // as below, so that kernels equal those of other builds, which are compiled once
      continue;
    }
    partitions_.push_back(entry.partition);
    Trial trial{&program, &partitions_.back(), candidate, ""};
    // Threads of a library spin while they wait, and other processes may need the cores: few trials with several.
    auto* const product = std::get_if<GemmConfig>(&trial.candidate.config);
    if (product != nullptr && random_() % 16 != 0) product->threads = 1;
    if (by_kernel) {
      const Launch launch = lower(program.training.graph, entry.partition,
                                  layouts_of(program.candidates.domains, entry.partition, candidate), candidate.config);
      trial.kernel = device_ == TriedOn::gpu ? emulated_source(launch) : launch.kernel;
      ++kernels_;
    }
    trials_.push_back(std::move(trial));
  }
}

void TrialsOfPrograms::draw(TriedProgram drawn, size_t count, bool covering) {
  programs_.push_back(std::move(drawn));
  const TriedProgram& program = programs_.back();
  for (const PartitionCandidates& entry : program.candidates.partitions) draw_from(program, entry, count, covering);
  const Graph& graph = program.training.graph;
  for (size_t k = 0; k < graph.tensors.size(); ++k) {
    const TensorDomain& domain = program.candidates.domains[k];
    std::vector<int> words;
    for (size_t layout = 0; layout < domain.layouts.size(); ++layout) {
      if (domain.layouts[layout].storage == MaskStorage::words) words.push_back(static_cast<int>(layout));
    }
    if (words.size() < 2) continue;
    const int from = words[random_() % words.size()];
    const int to = words[random_() % words.size()];
    const Target target = device_ == TriedOn::gpu ? gpu_target({2}) : Target();
    if (from != to) draw_from(program, conversions(graph, domain, TensorId(k), from, to, 2, target), count, covering);
  }
}

void TrialsOfPrograms::run() {
  const Result<KernelCache> cache = device_ == TriedOn::gpu ? emulated_kernel_cache() : kernel_cache_of_tests();
  ASSERT_TRUE(cache) << to_string(cache.error());
  std::vector<KernelSource> sources;
  for (const Trial& trial : trials_) {
    if (!trial.kernel.empty()) sources.push_back({trial.kernel});
  }
  const std::vector<Result<CompiledKernel>> compiled = cache->get(sources, 2);
  std::map<std::string, KernelModule> modules;
  size_t next = 0;
  const TriedProgram* program = nullptr;
  std::optional<Trials> trials;
  for (const Trial& trial : trials_) {
    if (trial.program != program) {
      program = trial.program;
      trials.emplace(program->training.graph, program->candidates.domains);
    }
    const std::string what = concat(program->name, ": ", trial.partition->name, ": ",
                                    print_candidate(program->candidates.domains, *trial.partition, trial.candidate));
    void* function = nullptr;
    if (!trial.kernel.empty()) {
      const Result<CompiledKernel>& kernel = compiled[next++];
      ASSERT_TRUE(kernel) << what << "\n" << to_string(kernel.error()) << trial.kernel;
      auto module = modules.find(kernel->path);
      if (module == modules.end()) {
        Result<KernelModule> loaded = KernelModule::load(kernel->path, kernel->sha256);
        ASSERT_TRUE(loaded) << to_string(loaded.error());
        module = modules.emplace(kernel->path, std::move(*loaded)).first;
      }
      const Result<void*> found = module->second.function(kernel->name);
      ASSERT_TRUE(found) << to_string(found.error());
      function = *found;
    }
    TrialSettings settings;
    settings.seconds = 0;
    const MeasurementRow row = trials->run(*trial.partition, trial.candidate, function, settings);
    EXPECT_EQ(kOutcomeNames.at(static_cast<size_t>(row.outcome)), "measured") << what << "\n" << row.detail;
  }
}

size_t drawn_of(size_t count) { return is_long_run() ? count : (count + 1) / 2; }

void try_random_programs(const std::vector<std::string>& dtypes, TriedOn device) {
  constexpr uint64_t kOfALongRun = 10;
  const char* const asked = std::getenv("MILLRACE_RANDOM_KERNELS");
  if (asked == nullptr && !is_long_run()) GTEST_SKIP() << "for long runs, or where MILLRACE_RANDOM_KERNELS asks for it";
  const uint64_t count = asked == nullptr ? tried_of(kOfALongRun) : std::stoull(asked);
  for (uint64_t seed = 0; seed < count; ++seed) {
    TrialsOfPrograms trials(seed, device);
    const std::string text = random_programs::random_program(seed);
    const std::string& dtype = dtypes[seed % dtypes.size()];
    trials.draw(tried_program(concat("random ", seed), text, {}, dtype, nullptr, device), 3, false);
    trials.run();
  }
}

}  // namespace millrace
