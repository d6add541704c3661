// Ends the process when it uses more of the machine's own memory than it may. This is for a worker on a GPU: its driver
// maps far more address space than memory, so limits of the system would count too much. Test:
// tests/measure/memory_watch_test.cpp
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace millrace {

class MemoryWatch {
 public:
  explicit MemoryWatch(int64_t most_bytes);
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;
  ~MemoryWatch();

 private:
  void look(int64_t most_bytes) const;

  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// Bytes of memory that belongs to this process alone, as the system counts them; zero if it does not say.
int64_t anonymous_memory();

}  // namespace millrace
