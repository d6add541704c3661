// A GPU as the rest of Millrace sees it. The implementation is a separate shared library, libmillrace_cuda.so, which is
// loaded when a GPU is requested, so nothing else needs CUDA to build or to run.
// Tests: tests/device/cuda/cuda_gpu_test.cpp, tests/device/emulated/emulated_gpu_test.cpp
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/launch.h"
#include "millrace/result.h"

namespace millrace {

struct GpuInfo {
  std::string name;    // "NVIDIA H200"
  std::string driver;  // versions, as "13.0"
  std::string nvrtc;
  std::string cublaslt;
  std::string cudnn;  // empty: missing; then no candidate uses it
  int major = 0;      // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes = 0;  // that a block may request
  int clock_khz = 0;         // the highest clock
  int memory_clock_khz = 0;

  std::string architecture() const { return "sm_" + std::to_string(major) + std::to_string(minor); }  // "sm_90"
  // Whether a warpgroup of four warps can multiply matrices together (wgmma): on Hopper only.
  bool has_wgmma() const { return major == 9; }
};

// What kernels read about a run: seed and step, in device memory, so that a replayed graph generates new masks.
struct GpuState {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t unused = 0;
};

// A launch that is ready to run on the GPU's stream.
class GpuLaunch {
 public:
  virtual ~GpuLaunch() = default;
  // Enqueues the launch on the stream. `tensors`: device addresses, by position; `arguments`: the program's scalars, by
  // position; `state`: a GpuState in device memory; `scratch`: scratch_bytes(), aligned to 256.
  virtual Result<Done> run(void* const* tensors, const double* arguments, const void* state, void* scratch) = 0;
  virtual int64_t scratch_bytes() const = 0;
};

// The work that was enqueued while it was recorded; replays with one call.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  virtual Result<Done> replay() = 0;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual const GpuInfo& info() const = 0;

  // Plain allocations, aligned to 256. All copies and fills run on the stream; copies from the device wait for it.
  virtual Result<void*> allocate(int64_t bytes) = 0;
  virtual void free(void* memory) = 0;
  virtual Result<Done> copy_in(void* to, const void* from_host, int64_t bytes) = 0;
  virtual Result<Done> copy_out(void* to_host, const void* from, int64_t bytes) = 0;
  virtual Result<Done> copy(void* to, const void* from, int64_t bytes) = 0;
  virtual Result<Done> fill(void* memory, uint8_t byte, int64_t bytes) = 0;
  virtual Result<Done> wait() = 0;  // for everything on the stream; returns the error if any of it failed
  // The stream that everything runs on: a CUstream. Null means a stream of our own, not the default stream.
  virtual void use_stream(void* stream) = 0;

  // `cubin`: the compiled kernel, if the launch has one.
  virtual Result<std::unique_ptr<GpuLaunch>> prepare(const Launch& launch, const std::string& cubin) = 0;

  // Seconds from the beginning to the end of what `work` enqueues, by the device's clock. `before` is enqueued first,
  // so that `work` is already queued when `before` ends.
  virtual Result<double> time(const std::function<Result<Done>()>& before,
                              const std::function<Result<Done>()>& work) = 0;
  // Waits for the stream, then measures the clock of the multiprocessors. GPUs lower it below info()'s to limit power
  // or heat.
  virtual Result<double> clock_hertz() = 0;
  // Runs nothing. The recorded work must have run once before, because libraries load kernels then, and its launches
  // must outlive the graph.
  virtual Result<std::unique_ptr<GpuGraph>> record(const std::function<Result<Done>()>& work) = 0;

  // Whether another caller is recording the stream: then work is enqueued there, and nothing is recorded or waited for.
  virtual bool is_recorded() const = 0;

  // Every algorithm that the library accepts for a product, by attributes; the heuristic's choice first.
  virtual Result<std::vector<GemmAlgorithm>> algorithms(const GemmCall& call) = 0;
};

// Compiles kernels; needs no GPU. `architecture`: "sm_90".
class GpuCompiler {
 public:
  virtual ~GpuCompiler() = default;
  virtual const std::string& version() const = 0;
  // Thread-safe.
  virtual Result<std::string> compile(const std::string& source, const std::string& architecture) const = 0;
};

// A library or driver that a GPU needs: its version and file, or why it is missing and how to get it.
struct GpuSoftware {
  std::string version;  // empty: missing
  std::string path;
  std::string missing;
};

// What is installed, for people. Opens no context on the GPU.
struct GpuReport {
  GpuSoftware backend;
  GpuSoftware driver;
  GpuSoftware nvrtc;
  GpuSoftware cublaslt;
  GpuSoftware cudnn;  // optional
  std::optional<GpuInfo> device;
  std::string no_device;  // why there is none
};
GpuReport inspect_gpu();

// Loads the backend's library once. Fails with `unavailable` if the library, the driver or a GPU is missing; the error
// says which.
Result<std::unique_ptr<Gpu>> open_gpu();
Result<std::unique_ptr<GpuCompiler>> open_gpu_compiler();

}  // namespace millrace
