// Plans on disk: a folder with plan.json and its compiled kernels. Test: tests/driver/plan_folder_test.cpp
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "autodiff/training_graph.h"
#include "candidates/candidates.h"
#include "device/backend.h"
#include "device/cpu/kernel_cache.h"
#include "device/gpu_kernel_cache.h"
#include "exec/cpu_executor.h"
#include "exec/gpu_executor.h"
#include "millrace/result.h"
#include "plan/plan.h"

namespace millrace {

// The user's kernel cache, with this machine's compiler.
Result<KernelCache> user_kernel_cache();

// The files of a plan's folder, the plan last.
inline constexpr std::array kFilesOfPlan = {"kernels.so", "kernels.cubins", "plan.json"};

// Compiles the plan's kernels into folder/kernels.so, records them in the plan and in the user's cache
// (made_kernels.h), and writes folder/plan.json. Creates the folder, for the user only, if needed. Each file is written
// atomically; if the process dies between the two, loading the plan recompiles its kernels.
Result<Done> write_plan(StepPlan& plan, const std::vector<Launch>& launches, const KernelCache& kernels,
                        const std::string& folder);

// The same for a plan on a GPU: folder/kernels.cubins. Takes compiled kernels from the cache.
Result<Done> write_gpu_plan(StepPlan& plan, const std::vector<Launch>& launches, const GpuKernelCache& kernels,
                            const std::string& folder);

// One of these two, for a backend that can compile.
Result<Done> write_plan(const Backend& backend, StepPlan& plan, const std::vector<Launch>& launches,
                        const std::string& folder);

// Writes folder/plan.json again, for a plan whose kernels are in the folder already.
Result<Done> rewrite_plan(const StepPlan& plan, const std::string& folder);

// A file named *.json, or a folder with a plan.json.
bool is_plan(const std::string& path);

struct LoadedPlan {
  StepPlan plan;
  std::string path;  // of the file
  TrainingGraph training;
  Candidates candidates;  // partitions without configs
};

// Reads a plan and verifies it against the program in it. Compiles and loads nothing.
Result<LoadedPlan> read_plan(const std::string& path);

// Loads a plan for the CPU. `cache`: used if the plan's own kernels cannot be, or if this user did not make them.
Result<CpuExecutor> load_executor(const LoadedPlan& loaded, const KernelCacheMaker& cache = user_kernel_cache,
                                  ExecutorMemory memory = ExecutorMemory::own);

// Loads a plan for a GPU. Its kernels are recompiled for a GPU of another architecture, and if this user did not make
// them.
Result<GpuExecutor> load_gpu_executor(const LoadedPlan& loaded, ExecutorMemory memory = ExecutorMemory::own);

// The backend that the plan was made for.
const BackendKind& backend_of(const StepPlan& plan);
// Loads a plan for its backend.
Result<std::unique_ptr<Executor>> load_plan(const LoadedPlan& loaded, ExecutorMemory memory = ExecutorMemory::own);

// The threads that a plan was made for: "…, 4 threads of 8 cores; …" → 4; 0 if its device's text has no number.
int threads_of(const StepPlan& plan);

}  // namespace millrace
