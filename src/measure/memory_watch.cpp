#include "measure/memory_watch.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace millrace {
namespace {

constexpr auto kEvery = std::chrono::milliseconds(20);
constexpr int64_t kKilobyte = 1024;

}  // namespace

int64_t anonymous_memory() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("RssAnon:")) return kKilobyte * std::atoll(line.c_str() + sizeof("RssAnon:") - 1);
  }
  return 0;
}

MemoryWatch::MemoryWatch(int64_t most_bytes) : thread_([this, most_bytes] { look(most_bytes); }) {}

MemoryWatch::~MemoryWatch() {
  ended_ = true;
  thread_.join();
}

// The message that a system limit gives, which the explorer recognizes.
void MemoryWatch::look(int64_t most_bytes) const {
  while (!ended_) {
    if (anonymous_memory() > most_bytes) {
      std::fputs("std::bad_alloc: more than its share of the machine's memory\n", stderr);
      _exit(1);
    }
    std::this_thread::sleep_for(kEvery);
  }
}

}  // namespace millrace
