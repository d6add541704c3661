// Compiles the kernels of several callers on a few threads, the earliest caller's first. If callers took turns, all of
// them would wait for the last kernel, and so would the measurements that need them. Test:
// tests/device/compile_queue_test.cpp
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

  // Calls work(k) for every k below `count` and returns when all calls are done. At most `jobs` calls of all callers
  // run at a time; all callers pass the same number.
  void run(size_t count, int jobs, const std::function<void(size_t)>& work);
  // Stops: calls that have not begun never begin, and their callers stop waiting for them.
  void forget();

 private:
  struct Call {
    const std::function<void(size_t)>& work;
    size_t count;
    size_t begun = 0;
    size_t done = 0;
  };

  bool has_threads_for(size_t count, int jobs);  // needs the lock
  void serve();

  std::mutex mutex_;  // guards everything below
  std::condition_variable more_;
  std::condition_variable finished_;
  std::deque<Call*> calls_;  // with work that has not begun
  std::vector<std::thread> threads_;
  bool over_ = false;
};

}  // namespace millrace
