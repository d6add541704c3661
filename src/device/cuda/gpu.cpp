// Implements device/gpu.h, and exports the functions of this library.
#include "device/gpu.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "device/cuda/algorithms.h"
#include "device/cuda/clock_probe.h"
#include "device/cuda/context.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/cuda_launch.h"
#include "device/cuda/cudnn_plans.h"
#include "device/cuda/nvrtc.h"
#include "device/cuda/shared_library.h"
#include "device/gpu_backend.h"
#include "device/launch_pair.h"

namespace millrace {
namespace {

class CudaGraph final : public GpuGraph {
 public:
  CudaGraph(std::shared_ptr<CudaContext> context, CUgraphExec graph) : context_(std::move(context)), graph_(graph) {}
  ~CudaGraph() override {
    const CurrentContext current(*context_);
    context_->driver().graph_exec_destroy(graph_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  Result<Done> replay() override {
    const CurrentContext current(*context_);
    return context_->check(context_->driver().graph_launch(graph_, context_->stream()), "replay a recorded graph");
  }

 private:
  std::shared_ptr<CudaContext> context_;
  CUgraphExec graph_;
};

// An event of the context.
class Event {
 public:
  explicit Event(const CudaContext& context) : context_(context) {}
  ~Event() {
    if (event_ != nullptr) context_.driver().event_destroy(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Result<Done> make() {
    return context_.check(context_.driver().event_create(&event_, CU_EVENT_DEFAULT), "make an event");
  }
  Result<Done> record() {
    return context_.check(context_.driver().event_record(event_, context_.stream()), "record an event");
  }
  Result<Done> wait() { return context_.check(context_.driver().event_synchronize(event_), "run what is timed"); }
  Result<double> seconds_since(const Event& start) const {
    float milliseconds = 0;
    const Result<Done> known = context_.check(context_.driver().event_elapsed_time(&milliseconds, start.event_, event_),
                                              "read the time between two events");
    if (!known) return known.error();
    return milliseconds * 1e-3;
  }

 private:
  const CudaContext& context_;
  CUevent event_ = nullptr;
};

class CudaGpu final : public Gpu {
 public:
  CudaGpu(GpuInfo info, std::shared_ptr<CudaContext> context, const CublasLt& cublaslt,
          std::shared_ptr<cublasLtContext> handle)
      : info_(std::move(info)),
        context_(std::move(context)),
        cublaslt_(cublaslt),
        handle_(std::move(handle)),
        cudnn_plans_(context_, info_) {}

  const GpuInfo& info() const override { return info_; }

  Result<void*> allocate(int64_t bytes) override {
    const CurrentContext current(*context_);
    CUdeviceptr memory = 0;
    const CUresult result = driver().mem_alloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)));
    if (result == CUDA_SUCCESS) return reinterpret_cast<void*>(memory);  // NOLINT(performance-no-int-to-ptr)
    Result<Done> failed = context_->check(result, concat("allocate ", bytes, " bytes on the GPU"));
    size_t free_bytes = 0;
    size_t all = 0;
    if (result == CUDA_ERROR_OUT_OF_MEMORY && driver().mem_get_info(&free_bytes, &all) == CUDA_SUCCESS)
      failed.error().diagnostics.front().remedy =
          concat(free_bytes, " of its ", all, " bytes are free: use a smaller batch, or end other processes on it");
    return failed.error();
  }

  void free(void* memory) override {
    if (memory == nullptr) return;
    const CurrentContext current(*context_);
    driver().mem_free(address(memory));
  }

  Result<Done> copy_in(void* to, const void* from_host, int64_t bytes) override {
    if (bytes == 0) return Done{};
    const CurrentContext current(*context_);
    return context_->check(
        driver().memcpy_to_device(address(to), from_host, static_cast<size_t>(bytes), context_->stream()),
        concat("copy ", bytes, " bytes to the GPU"));
  }

  Result<Done> copy_out(void* to_host, const void* from, int64_t bytes) override {
    if (bytes > 0) {
      const CurrentContext current(*context_);
      const Result<Done> copied = context_->check(
          driver().memcpy_to_host(to_host, address(from), static_cast<size_t>(bytes), context_->stream()),
          concat("copy ", bytes, " bytes from the GPU"));
      if (!copied) return copied;
    }
    return wait();
  }

  Result<Done> copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return Done{};
    const CurrentContext current(*context_);
    return context_->check(
        driver().memcpy_on_device(address(to), address(from), static_cast<size_t>(bytes), context_->stream()),
        concat("copy ", bytes, " bytes on the GPU"));
  }

  Result<Done> fill(void* memory, uint8_t byte, int64_t bytes) override {
    if (bytes == 0) return Done{};
    const CurrentContext current(*context_);
    return context_->check(driver().memset_bytes(address(memory), byte, static_cast<size_t>(bytes), context_->stream()),
                           concat("fill ", bytes, " bytes on the GPU"));
  }

  Result<Done> wait() override {
    const CurrentContext current(*context_);
    return context_->check(driver().stream_synchronize(context_->stream()), "run what is on the GPU's stream");
  }

  void use_stream(void* stream) override { context_->use_stream(static_cast<CUstream>(stream)); }

  Result<std::unique_ptr<GpuLaunch>> prepare(const Launch& launch, const std::string& cubin) override {
    if (!launch.kernel.empty())
      return followed_by_product(prepare_kernels(context_, launch, cubin), launch,
                                 [&] { return prepare_product(context_, cublaslt_, handle_, launch); });
    if (launch.is_library_attention()) {
      Result<std::shared_ptr<const CudnnAttention>> attention = cudnn_plans_.find(launch.attention);
      if (!attention) return attention.error();
      return make_attention_launch(context_, launch, std::move(*attention));
    }
    return prepare_product(context_, cublaslt_, handle_, launch);
  }

  Result<double> time(const std::function<Result<Done>()>& before, const std::function<Result<Done>()>& work) override {
    const CurrentContext current(*context_);
    Event start(*context_);
    Event stop(*context_);
    if (const Result<Done> made = start.make(); !made) return made.error();
    if (const Result<Done> made = stop.make(); !made) return made.error();
    Result<Done> done = before ? before() : Done{};
    if (done) done = start.record();
    if (done) done = work();
    if (done) done = stop.record();
    if (done) done = stop.wait();
    if (done) return stop.seconds_since(start);
    // Enqueued work must not keep running after an error is returned.
    static_cast<void>(wait());
    return done.error();
  }

  Result<double> clock_hertz() override {
    if (is_recorded())
      return Error::make(ErrorKind::failed, "the clock cannot be read while the stream is recorded",
                         "read it before or after the recording");
    if (!clock_) {
      Result<ClockProbe> made = ClockProbe::make(*this);
      if (!made) return made.error();
      clock_.emplace(std::move(*made));
    }
    return clock_->hertz();
  }

  bool is_recorded() const override {
    const CurrentContext current(*context_);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return context_->driver().stream_is_capturing(context_->stream(), &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }

  // Between overlapping kernels a graph has programmatic edges. If a driver rejects them, it gets a graph without them.
  Result<std::unique_ptr<GpuGraph>> record(const std::function<Result<Done>()>& work) override {
    Result<std::unique_ptr<GpuGraph>> graph = record_once(work);
    if (graph || !context_->overlaps()) return graph;
    context_->set_overlaps(false);
    Result<std::unique_ptr<GpuGraph>> without = record_once(work);
    if (without) return without;
    context_->set_overlaps(true);
    return graph;
  }

  Result<std::vector<GemmAlgorithm>> algorithms(const GemmCall& call) override {
    const CurrentContext current(*context_);
    const Result<CublasLtProduct> product = CublasLtProduct::make(cublaslt_, handle_, call);
    if (!product) return product.error();
    return list_algorithms(*product);
  }

 private:
  // On our own stream: the caller's may be the default stream, which cannot be recorded.
  Result<std::unique_ptr<GpuGraph>> record_once(const std::function<Result<Done>()>& work) {
    const CurrentContext current(*context_);
    CUstream stream = context_->own_stream();
    if (const Result<Done> begun = context_->check(
            driver().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "begin to record a graph");
        !begun)
      return begun.error();
    CUstream callers = context_->stream();
    context_->use_stream(nullptr);
    const Result<Done> worked = work();
    context_->use_stream(callers);
    CUgraph graph = nullptr;
    Result<Done> done = context_->check(driver().stream_end_capture(stream, &graph), "record a graph");
    // The error of the work itself is closer to the cause.
    if (!worked) done = worked;
    CUgraphExec executable = nullptr;
    if (done)
      done = context_->check(driver().graph_instantiate(&executable, graph, 0), "make a recorded graph ready to run");
    if (graph != nullptr) driver().graph_destroy(graph);
    if (!done) return done.error();
    return std::unique_ptr<GpuGraph>(std::make_unique<CudaGraph>(context_, executable));
  }

  const Driver& driver() const { return context_->driver(); }

  GpuInfo info_;
  std::shared_ptr<CudaContext> context_;
  const CublasLt& cublaslt_;
  std::shared_ptr<cublasLtContext> handle_;
  CudnnPlans cudnn_plans_;
  std::optional<ClockProbe> clock_;  // on first use
};

Result<std::unique_ptr<Gpu>> make_gpu() {
  const Result<const Driver*> driver = cuda_driver();
  if (!driver) return driver.error();
  const Result<CUdevice> device = find_device(**driver);
  if (!device) return device.error();
  Result<GpuInfo> info = device_info(**driver, *device);
  if (!info) return info.error();
  const Result<const CublasLt*> cublaslt = cublaslt_library();
  if (!cublaslt) return cublaslt.error();
  info->cublaslt = (*cublaslt)->version();
  info->nvrtc = inspect_nvrtc().version;
  info->cudnn = inspect_cudnn().version;
  Result<std::shared_ptr<CudaContext>> context = CudaContext::open(**driver);
  if (!context) return context.error();
  Result<std::shared_ptr<cublasLtContext>> handle = open_cublaslt(**cublaslt, *context);
  if (!handle) return handle.error();
  return std::unique_ptr<Gpu>(std::make_unique<CudaGpu>(std::move(*info), *context, **cublaslt, std::move(*handle)));
}

void inspect(GpuReport& report) {
  report.nvrtc = inspect_nvrtc();
  report.cublaslt = inspect_cublaslt();
  report.cudnn = inspect_cudnn();
  const Result<const Driver*> driver = cuda_driver();
  if (!driver) {
    report.driver = missing_software(driver.error());
    report.no_device = report.driver.missing;
    return;
  }
  report.driver = {(*driver)->version(), (*driver)->path(), ""};
  const Result<CUdevice> device = find_device(**driver);
  Result<GpuInfo> info = device ? device_info(**driver, *device) : Result<GpuInfo>(device.error());
  if (!info) {
    report.no_device = missing_software(info.error()).missing;
    return;
  }
  info->nvrtc = report.nvrtc.version;
  info->cublaslt = report.cublaslt.version;
  info->cudnn = report.cudnn.version;
  report.device = *info;
}

}  // namespace
}  // namespace millrace

// ---- What is exported (exports.map); loaded by device/gpu.cpp ----

#pragma GCC visibility push(default)
extern "C" {

const char* millrace_cuda_version() { return millrace::kGpuBackendVersion; }

void millrace_cuda_open_gpu(millrace::Result<std::unique_ptr<millrace::Gpu>>* result) {
  *result = millrace::make_gpu();
}

void millrace_cuda_open_gpu_compiler(millrace::Result<std::unique_ptr<millrace::GpuCompiler>>* result) {
  *result = millrace::open_nvrtc();
}

void millrace_cuda_inspect(millrace::GpuReport* report) { millrace::inspect(*report); }

}  // extern "C"
#pragma GCC visibility pop
