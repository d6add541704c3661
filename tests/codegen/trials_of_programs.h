// Candidates of whole programs, compiled in few calls of the compiler, run, and compared with the reference.
#pragma once

#include <deque>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "device/cpu/kernel_cache.h"
#include "device/launch.h"

namespace millrace {

// One for all tests of a build, so that each kernel is compiled once.
Result<KernelCache> kernel_cache_of_tests(size_t batch = 24);
// The same for CUDA kernels that are emulated on the CPU.
Result<KernelCache> emulated_kernel_cache(const std::string& after_prelude = "");

// What precedes emulated CUDA kernels.
std::string emulated_prelude();

// A launch of a CUDA kernel as a CPU kernel for that cache: emulated_hardware.h runs its threads and blocks.
std::string emulated_source(const Launch& launch);

// A program and its candidates.
struct TriedProgram {
  std::string name;
  TrainingGraph training;
  Candidates candidates;
};

enum class TriedOn { cpu, cpu_without_libraries, gpu };

// `enumerated`: candidates of the same program in another dtype; those of a CPU do not depend on it. Without libraries,
// and on an emulated GPU, contractions are kernels.
TriedProgram tried_program(const std::string& name, const std::string& text, const std::vector<std::string>& sizes,
                           const std::string& dtype, const Candidates* enumerated = nullptr,
                           TriedOn device = TriedOn::cpu);

class TrialsOfPrograms {
 public:
  explicit TrialsOfPrograms(uint64_t seed, TriedOn device = TriedOn::cpu) : random_(seed), device_(device) {}

  // Draws `count` candidates of each partition and as many conversions of each tensor. `covering`: only those whose
  // kernel covers something new.
  void draw(TriedProgram program, size_t count, bool covering);

  // Compiles and runs all that was drawn; the test fails if an outcome is not `measured`.
  void run();

  size_t kernels() const { return kernels_; }
  size_t products() const { return trials_.size() - kernels_; }
  // What was drawn, as pairs of features: "rows in lanes & bfloat16".
  const std::set<std::string>& features() const { return features_; }

 private:
  struct Trial {
    const TriedProgram* program = nullptr;
    const Partition* partition = nullptr;
    Candidate candidate;
    std::string kernel;
  };

  void draw_from(const TriedProgram& program, const PartitionCandidates& entry, size_t count, bool covering);
  bool take_features(const TriedProgram& program, const Partition& partition, const Candidate& candidate,
                     bool covering);

  std::mt19937_64 random_;
  TriedOn device_;
  std::deque<TriedProgram> programs_;
  std::deque<Partition> partitions_;
  std::vector<Trial> trials_;
  std::set<std::string> features_;
  size_t kernels_ = 0;
};

// How many candidates of each feature to draw: in a short run half of `count`.
size_t drawn_of(size_t count);

// Candidates of random programs, each of its own type, with nothing left out: MILLRACE_RANDOM_KERNELS=1000 in the
// environment asks for so many programs, and a long run has a few. Skips the test otherwise.
void try_random_programs(const std::vector<std::string>& dtypes, TriedOn device);

}  // namespace millrace
