// The GPU's context in this process: the primary one, which PyTorch uses too, and the stream for all work. Launches and
// graphs share it, so that it outlives them.
// Test: tests/device/cuda/cuda_gpu_test.cpp
#pragma once

#include <memory>
#include <utility>

#include "device/cuda/driver.h"
#include "device/gpu.h"

namespace millrace {

class CudaContext {
 public:
  // Opens the device that the calling thread already uses, else the first one.
  static Result<std::shared_ptr<CudaContext>> open(const Driver& driver);

  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const Driver& driver() const { return driver_; }
  CUstream stream() const { return stream_; }
  CUstream own_stream() const { return own_stream_; }
  // Whether generated kernels may start before the previous kernel ends: they wait for it themselves.
  bool overlaps() const { return overlaps_; }
  void set_overlaps(bool overlaps) { overlaps_ = overlaps; }
  void use_stream(CUstream stream) { stream_ = stream != nullptr ? stream : own_stream_; }

  Result<Done> check(CUresult result, const std::string& what) const { return driver_.check(result, what); }

 private:
  friend class CurrentContext;
  CudaContext(const Driver& driver, CUdevice device, CUcontext context)
      : driver_(driver), device_(device), context_(context) {}

  const Driver& driver_;
  CUdevice device_;
  CUcontext context_;
  CUstream own_stream_ = nullptr;
  CUstream stream_ = nullptr;
  bool overlaps_ = false;
};

// Makes the context current for a scope, and restores the thread's context afterwards.
class CurrentContext {
 public:
  explicit CurrentContext(const CudaContext& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

// The device that a context would be opened on; unavailable if there is none.
Result<CUdevice> find_device(const Driver& driver);

// Everything except the libraries' versions.
Result<GpuInfo> device_info(const Driver& driver, CUdevice device);

}  // namespace millrace
