// Launches of a GPU that is emulated.
#pragma once

#include <memory>
#include <string>

#include "device/emulated/emulated_stream.h"
#include "device/gpu.h"

namespace millrace::emulated {

inline constexpr int64_t kSharedBytes = 227 << 10;  // that a block may ask for

Result<std::unique_ptr<GpuLaunch>> prepare_kernels(std::shared_ptr<Stream> stream, const Launch& launch,
                                                   const std::string& cubin);
Result<std::unique_ptr<GpuLaunch>> prepare_product(std::shared_ptr<Stream> stream, const Launch& launch);

Result<std::vector<GemmAlgorithm>> list_algorithms(const GemmCall& call);

// The number in a variable of the environment.
int64_t number_of(const char* variable, int64_t otherwise);

// Puts a launch's work on the stream. `token`: lives as long as the launch; `ran`: whether it was run before it is
// recorded, which libraries need.
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
