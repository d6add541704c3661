// A GPU emulated on the CPU, for tests: it implements memory, stream, graphs, kernels, products and cuDNN's attention
// of device/gpu.h, so that code that drives a GPU runs without one. It is stricter than a real GPU: addresses that are
// not on the device, writes outside of allocations, freed launches and calls that must not be recorded are errors;
// where no error can be returned, the process aborts.
//
// It is linked into the tests, and built as libmillrace_emulated_gpu.so to replace libmillrace_cuda.so
// (MILLRACE_CUDA_BACKEND). Environment variables configure it:
//   MILLRACE_EMULATED_NAME         name of the GPU
//   MILLRACE_EMULATED_CAPABILITY   9.0
//   MILLRACE_EMULATED_MULTIPROCESSORS, MILLRACE_EMULATED_COMPILER, MILLRACE_EMULATED_CUBLASLT
//                                  as on a real GPU, so that its measurements can be read
//   MILLRACE_EMULATED_CUDNN        version of cuDNN; empty: missing
//   MILLRACE_EMULATED_CUDNN_REFUSES, MILLRACE_EMULATED_CUDNN_WRONG, MILLRACE_EMULATED_CUDNN_UNSTABLE
//                                  1: cuDNN does not accept any attention; computes wrong results; gives other bits
//                                  every time
//   MILLRACE_EMULATED_MEMORY       bytes of memory
//   MILLRACE_EMULATED_WRONG        id of a product algorithm that computes wrong results
//   MILLRACE_EMULATED_REFUSED      id of an algorithm that is listed, but cannot be prepared
//   MILLRACE_EMULATED_LOST         id of an algorithm whose launch loses the GPU
#pragma once

#include <memory>

#include "device/gpu.h"

namespace millrace::emulated {

std::unique_ptr<Gpu> make_gpu();
std::unique_ptr<GpuCompiler> make_compiler();
GpuReport inspect();

// How many graphs were recorded in this process.
int recordings();

// The algorithms that it lists for products that allow them.
inline constexpr int kHeuristicAlgorithm = 0;
inline constexpr int kSplittingAlgorithm = 1;  // needs a workspace
inline constexpr int kAlignedAlgorithm = 2;    // needs addresses that are multiples of 16
inline constexpr int kFastAlgorithm = 3;       // faster than all others

}  // namespace millrace::emulated
