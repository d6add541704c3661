// Owns memory of a GPU and frees it.
// Test: tests/device/emulated/emulated_gpu_test.cpp
#pragma once

#include <utility>

#include "device/gpu.h"

namespace millrace {

class GpuMemory {
 public:
  GpuMemory() = default;
  static Result<GpuMemory> allocate(Gpu& gpu, int64_t bytes) {
    const Result<void*> data = gpu.allocate(bytes > 0 ? bytes : 1);
    if (!data) return data.error();
    return GpuMemory(gpu, *data, bytes);
  }

  GpuMemory(GpuMemory&& other) noexcept
      : gpu_(std::exchange(other.gpu_, nullptr)), data_(other.data_), bytes_(other.bytes_) {}
  GpuMemory& operator=(GpuMemory&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~GpuMemory() {
    if (gpu_ != nullptr) gpu_->free(data_);
  }

  void* data() const { return data_; }
  char* bytes_at(int64_t offset) const { return static_cast<char*>(data_) + offset; }
  int64_t size() const { return bytes_; }

 private:
  GpuMemory(Gpu& gpu, void* data, int64_t bytes) : gpu_(&gpu), data_(data), bytes_(bytes) {}

  Gpu* gpu_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace millrace
