// Kernels of several callers, compiled by a few threads: those of the earliest caller first. Were they taken in turns,
// all callers would have theirs when the last one has, and whoever measures them would wait until then.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace millrace {

class CompileQueue {
 public:
  CompileQueue() = default;
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // Calls work(k) for every k below `count`; returns when all are done. At most `jobs` of all callers at a time, who
  // ask for the same number.
  void run(size_t count, int jobs, const std::function<void(size_t)>& work);
  // Who waits does so no longer for what is not begun, and nobody begins it.
  void forget();

 private:
  struct Call {
    const std::function<void(size_t)>& work;
    size_t count;
    size_t begun = 0;
    size_t done = 0;
  };

  bool has_threads_for(size_t count, int jobs);  // with the lock
  void serve();

  std::mutex mutex_;  // of all below
  std::condition_variable more_;
  std::condition_variable finished_;
  std::deque<Call*> calls_;  // of which something is not begun
  std::vector<std::thread> threads_;
  bool over_ = false;
};

}  // namespace millrace
