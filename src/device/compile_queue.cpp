#include "device/compile_queue.h"

#include <sys/resource.h>

#include <algorithm>
#include <system_error>

namespace millrace {
namespace {

// Yields the core to the measuring process, which waits for its GPU on a core.
void step_back() {
  constexpr int kNice = 10;
  setpriority(PRIO_PROCESS, 0, kNice);  // Linux: 0 is the calling thread
}

}  // namespace

CompileQueue::~CompileQueue() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void CompileQueue::run(size_t count, int jobs, const std::function<void(size_t)>& work) {
  if (count == 0) return;
  Call call{work, count};
  std::unique_lock lock(mutex_);
  if (!has_threads_for(count, jobs)) {
    lock.unlock();
    for (size_t k = 0; k < count; ++k) work(k);
    return;
  }
  calls_.push_back(&call);
  more_.notify_all();
  finished_.wait(lock, [&] { return call.done == count; });
}

void CompileQueue::forget() {
  const std::lock_guard lock(mutex_);
  for (Call* const call : calls_) call->done += call->count - call->begun;
  calls_.clear();
  finished_.notify_all();
}

bool CompileQueue::has_threads_for(size_t count, int jobs) {
  try {
    while (threads_.size() < std::min(static_cast<size_t>(std::max(jobs, 1)), count))
      threads_.emplace_back([this] {
        step_back();
        serve();
      });
  } catch (const std::system_error&) {
    // No more threads can be created: the existing ones do the work.
  }
  return !threads_.empty();
}

void CompileQueue::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    more_.wait(lock, [&] { return over_ || !calls_.empty(); });
    if (over_) return;
    Call& call = *calls_.front();
    const size_t k = call.begun++;
    if (call.begun == call.count) calls_.pop_front();
    lock.unlock();
    call.work(k);
    lock.lock();
    if (++call.done == call.count) finished_.notify_all();
  }
}

}  // namespace millrace
