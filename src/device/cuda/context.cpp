#include "device/cuda/context.h"

#include <array>
#include <cstdlib>

#include "base/text.h"

namespace millrace {
namespace {

constexpr int kOverlapsSince = 9;  // compute capability: Hopper
constexpr const char* kNoOverlap = "MILLRACE_NO_OVERLAP";

// Any value but empty and 0 turns overlap off: for comparison, or where a driver has a bug.
bool overlap_is_refused() {
  const char* const value = std::getenv(kNoOverlap);
  return value != nullptr && *value != '\0' && std::string(value) != "0";
}

}  // namespace

Result<CUdevice> find_device(const Driver& driver) {
  CUdevice device = 0;
  CUcontext current = nullptr;
  if (driver.ctx_get_current(&current) == CUDA_SUCCESS && current != nullptr &&
      driver.ctx_get_device(&device) == CUDA_SUCCESS)
    return device;
  int count = 0;
  const CUresult counted = driver.device_get_count(&count);
  if (counted == CUDA_SUCCESS && count > 0 && driver.device_get(&device, 0) == CUDA_SUCCESS) return device;
  const Result<Done> checked = driver.check(counted, "count the GPUs");
  return Error::make(ErrorKind::unavailable,
                     concat("the CUDA driver sees no GPU", checked ? "" : ": ",
                            checked ? "" : checked.error().diagnostics.front().message),
                     "run nvidia-smi, and check whether CUDA_VISIBLE_DEVICES hides the GPU");
}

Result<GpuInfo> device_info(const Driver& driver, CUdevice device) {
  GpuInfo info;
  std::array<char, 256> name{};
  if (Result<Done> named = driver.check(driver.device_get_name(name.data(), static_cast<int>(name.size()) - 1, device),
                                        "ask for the GPU's name");
      !named)
    return named.error();
  info.name = name.data();
  info.driver = driver.version();
  size_t bytes = 0;
  if (Result<Done> sized = driver.check(driver.device_total_mem(&bytes, device), "ask for the GPU's memory"); !sized)
    return sized.error();
  info.memory_bytes = static_cast<int64_t>(bytes);
  // 0 if a driver does not report it.
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    return driver.device_get_attribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
  };
  info.major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  info.minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  info.shared_bytes = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  info.clock_khz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  info.memory_clock_khz = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  if (info.major == 0 || info.multiprocessors == 0)
    return Error::make(ErrorKind::unavailable, concat("the driver does not report the attributes of ", info.name, ""));
  return info;
}

Result<std::shared_ptr<CudaContext>> CudaContext::open(const Driver& driver) {
  const Result<CUdevice> device = find_device(driver);
  if (!device) return device.error();
  CUcontext context = nullptr;
  Result<Done> done = driver.check(driver.primary_ctx_retain(&context, *device), "open the GPU");
  if (!done) {
    done.error().kind = ErrorKind::unavailable;
    done.error().diagnostics.front().remedy =
        "check with nvidia-smi whether another process holds the GPU or all of its memory";
    return done.error();
  }
  std::shared_ptr<CudaContext> made(new CudaContext(driver, *device, context));
  const CurrentContext current(*made);
  done = driver.check(driver.stream_create(&made->own_stream_, CU_STREAM_NON_BLOCKING), "make a stream on the GPU");
  if (!done) return done.error();
  made->stream_ = made->own_stream_;
  int major = 0;
  const CUresult known = driver.device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, *device);
  made->overlaps_ = known == CUDA_SUCCESS && major >= kOverlapsSince && !overlap_is_refused();
  return made;
}

// At the end of the process the driver may be gone already: then these calls fail, and there is nothing left to free.
CudaContext::~CudaContext() {
  {
    const CurrentContext current(*this);
    if (own_stream_ != nullptr) driver_.stream_destroy(own_stream_);
  }
  driver_.primary_ctx_release(device_);
}

CurrentContext::CurrentContext(const CudaContext& context) : driver_(context.driver_) {
  CUcontext current = nullptr;
  if (driver_.ctx_get_current(&current) == CUDA_SUCCESS && current == context.context_) return;
  pushed_ = driver_.ctx_push_current(context.context_) == CUDA_SUCCESS;
}

CurrentContext::~CurrentContext() {
  CUcontext ours = nullptr;
  if (pushed_) driver_.ctx_pop_current(&ours);
}

}  // namespace millrace
