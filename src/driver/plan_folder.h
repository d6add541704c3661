// Plans on disk: a folder with plan.json and the kernels.so that it was made with. Test:
// tests/driver/plan_folder_test.cpp
#pragma once

#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "device/cpu/kernel_cache.h"
#include "exec/cpu_executor.h"
#include "exec/gpu_executor.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

// The user's, with this machine's compiler.
Result<KernelCache> user_kernel_cache();

// Compiles exactly the plan's kernels into folder/kernels.so and fills in what the plan says of them; then writes
// folder/plan.json. The folder is made, for the user alone, where it is absent. Each file appears whole or not at all;
// a kill between the two leaves a plan that compiles its kernels anew when it is loaded.
Result<Done> write_plan(StepPlan& plan, const std::vector<Launch>& launches, const KernelCache& kernels,
                        const std::string& folder);

// The same for a plan on a GPU: folder/kernels.cubin.
Result<Done> write_gpu_plan(StepPlan& plan, const std::vector<Launch>& launches, const GpuCompiler& compiler,
                            const std::string& architecture, const std::string& folder);

// What every kernel on a GPU stands on, as text.
std::string gpu_prelude();

// A file named *.json, or a folder with a plan.json.
bool is_plan(const std::string& path);

struct LoadedPlan {
  StepPlan plan;
  std::string path;  // of the file
  TrainingGraph training;
  Candidates candidates;  // without ways
};

// Read, and verified whole against the program that is in it. Compiles and loads nothing.
Result<LoadedPlan> read_plan(const std::string& path);

// Ready to run. `cache`: asked when the plan's own kernels cannot be used.
Result<CpuExecutor> load_executor(const LoadedPlan& loaded, const KernelCacheMaker& cache = user_kernel_cache,
                                  ExecutorMemory memory = ExecutorMemory::own);

// Whether it was made for a GPU; and then ready to run there. Its kernels are compiled anew for another one.
bool is_gpu_plan(const StepPlan& plan);
Result<GpuExecutor> load_gpu_executor(const LoadedPlan& loaded, ExecutorMemory memory = ExecutorMemory::own);

}  // namespace millrace
