// Uninitialized tensors for the results of plans, by PyTorch's stable ABI. Test: tests/torch/kept_memory_test.py
#pragma once

#include <dlfcn.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kept_memory.h"

namespace {

using torch::headeronly::DeviceType;
using torch::headeronly::ScalarType;
using torch::stable::Device;
using torch::stable::Tensor;

std::string shown(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t k = 0; k < shape.size(); ++k) text += (k == 0 ? "" : ", ") + std::to_string(shape[k]);
  return text + "]";
}

// A function of a library if that is loaded; else null. Only CUDA builds of PyTorch load CUDA's libraries, so the
// operator does not link to them, and whether symbols are found without the library's name depends on the linker.
void* function_of(const char* library, const char* name) {
  void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return loaded == nullptr ? nullptr : dlsym(loaded, name);
}

std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t elements = 1;
  for (size_t k = shape.size(); k-- > 0;) {
    strides[k] = elements;
    elements *= std::max<int64_t>(shape[k], 1);
  }
  return strides;
}

// torch::stable::empty would look up aten::empty by name for each gradient of each backward.
Tensor empty_on(const Device& device, const std::vector<int64_t>& shape, ScalarType dtype) {
  const std::vector<int64_t> strides = row_major(shape);
  AtenTensorHandle made = nullptr;
  const AOTITorchError failed = aoti_torch_empty_strided(
      static_cast<int64_t>(shape.size()), shape.data(), strides.data(), static_cast<int32_t>(dtype),
      static_cast<int32_t>(device.type()), static_cast<int32_t>(device.index()), &made);
  STD_TORCH_CHECK(failed == AOTI_TORCH_SUCCESS, "millrace: PyTorch cannot allocate a tensor of shape ", shown(shape),
                  ", probably out of memory; use a smaller batch");
  return Tensor(made);
}

// torch_from_blob, which PyTorch has since 2.11: a tensor with a deleter of its memory.
using FromBlob = AOTITorchError (*)(void* data, int64_t rank, const int64_t* sizes, const int64_t* strides,
                                    int64_t offset, int32_t dtype, int32_t device_type, int32_t device_index,
                                    AtenTensorHandle* made, int32_t layout, const uint8_t* metadata,
                                    int64_t metadata_bytes, void (*deleter)(void* data, void* bytes), void* bytes);

// An uninitialized tensor that lives from one call to the next at most, as gradients do. A large one on the CPU takes
// memory that KeptMemory has kept.
Tensor short_lived_on(const Device& device, const std::vector<int64_t>& shape, ScalarType dtype, int64_t bytes) {
  static const auto from_blob = reinterpret_cast<FromBlob>(function_of("libtorch_cpu.so", "torch_from_blob"));
  const auto size = static_cast<size_t>(bytes);
  const bool keep = device.type() == DeviceType::CPU && from_blob != nullptr && size >= KeptMemory::kLeastBytes;
  void* const memory = keep ? KeptMemory::shared().take(size) : nullptr;
  if (memory == nullptr) return empty_on(device, shape, dtype);
  const std::vector<int64_t> strides = row_major(shape);
  const auto give_back = [](void* data, void* its_bytes) {
    KeptMemory::shared().give(data, reinterpret_cast<size_t>(its_bytes));
  };
  AtenTensorHandle made = nullptr;
  const AOTITorchError failed =
      from_blob(memory, static_cast<int64_t>(shape.size()), shape.data(), strides.data(), 0,
                static_cast<int32_t>(dtype), static_cast<int32_t>(device.type()), static_cast<int32_t>(device.index()),
                &made, aoti_torch_layout_strided(), nullptr, 0, give_back, reinterpret_cast<void*>(size));
  if (failed == AOTI_TORCH_SUCCESS) return Tensor(made);
  KeptMemory::shared().give(memory, size);
  return empty_on(device, shape, dtype);
}

}  // namespace
