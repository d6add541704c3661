// What a device can do, as candidates and the driver need to know it. They ask for a capability, never for a device's
// name. Backends (device/backend.h) fill it in. Test: tests/device/backend_test.cpp
#pragma once

#include <cstdint>
#include <optional>

namespace millrace {

// The properties of a GPU that kernels in blocks of threads depend on.
struct GpuTarget {
  int multiprocessors = 132;
  int64_t shared_bytes = 232'448;  // that a block may use
  bool wgmma = true;               // products of a warpgroup: only Hopper has them
  bool cudnn = false;              // whether cuDNN is installed, whose fused attention is a candidate
};

// What a library's product computes besides the product.
struct GemmEpilogues {
  bool of_results = false;  // adds biases, and applies ReLU, and GELU by tanh to halves
  bool exact_gelu = false;  // and GELU by erf
  bool gradients = false;   // writes a GELU's input, multiplies by its gradient, and sums gradients of biases
  // Whether they cost so little that fusion leaves biases and activations to them.
  bool replace_kernels = false;
};

struct Target {
  GemmEpilogues gemm_epilogues;
  bool reads_while_multiplying = false;  // a product that accumulates reads its addend while it multiplies
  bool gemm_algorithms = false;          // a library lists its algorithms for each product
  bool fused_attention = false;
  bool own_memory = false;       // tensors are in the device's memory; trials check them there, by kernels
  int64_t tensor_alignment = 1;  // bytes, of the caller's tensors; their type may require more
  std::optional<GpuTarget> gpu;  // kernels run in blocks of threads; none: in loops of CPU threads
};

// The capabilities of a CPU. It has the epilogues only if oneDNN is installed.
inline Target cpu_target() {
  Target target;
  target.gemm_epilogues = {.of_results = true, .exact_gelu = true};
  target.fused_attention = true;
  return target;
}

// The capabilities that all GPUs have.
inline Target gpu_target(const GpuTarget& gpu = {}) {
  Target target;
  target.gemm_epilogues = {.of_results = true, .gradients = true, .replace_kernels = true};
  target.reads_while_multiplying = true;
  target.gemm_algorithms = true;
  target.fused_attention = true;
  target.own_memory = true;
  target.tensor_alignment = 16;  // kernels read and write 16 bytes at once
  target.gpu = gpu;
  return target;
}

}  // namespace millrace
