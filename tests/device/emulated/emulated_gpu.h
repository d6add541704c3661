// A GPU emulated on the CPU, for tests: it implements memory, stream, graphs, kernels and products of device/gpu.h, so
// that code that drives a GPU runs without one. It is stricter than a real GPU: addresses that are not on the device,
// writes outside of allocations, freed launches and calls that must not be recorded are errors; where no error can be
// returned, the process aborts.
//
// Linked into the tests, and as libmillrace_emulated_gpu.so in the place of libmillrace_cuda.so
// (MILLRACE_CUDA_BACKEND). Variables say what it pretends to be:
//   MILLRACE_EMULATED_NAME         what the GPU is called
//   MILLRACE_EMULATED_CAPABILITY   9.0
//   MILLRACE_EMULATED_MULTIPROCESSORS, MILLRACE_EMULATED_COMPILER, MILLRACE_EMULATED_CUBLASLT   as a real one's, so
//   that its
//                                measurements can be read
//   MILLRACE_EMULATED_MEMORY       bytes that it has
//   MILLRACE_EMULATED_WRONG        an algorithm of products, by its id, that gives wrong results
//   MILLRACE_EMULATED_REFUSED      one that is listed, but cannot be prepared
//   MILLRACE_EMULATED_LOST         one whose launch takes the GPU down
#pragma once

#include <memory>

#include "device/gpu.h"

namespace millrace::emulated {

std::unique_ptr<Gpu> make_gpu();
std::unique_ptr<GpuCompiler> make_compiler();
GpuReport inspect();

// How many graphs were recorded in this process.
int recordings();

// The algorithms of products that it lists, where a product admits them.
inline constexpr int kHeuristicAlgorithm = 0;
inline constexpr int kSplittingAlgorithm = 1;  // needs a workspace
inline constexpr int kAlignedAlgorithm = 2;    // needs addresses that are multiples of 16
inline constexpr int kFastAlgorithm = 3;       // faster than all others

}  // namespace millrace::emulated
