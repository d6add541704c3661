// The memory of the emulated GPU. It is host memory, but knows which addresses belong to the device, and detects writes
// outside of allocations. New memory is filled with NaNs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/result.h"

namespace millrace::emulated {

// Prints the reason and aborts: for bugs that no caller can be told.
[[noreturn]] void give_up(const std::string& why);

class Memory {
 public:
  // One per process, like a GPU's memory.
  static Memory& of_process();

  Result<void*> allocate(int64_t bytes, int64_t most);
  void free(void* memory);

  // Whether these bytes are inside one live allocation.
  bool has(const void* at, int64_t bytes) const;
  // Whether any of these bytes is in a live allocation.
  bool overlaps(const void* at, int64_t bytes) const;
  // Whether nothing was written outside of allocations.
  bool is_intact() const;
  size_t allocations() const;

 private:
  struct Block {
    std::vector<std::byte> bytes;  // with a zone before and one after
    std::byte* begin = nullptr;
    int64_t size = 0;
  };

  static bool is_intact(const Block& block);

  mutable std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;  // by their begin
  std::vector<Block> freed_;           // kept, so that their addresses are not reused too soon
  int64_t used_ = 0;
};

}  // namespace millrace::emulated
