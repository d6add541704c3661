// Denormal numbers in the threads that run a plan: flushed to zero by the processor (MXCSR on x86-64, FPCR on aarch64),
// or kept, which many processors compute ten times slower (decisions/0015-numbers-and-denormals.md). Test:
// tests/device/cpu/denormals_test.cpp
#pragma once

#include <vector>

namespace millrace {

enum class Denormals { keep, flush };

// What plans and trials do unless told otherwise.
inline constexpr Denormals kPlanDenormals = Denormals::flush;

// What each of this thread's OpenMP threads does with denormals now, beginning with the thread itself.
std::vector<Denormals> denormals_of_threads(int threads);

// Flushes denormals in this thread and in its OpenMP threads, from construction to destruction; then every thread has
// the setting that it had before. With Denormals::keep it changes nothing.
class DenormalScope {
 public:
  // `threads`: of this thread's OpenMP team.
  DenormalScope(Denormals wanted, int threads);
  ~DenormalScope();
  DenormalScope(const DenormalScope&) = delete;
  DenormalScope& operator=(const DenormalScope&) = delete;

 private:
  Denormals wanted_;
  [[maybe_unused]] int threads_;  // compilers without OpenMP do not use it
};

}  // namespace millrace
