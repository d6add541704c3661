// A GPU as the rest of Millrace sees it. What stands behind it is a shared library of its own, libmillrace_cuda.so,
// which is loaded when a GPU is asked for: nothing else needs CUDA, to be built or to run.
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
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes = 0;  // that a block may ask for
  int clock_khz = 0;         // the highest
  int memory_clock_khz = 0;

  std::string architecture() const { return "sm_" + std::to_string(major) + std::to_string(minor); }  // "sm_90"
  // Whether four warps together multiply matrices: Hopper's do, and no other generation's.
  bool has_group_products() const { return major == 9; }
};

// What kernels read of a run: seed and step in the device's memory, so that a replayed graph draws fresh masks.
struct GpuState {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t unused = 0;
};

// A launch, ready to run on the GPU's stream.
class GpuLaunch {
 public:
  virtual ~GpuLaunch() = default;
  // Only puts it on the stream. `tensors`: device addresses, by position; `arguments`: the program's scalars, by
  // position; `state`: a GpuState in device memory; `scratch`: scratch_bytes(), aligned to 256.
  virtual Result<Done> run(void* const* tensors, const double* arguments, const void* state, void* scratch) = 0;
  virtual int64_t scratch_bytes() const = 0;
};

// What was put on the stream while it was recorded, to be replayed at once.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  virtual Result<Done> replay() = 0;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual const GpuInfo& info() const = 0;

  // Plain allocations, aligned to 256. All copies and fills are on the stream; copies from the device wait for it.
  virtual Result<void*> allocate(int64_t bytes) = 0;
  virtual void free(void* memory) = 0;
  virtual Result<Done> copy_in(void* to, const void* from_host, int64_t bytes) = 0;
  virtual Result<Done> copy_out(void* to_host, const void* from, int64_t bytes) = 0;
  virtual Result<Done> copy(void* to, const void* from, int64_t bytes) = 0;
  virtual Result<Done> fill(void* memory, uint8_t byte, int64_t bytes) = 0;
  virtual Result<Done> wait() = 0;  // for all that is on the stream; an error of any of it
  // The stream that everything runs on: a CUstream. Null is not the default stream but one of its own.
  virtual void use_stream(void* stream) = 0;

  // `cubin`: the compiled kernel, where the launch has one.
  virtual Result<std::unique_ptr<GpuLaunch>> prepare(const Launch& launch, const std::string& cubin) = 0;

  // Seconds between the beginning and the end of what `work` puts on the stream, by the device's clock. `before` is put
  // there first, so that the work is in the queue when it is done.
  virtual Result<double> time(const std::function<Result<Done>()>& before,
                              const std::function<Result<Done>()>& work) = 0;
  // The clock of the multiprocessors behind what is on the stream, which is waited for: GPUs lower it below info()'s
  // for their power or their heat.
  virtual Result<double> clock_hertz() = 0;
  // Nothing is run. What is recorded must have run once before (libraries load kernels then), and the launches in it
  // must outlive the graph.
  virtual Result<std::unique_ptr<GpuGraph>> record(const std::function<Result<Done>()>& work) = 0;

  // Whether somebody else records the stream: then work is put there, and nothing is recorded or waited for.
  virtual bool is_recorded() const = 0;

  // Every algorithm that the library admits for a product, by attributes; the heuristic's choice first.
  virtual Result<std::vector<GemmAlgorithm>> algorithms(const GemmCall& call) = 0;
};

// Compiles kernels; needs no GPU. `architecture`: "sm_90".
class GpuCompiler {
 public:
  virtual ~GpuCompiler() = default;
  virtual const std::string& version() const = 0;
  // From any thread.
  virtual Result<std::string> compile(const std::string& source, const std::string& architecture) const = 0;
};

// A piece of software that a GPU needs: its version and file, or why it is not there and how to get it.
struct GpuSoftware {
  std::string version;  // empty: not there
  std::string path;
  std::string missing;
};

// What there is, for people: looks, and takes nothing of the GPU.
struct GpuReport {
  GpuSoftware backend;
  GpuSoftware driver;
  GpuSoftware nvrtc;
  GpuSoftware cublaslt;
  std::optional<GpuInfo> device;
  std::string no_device;  // why there is none
};
GpuReport inspect_gpu();

// The backend's library, loaded once. Unavailable where it, the driver or a GPU is not there; the error says which.
Result<std::unique_ptr<Gpu>> open_gpu();
Result<std::unique_ptr<GpuCompiler>> open_gpu_compiler();

}  // namespace millrace
