// Writes the sources of a sample of generated kernels to a folder: dump_kernels FOLDER. No GPU is needed.
//
// compare_kernels.py runs the dumpers of two commits, so the name of a file must not depend on names in the code:
// program, sizes, type, target and the positions of partition and candidate identify a kernel. The sample is
// deterministic.
//
//   FOLDER/kernels/PROGRAM/SIZES/TYPE/TARGET/NAME   source of a kernel, without the prelude
//   FOLDER/kernels/.../launches                     a line for every NAME in that folder, with its launch parameters
//   FOLDER/cpu_prelude, FOLDER/cuda_prelude         the text before each source
//   FOLDER/compiler                                 for CPU kernels: path, version, then one flag a line
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "candidates/enumerate.h"
#include "codegen/corner_programs.h"
#include "codegen/cpu/generate.h"
#include "codegen/cuda/generate.h"
#include "codegen/lower.h"
#include "device/cpu/compiler.h"
#include "driver/pipeline.h"
#include "exec/gpu_executor.h"
#include "frontend/frontend.h"
#include "measure/gpu/gpu_checker.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kCandidates = 2000;  // kept for each partition, before sampling
constexpr size_t kConversions = 12;   // layout conversions for each case
constexpr int kThreads = 2;           // of CPU kernels that use several

struct DumpTarget {
  std::string name;
  Target can;
};

DumpTarget cpu_target() { return {"cpu", {}}; }
DumpTarget hopper() { return {"sm_90", gpu_target({132, 232'448, true})}; }   // H100
DumpTarget ampere() { return {"sm_80", gpu_target({108, 166'912, false})}; }  // A100

enum class Wanted { all, attention };

struct Case {
  std::string program;
  std::string text;
  std::vector<std::string> sizes;
  std::string dtype;  // empty: as the program says
  DumpTarget target;
  size_t count = 1;  // kernels for each partition
  Wanted wanted = Wanted::all;

  std::string folder() const {
    return concat("kernels/", program, "/", sizes.empty() ? "default" : join(sizes, "_"), "/",
                  dtype.empty() ? "own" : dtype, "/", target.name);
  }
};

template <class T>
T need(Result<T> result, const std::string& what) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "dump_kernels: %s: %s\n", what.c_str(), to_string(result.error()).c_str());
  std::exit(1);
}

// Everything of a launch but the source, and no names.
std::string print_launch(const Launch& launch) {
  std::string text = concat(launch.tensor_count, " ", launch.scratch_bytes, " streams");
  for (const uint32_t subsequence : launch.subsequences) text += concat(" ", subsequence);
  text += " numbers";
  for (const LaunchNumber& number : launch.numbers) text += concat(" ", number.argument, ":", number.value);
  text += " grids";
  for (const GpuGrid& grid : launch.grids) text += concat(" ", grid.blocks, ":", grid.threads, ":", grid.shared_bytes);
  return text;
}

class CaseDump {
 public:
  CaseDump(const fs::path& root, const Case& input) : input_(input), folder_(root / input.folder()) {}

  // Returns how many kernels were written.
  size_t run() {
    Stages stages;
    const TrainingGraph training =
        need(train(stages, {input_.program, "", input_.sizes, input_.dtype}, input_.text), input_.folder());
    const auto made = need(fuse_for_plan(stages, training, input_.target.can), input_.folder());
    const Graph& graph = made.training.graph;
    // Without libraries, contractions become kernels, too.
    options_.threads = kThreads;
    options_.target = input_.target.can;
    options_.most = kCandidates;
    Candidates candidates = need(find_partitions(made.training, made.fused, options_), input_.folder());
    fs::create_directories(folder_);
    for (size_t k = 0; k < candidates.partitions.size(); ++k) {
      PartitionCandidates& partition = candidates.partitions[k];
      if (input_.wanted == Wanted::attention && partition.partition.kind != PartitionKind::attention) continue;
      find_configs(graph, candidates.domains, options_, partition);
      write_sample(graph, candidates.domains, partition, concat("p", k));
    }
    if (input_.wanted == Wanted::all) write_conversions(graph, candidates.domains);
    write("launches", launches_);
    return count_;
  }

 private:
  // The first candidate, then some at random.
  void write_sample(const Graph& graph, const std::vector<TensorDomain>& domains, const PartitionCandidates& partition,
                    const std::string& name) {
    const size_t all = partition.candidates.size();
    for (size_t k = 0; k < std::min(input_.count, all); ++k) {
      const size_t number = k == 0 ? 0 : random_() % all;
      const std::string file = concat(name, "_c", number);
      if (!written_.insert(file).second) continue;
      const Candidate& candidate = partition.candidates[number];
      const Launch launch =
          lower(graph, partition.partition, layouts_of(domains, partition.partition, candidate), candidate.config);
      if (launch.kernel.empty()) continue;
      write(file, launch.kernel);
      launches_ += concat(file, " ", print_launch(launch), "\n");
      ++count_;
    }
  }

  void write_conversions(const Graph& graph, const std::vector<TensorDomain>& domains) {
    std::vector<std::pair<size_t, std::vector<int>>> tensors;  // and their layouts that are not bits
    for (size_t k = 0; k < graph.tensors.size(); ++k) {
      std::vector<int> words;
      for (size_t layout = 0; layout < domains[k].layouts.size(); ++layout)
        if (domains[k].layouts[layout].storage == MaskStorage::words) words.push_back(static_cast<int>(layout));
      if (words.size() > 1) tensors.emplace_back(k, std::move(words));
    }
    for (size_t k = 0; k < std::min(kConversions, tensors.size()); ++k) {
      const auto& [tensor, layouts] = tensors[random_() % tensors.size()];
      const int from = layouts[random_() % layouts.size()];
      const int to = layouts[random_() % layouts.size()];
      if (from == to) continue;
      write_sample(graph, domains,
                   conversions(graph, domains[tensor], TensorId(tensor), from, to, kThreads, input_.target.can),
                   concat("t", tensor, "_from", from, "_to", to));
    }
  }

  void write(const std::string& name, const std::string& text) const {
    need(write_file((folder_ / name).string(), text), name);
  }

  const Case& input_;
  fs::path folder_;
  EnumerateOptions options_;
  std::mt19937_64 random_{1};
  std::set<std::string> written_;
  std::string launches_;
  size_t count_ = 0;
};

void add_models(std::vector<Case>& cases) {
  std::vector<fs::path> models;
  for (const fs::directory_entry& entry : fs::directory_iterator(MILLRACE_SOURCE_DIR "/models"))
    if (entry.path().extension() == ".py") models.push_back(entry.path());
  std::sort(models.begin(), models.end());
  for (const fs::path& model : models) {
    const std::string name = model.stem().string();
    const std::string text = need(read_file(model.string(), kProgramBytes), name);
    for (const char* const size : {"tiny", "odd"}) {
      for (const char* const dtype : {"", "float32"}) {
        cases.push_back({name, text, {size}, dtype, cpu_target(), 2});
        cases.push_back({name, text, {size}, dtype, hopper(), 2});
      }
      cases.push_back({name, text, {size}, "", ampere(), 1});
    }
    // Wide vectors and long rows.
    cases.push_back({name, text, {"base"}, "", cpu_target(), 1});
    cases.push_back({name, text, {"base"}, "", hopper(), 1});
    if (text.find("\nP = ") == std::string::npos) continue;  // no attention
    // Tensor cores take multiples of 16 columns.
    const bool has_values = text.find("W = ") != std::string::npos;
    std::vector<std::string> ragged = {"odd", "P=16"};
    if (has_values) ragged.emplace_back("W=48");
    for (const char* const dtype : {"float16", "bfloat16"}) {
      cases.push_back({name, text, {"base"}, dtype, hopper(), 10, Wanted::attention});
      cases.push_back({name, text, ragged, dtype, hopper(), 3, Wanted::attention});
      cases.push_back({name, text, {"base"}, dtype, ampere(), 3, Wanted::attention});
    }
  }
}

void add_without_dropout(std::vector<Case>& cases) {
  const size_t count = cases.size();
  for (size_t k = 0; k < count; ++k) {
    Case copy = cases[k];
    if (copy.wanted != Wanted::attention || copy.text.find(" dropout(") == std::string::npos) continue;
    copy.program += "_without_dropout";
    for (size_t at = copy.text.find(" dropout("); at != std::string::npos; at = copy.text.find(" dropout("))
      copy.text.erase(at, std::string(" dropout").size());
    cases.push_back(std::move(copy));
  }
}

void add_corners(std::vector<Case>& cases) {
  for (const auto& [name, text] : {std::pair("two_dropouts", kTwoDropouts),
                                   {"corners", kCorners},
                                   {"predicates", kPredicates},
                                   {"contractions", kContractions}}) {
    for (const char* const dtype : {"float16", "bfloat16", "float32", "float64"})
      for (const DumpTarget& target : {cpu_target(), hopper()}) cases.push_back({name, text, {}, dtype, target, 2});
    cases.push_back({name, text, {}, "float16", ampere(), 1});
  }
}

// Kernels that belong to no candidate: they check results on a GPU, or belong to every plan.
void write_fixed_kernels(const fs::path& root) {
  for (const char* const target : {"sm_90", "sm_80"}) {
    const fs::path folder = root / "kernels/fixed" / target;
    fs::create_directories(folder);
    need(write_file((folder / "checks").string(), gpu_check_kernels()), "checks");
    need(write_file((folder / "plan").string(), executor_launch().kernel), "plan");
    need(write_file((folder / "launches").string(), "checks\nplan\n"), "launches");
  }
}

void write_environment(const fs::path& root) {
  need(write_file((root / "cpu_prelude").string(), cpu_prelude()), "cpu_prelude");
  need(write_file((root / "cuda_prelude").string(), concat(cuda_hardware(), cuda_prelude())), "cuda_prelude");
  const Compiler compiler = need(find_compiler(), "compiler");
  need(write_file((root / "compiler").string(),
                  concat(compiler.path, "\n", compiler.version, "\n", join(compiler.flags, "\n"), "\n")),
       "compiler");
}

void dump(const fs::path& root) {
  fs::create_directories(root);
  write_environment(root);
  write_fixed_kernels(root);
  std::vector<Case> cases;
  add_models(cases);
  add_without_dropout(cases);
  add_corners(cases);
  std::atomic<size_t> next = 0;
  std::atomic<size_t> kernels = 0;
  const auto work = [&] {
    for (size_t k = next++; k < cases.size(); k = next++) kernels += CaseDump(root, cases[k]).run();
  };
  std::vector<std::thread> helpers;
  for (unsigned k = 1; k < std::thread::hardware_concurrency(); ++k) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  std::printf("%zu kernels of %zu cases\n", kernels.load(), cases.size());
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: dump_kernels FOLDER\n");
    return 1;
  }
  millrace::dump(argv[1]);
}
