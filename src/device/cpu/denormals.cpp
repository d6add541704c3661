#include "device/cpu/denormals.h"

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/id.h"

namespace millrace {
namespace {

// The bits of the control register that flush results and operands.
#if defined(__x86_64__)
constexpr uint64_t kFlush = 0x8040;  // MXCSR: flush to zero, denormals are zeros
uint64_t control_register() { return _mm_getcsr(); }
void set_control_register(uint64_t value) { _mm_setcsr(static_cast<unsigned int>(value)); }
#elif defined(__aarch64__)
constexpr uint64_t kFlush = 1U << 24;  // FPCR.FZ: of both
uint64_t control_register() {
  uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_control_register(uint64_t value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
constexpr uint64_t kFlush = 0;
uint64_t control_register() { return 0; }
void set_control_register(uint64_t) {}
#endif

// The setting to restore at the end of the outermost scope.
thread_local uint64_t before = 0;
thread_local int scopes = 0;

void flush() {
  if (scopes++ > 0) return;
  before = control_register();
  set_control_register(before | kFlush);
}

void restore() {
  if (scopes > 0 && --scopes == 0) set_control_register(before);
}

}  // namespace

std::vector<Denormals> denormals_of_threads(int threads) {
  std::vector<Denormals> found(static_cast<size_t>(threads), Denormals::keep);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int k = 0; k < threads; ++k) {
    if (kFlush != 0 && (control_register() & kFlush) == kFlush) found[as_index(k)] = Denormals::flush;
  }
  return found;
}

DenormalScope::DenormalScope(Denormals wanted, int threads) : wanted_(wanted), threads_(threads) {
  if (wanted_ == Denormals::keep) return;
#pragma omp parallel num_threads(threads_)
  flush();
}

DenormalScope::~DenormalScope() {
  if (wanted_ == Denormals::keep) return;
#pragma omp parallel num_threads(threads_)
  restore();
}

}  // namespace millrace
