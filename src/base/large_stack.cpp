#include "base/large_stack.h"

#include <pthread.h>
#include <sys/resource.h>

#include <utility>

namespace millrace {
namespace {

constexpr size_t kEnough = size_t{1} << 20;
constexpr size_t kLarge = size_t{8} << 20;

struct Call {
  std::function<int()> program;
  int code = 0;
};

void* run(void* call) {
  auto& called = *static_cast<Call*>(call);
  called.code = called.program();
  return nullptr;
}

bool is_small() {
  rlimit limit{};
  return getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < kEnough;
}

// Whether a thread with a large stack ran it.
bool runs_in_thread(Call& call) {
  pthread_attr_t attributes;
  pthread_t thread{};
  if (pthread_attr_init(&attributes) != 0) return false;
  const bool started = pthread_attr_setstacksize(&attributes, kLarge) == 0 &&
                       pthread_setattr_default_np(&attributes) == 0 &&
                       pthread_create(&thread, &attributes, run, &call) == 0;
  pthread_attr_destroy(&attributes);
  return started && pthread_join(thread, nullptr) == 0;
}

}  // namespace

int on_large_stack(std::function<int()> program) {
  if (!is_small()) return program();
  Call call{std::move(program)};
  return runs_in_thread(call) ? call.code : call.program();
}

}  // namespace millrace
