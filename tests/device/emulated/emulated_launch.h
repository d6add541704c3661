// Launches of the emulated GPU.
#pragma once

#include <memory>
#include <string>

#include "device/emulated/emulated_stream.h"
#include "device/gpu.h"

namespace millrace::emulated {

inline constexpr int64_t kSharedBytes = 227 << 10;  // most that a block may request

Result<std::unique_ptr<GpuLaunch>> prepare_kernels(std::shared_ptr<Stream> stream, const Launch& launch,
                                                   const std::string& cubin);
Result<std::unique_ptr<GpuLaunch>> prepare_attention(std::shared_ptr<Stream> stream, const Launch& launch,
                                                     const GpuInfo& gpu);
Result<std::unique_ptr<GpuLaunch>> prepare_product(std::shared_ptr<Stream> stream, const Launch& launch);

Result<std::vector<GemmAlgorithm>> list_algorithms(const GemmCall& call);

// The number in an environment variable.
int64_t number_of(const char* variable, int64_t otherwise);

// Puts a launch's work on the stream. `token_` lives as long as the launch. A launch must have run before it is
// recorded, because libraries require that.
class LaunchedWork {
 public:
  explicit LaunchedWork(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  Result<Done> put(const std::string& name, double seconds, std::function<Result<Done>()> work);

 private:
  std::shared_ptr<Stream> stream_;
  std::shared_ptr<void> token_ = std::make_shared<int>(0);
  bool ran_ = false;
};

}  // namespace millrace::emulated
