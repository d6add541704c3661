// Planted faults: kernels of random candidates of random programs, each with one fault, go through the check that every
// candidate goes through. A fault that the check does not find is examined further: the faulty kernel and the original
// compute from other inputs. If all bits are equal, the fault has no effect; if they differ by no more than rounding
// explains, the kernel is right; else the check missed it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "base/text.h"
#include "campaigns/checks/mutate.h"
#include "campaigns/checks/quick_kernels.h"
#include "campaigns/checks/slice.h"
#include "codegen/lower.h"
#include "codegen/trials_of_programs.h"
#include "device/cpu/cpu_launch.h"
#include "device/cpu/module.h"
#include "measure/tensor_memory.h"
#include "measure/trial.h"
#include "random/generator.h"

namespace millrace::campaigns {
namespace {

constexpr size_t kCandidatesOfAProgram = 4;
constexpr size_t kMutantsOfACandidate = 8;
constexpr std::array kTypes = {"float32", "float64", "float16", "bfloat16"};
constexpr uint64_t kOtherDraws = 3;
constexpr rlim_t kProcessorSeconds = 4;  // of a trial; it takes milliseconds, unless the mutant never ends
constexpr unsigned kWallSeconds = 60;    // for threads that wait for each other for ever

// What became of a mutant; also the exit code of the process that tried it.
enum class Fate : int { found, without_effect, within_rounding, missed, original_is_wrong };
constexpr std::array kFates = {"found", "without effect", "within rounding", "missed", "the original is wrong"};

// A kernel and its mutants.
struct Subject {
  const PartitionCandidates* entry = nullptr;
  Candidate candidate;
  Launch launch;
  std::vector<Mutant> mutants;  // with source texts that compile on the CPU
  std::string original;         // such a text
  void* function = nullptr;     // of the original
};

std::vector<Subject> subjects_of(const TriedProgram& program, TriedOn device, std::mt19937_64& random) {
  std::vector<Subject> subjects;
  for (size_t k = 0; k < kCandidatesOfAProgram; ++k) {
    const PartitionCandidates& entry = program.candidates.partitions[random() % program.candidates.partitions.size()];
    if (entry.candidates.empty()) continue;
    const Candidate& candidate = entry.candidates[random() % entry.candidates.size()];
    if (!std::holds_alternative<KernelConfig>(candidate.config)) continue;
    const Launch launch = lower(program.training.graph, entry.partition,
                                layouts_of(program.candidates.domains, entry.partition, candidate), candidate.config);
    const auto source_of = [&](const Launch& made) {
      return device == TriedOn::gpu ? emulated_source(made) : made.kernel;
    };
    Subject& subject = subjects.emplace_back(Subject{&entry, candidate, launch, {}, source_of(launch), nullptr});
    for (size_t m = 0; m < kMutantsOfACandidate; ++m) {
      Launch faulty = launch;
      Mutant mutant = mutated(launch.kernel, random);
      faulty.kernel = mutant.text;
      mutant.text = source_of(faulty);
      subject.mutants.push_back(std::move(mutant));
    }
  }
  return subjects;
}

void* function_of(const CompiledKernel& kernel, std::map<std::string, KernelModule>& modules) {
  auto module = modules.find(kernel.path);
  if (module == modules.end()) {
    Result<KernelModule> loaded = KernelModule::load(kernel.path, kernel.sha256);
    if (!loaded) return nullptr;
    module = modules.emplace(kernel.path, std::move(*loaded)).first;
  }
  const Result<void*> function = module->second.function(kernel.name);
  return function ? *function : nullptr;
}

// The outputs' bytes of a kernel on these inputs.
std::vector<std::string> outputs_of(const TriedProgram& program, const Subject& subject, void* function,
                                    const ReferenceData& data) {
  const Partition& partition = subject.entry->partition;
  const Graph& graph = program.training.graph;
  const std::vector<TensorId> tensors = tensors_of(partition);
  const std::vector<Layout> layouts = layouts_of(program.candidates.domains, partition, subject.candidate);
  std::vector<Memory> memory;
  std::vector<void*> pointers;
  for (size_t k = 0; k < tensors.size(); ++k) {
    pointers.push_back(memory.emplace_back(stored_bytes(graph, tensors[k], layouts[k])).data());
    std::memset(pointers.back(), 0xff, static_cast<size_t>(memory.back().size()));
    if (k < partition.reads.size())
      put_values(graph, tensors[k], layouts[k], data.inputs[k], static_cast<char*>(pointers.back()));
  }
  const Result<CpuLaunch> launch = CpuLaunch::prepare(subject.launch, function);
  const Memory scratch(launch->scratch_bytes());
  std::memset(scratch.data(), 0xff, static_cast<size_t>(scratch.size()));
  launch->run(pointers.data(), {data.arguments.data(), data.random.seed, data.random.step}, scratch.data());
  std::vector<std::string> outputs;
  for (size_t k = partition.reads.size(); k < tensors.size(); ++k)
    outputs.emplace_back(memory[k].data(), static_cast<size_t>(memory[k].size()));
  return outputs;
}

bool is_as_expected(const TriedProgram& program, const Subject& subject, const ReferenceData& data,
                    const std::vector<std::string>& outputs) {
  const Partition& partition = subject.entry->partition;
  const Graph& graph = program.training.graph;
  const std::vector<Layout> layouts = layouts_of(program.candidates.domains, partition, subject.candidate);
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Layout& layout = layouts[partition.reads.size() + k];
    const std::vector<double> found = take_values(graph, partition.writes[k], layout, outputs[k].data());
    if (!difference(graph, partition.writes[k], layout, data.outputs[k], found).empty()) return false;
  }
  return true;
}

// The fate of a mutant that passed the check.
Fate examined(const TriedProgram& program, const Subject& subject, void* mutant) {
  const Graph& graph = program.training.graph;
  const DrawRules rules = draw_rules(graph);
  const Partition& partition = subject.entry->partition;
  Fate fate = Fate::without_effect;
  for (uint64_t seed = 1; seed <= kOtherDraws; ++seed) {
    const Result<ReferenceData> data = make_reference_data(graph, rules, partition, seed);
    if (!data) continue;
    const std::vector<std::string> wanted = outputs_of(program, subject, subject.function, *data);
    const std::vector<std::string> found = outputs_of(program, subject, mutant, *data);
    if (found == wanted) continue;
    if (!is_as_expected(program, subject, *data, found) && is_as_expected(program, subject, *data, wanted))
      return Fate::missed;
    fate = Fate::within_rounding;
  }
  return fate;
}

bool passes(Trials& trials, const Subject& subject, void* function) {
  TrialSettings settings;
  settings.seconds = 0;
  return trials.run(subject.entry->partition, subject.candidate, function, settings).outcome == Outcome::measured;
}

// In a process of its own, which a mutant may crash or occupy for ever: a worker's crash or silence is found too.
Fate fate_of(const std::function<Fate()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit seconds{kProcessorSeconds, kProcessorSeconds};
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(kWallSeconds);
    _exit(static_cast<int>(work()));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? static_cast<Fate>(WEXITSTATUS(status)) : Fate::found;
}

void report_fate(uint64_t seed, Fate fate, const std::string& which, Report& report) {
  const std::string name = kFates.at(static_cast<size_t>(fate));
  report.count("mutants");
  report.count(name);
  if (fate == Fate::within_rounding || fate == Fate::missed) report.note(seed, concat(name, ": ", which));
}

// `functions`: the mutants' functions; null for those that do not compile.
void check_subject(uint64_t seed, const TriedProgram& program, const Subject& subject,
                   const std::vector<void*>& functions, Trials& trials, Report& report) {
  const std::string& name = subject.entry->partition.name;
  if (const Result<Done> made = trials.prepare_reference_data(subject.entry->partition); !made)
    return report.fail(seed, concat(name, ": ", to_string(made.error())));
  const Fate original = fate_of(
      [&] { return passes(trials, subject, subject.function) ? Fate::without_effect : Fate::original_is_wrong; });
  if (original != Fate::without_effect) return report.fail(seed, "the original is wrong: " + name);
  for (size_t k = 0; k < functions.size(); ++k) {
    if (functions[k] == nullptr) {
      report.count("do not compile");
      continue;
    }
    const Fate fate = fate_of(
        [&] { return passes(trials, subject, functions[k]) ? examined(program, subject, functions[k]) : Fate::found; });
    report_fate(seed, fate, concat(name, ", ", subject.mutants[k].change), report);
  }
}

void check_mutants(uint64_t seed, TriedOn device, const QuickKernels& kernels, Report& report) {
  std::mt19937_64 random(seed);
  const TriedProgram program = tried_program(concat("random ", seed), millrace::random_programs::random_program(seed),
                                             {}, kTypes.at(seed % kTypes.size()), nullptr, device);
  if (program.candidates.partitions.empty()) return;
  std::vector<Subject> subjects = subjects_of(program, device, random);
  std::vector<std::string> sources;
  for (const Subject& subject : subjects) {
    sources.push_back(subject.original);
    for (const Mutant& mutant : subject.mutants) sources.push_back(mutant.text);
  }
  const auto compiled = kernels.compile(sources);
  if (!compiled) return report.fail(seed, to_string(compiled.error()));
  std::map<std::string, KernelModule> modules;
  Trials trials(program.training.graph, program.candidates.domains);
  size_t next = 0;
  for (Subject& subject : subjects) {
    std::vector<void*> functions;
    for (size_t k = 0; k <= subject.mutants.size(); ++k, ++next)
      functions.push_back((*compiled)[next] ? function_of(*(*compiled)[next], modules) : nullptr);
    subject.function = functions.front();
    functions.erase(functions.begin());
    if (subject.function == nullptr)
      return report.fail(seed, concat("does not compile: ", subject.entry->partition.name));
    check_subject(seed, program, subject, functions, trials, report);
  }
}

Check mutants_on(TriedOn device) {
  const Result<QuickKernels> kernels = QuickKernels::make(device);
  return [device, kernels](uint64_t seed, Report& report) {
    if (!kernels) return report.fail(seed, to_string(kernels.error()));
    check_mutants(seed, device, *kernels, report);
  };
}

}  // namespace

Check cpu_mutants() { return mutants_on(TriedOn::cpu_without_libraries); }
Check cuda_mutants() { return mutants_on(TriedOn::gpu); }

}  // namespace millrace::campaigns
