#include "device/emulated/emulated_gpu.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "device/emulated/emulated_launch.h"
#include "device/emulated/emulated_memory.h"
#include "device/emulated/emulated_stream.h"
#include "device/launch_pair.h"

namespace millrace::emulated {
namespace {

constexpr int64_t kMemory = int64_t{1} << 30;
constexpr int64_t kCache = 128 << 10;
constexpr double kBytesASecond = 1e12;

std::atomic<int> recorded_graphs = 0;

GpuInfo info() {
  GpuInfo info;
  const char* const name = std::getenv("MILLRACE_EMULATED_NAME");
  const char* const capability = std::getenv("MILLRACE_EMULATED_CAPABILITY");
  info.name = name == nullptr ? "Emulated GPU" : name;
  info.driver = "13.0";
  info.nvrtc = "13.0";
  const char* const cublaslt = std::getenv("MILLRACE_EMULATED_CUBLASLT");
  info.cublaslt = cublaslt == nullptr ? "13.0" : cublaslt;
  const char* const cudnn = std::getenv("MILLRACE_EMULATED_CUDNN");
  info.cudnn = cudnn == nullptr ? "9.19.0" : cudnn;
  info.major = capability == nullptr ? 9 : std::atoi(capability);
  info.minor = capability == nullptr || std::strchr(capability, '.') == nullptr
                   ? 0
                   : std::atoi(std::strchr(capability, '.') + 1);
  info.multiprocessors = static_cast<int>(number_of("MILLRACE_EMULATED_MULTIPROCESSORS", 2));
  info.memory_bytes = number_of("MILLRACE_EMULATED_MEMORY", kMemory);
  info.l2_bytes = kCache;
  info.shared_bytes = kSharedBytes;
  info.clock_khz = 1'000'000;
  info.memory_clock_khz = 1'000'000;
  return info;
}

// How many GPUs are open. When the last one closes, no allocation may be left.
std::atomic<int>& open_count() {
  static std::atomic<int> count = 0;
  return count;
}

Error illegal(const char* what) {
  return Error::make(ErrorKind::failed, concat("cannot ", what, ": CUDA_ERROR_INVALID_VALUE"));
}

class EmulatedGpu final : public Gpu {
 public:
  EmulatedGpu() { ++open_count(); }
  ~EmulatedGpu() override {
    if (--open_count() == 0 && memory().allocations() > 0)
      give_up(concat(memory().allocations(), " allocations are left when the GPU is closed"));
  }
  EmulatedGpu(const EmulatedGpu&) = delete;
  EmulatedGpu& operator=(const EmulatedGpu&) = delete;

  const GpuInfo& info() const override { return info_; }

  Result<void*> allocate(int64_t bytes) override {
    if (Result<Done> may = stream_->refuse_if_recorded("allocate"); !may) return may.error();
    return memory().allocate(bytes, info_.memory_bytes);
  }

  // A real GPU also waits for running work.
  void free(void* at) override {
    if (at == nullptr) return;
    if (stream_->is_recorded()) give_up("memory is freed while a graph is recorded");
    static_cast<void>(stream_->wait());
    memory().free(at);
  }

  Result<Done> copy_in(void* to, const void* from_host, int64_t bytes) override {
    if (bytes == 0) return Done{};
    if (Result<Done> may = stream_->refuse_if_recorded("copy from the host"); !may) return may;
    if (!memory().has(to, bytes) || memory().overlaps(from_host, bytes)) return illegal("copy to the GPU");
    // Pageable memory is read before the call returns.
    const auto* const first = static_cast<const char*>(from_host);
    return put(bytes, [to, bytes, held = std::vector<char>(first, first + bytes)]() -> Result<Done> {
      if (!memory().has(to, bytes)) return illegal("copy to the GPU");
      std::memcpy(to, held.data(), held.size());
      return Done{};
    });
  }

  Result<Done> copy_out(void* to_host, const void* from, int64_t bytes) override {
    if (Result<Done> waited = wait(); !waited) return waited;
    if (bytes == 0) return Done{};
    if (!memory().has(from, bytes) || memory().overlaps(to_host, bytes)) return illegal("copy from the GPU");
    std::memcpy(to_host, from, static_cast<size_t>(bytes));
    return Done{};
  }

  Result<Done> copy(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return Done{};
    return put(2 * bytes, [to, from, bytes]() -> Result<Done> {
      if (!memory().has(to, bytes) || !memory().has(from, bytes)) return illegal("copy on the GPU");
      std::memcpy(to, from, static_cast<size_t>(bytes));
      return Done{};
    });
  }

  Result<Done> fill(void* at, uint8_t byte, int64_t bytes) override {
    if (bytes == 0) return Done{};
    return put(bytes, [at, byte, bytes]() -> Result<Done> {
      if (!memory().has(at, bytes)) return illegal("fill memory on the GPU");
      std::memset(at, byte, static_cast<size_t>(bytes));
      return Done{};
    });
  }

  Result<Done> wait() override {
    if (Result<Done> may = stream_->refuse_if_recorded("wait for the stream"); !may) return may;
    return stream_->wait();
  }

  // All work has one order, on whatever stream it is.
  void use_stream(void*) override {}

  Result<std::unique_ptr<GpuLaunch>> prepare(const Launch& launch, const std::string& cubin) override {
    if (Result<Done> may = stream_->refuse_if_recorded("load a kernel"); !may) return may.error();
    if (!launch.kernel.empty())
      return followed_by_product(prepare_kernels(stream_, launch, cubin), launch,
                                 [&] { return prepare_product(stream_, launch); });
    return launch.is_library_attention() ? prepare_attention(stream_, launch, info_) : prepare_product(stream_, launch);
  }

  Result<double> time(const std::function<Result<Done>()>& before, const std::function<Result<Done>()>& work) override {
    if (Result<Done> may = stream_->refuse_if_recorded("time work"); !may) return may.error();
    Result<Done> done = before ? before() : Done{};
    if (done) done = stream_->wait();
    stream_->restart_clock();
    if (done) done = work();
    if (Result<Done> waited = stream_->wait(); !waited && done) done = waited;
    if (!done) return done.error();
    return std::max(stream_->seconds(), 1e-9);
  }

  Result<double> clock_hertz() override {
    if (Result<Done> waited = stream_->wait(); !waited) return waited.error();
    return static_cast<double>(number_of("MILLRACE_EMULATED_CLOCK_KHZ", info_.clock_khz)) * 1e3;
  }

  bool is_recorded() const override { return stream_->is_recorded(); }

  Result<std::unique_ptr<GpuGraph>> record(const std::function<Result<Done>()>& work) override {
    Result<std::vector<Work>> recorded = stream_->record(work);
    if (!recorded) return recorded.error();
    ++recorded_graphs;
    return std::unique_ptr<GpuGraph>(std::make_unique<Graph>(stream_, std::move(*recorded)));
  }

  Result<std::vector<GemmAlgorithm>> algorithms(const GemmCall& call) override { return list_algorithms(call); }

 private:
  static Memory& memory() { return Memory::of_process(); }

  Result<Done> put(int64_t bytes, std::function<Result<Done>()> work) {
    return stream_->put({std::move(work), static_cast<double>(bytes) / kBytesASecond, {}, false});
  }

  GpuInfo info_ = millrace::emulated::info();
  std::shared_ptr<Stream> stream_ = std::make_shared<Stream>();
};

}  // namespace

int recordings() { return recorded_graphs; }

std::unique_ptr<Gpu> make_gpu() { return std::make_unique<EmulatedGpu>(); }

GpuReport inspect() {
  GpuReport report;
  report.driver = {"13.0", "emulated", ""};
  report.nvrtc = {"13.0", "emulated", ""};
  report.cublaslt = {"13.0", "emulated", ""};
  report.cudnn = {info().cudnn, "emulated", info().cudnn.empty() ? "not emulated" : ""};
  report.device = info();
  return report;
}

}  // namespace millrace::emulated
