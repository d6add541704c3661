// The memory of a GPU that is emulated: the host's, but every address is known to be the device's, and what is written
// beside an allocation is noticed. Fresh memory is full of NaNs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/result.h"

namespace millrace::emulated {

// Prints, and ends the process: where a defect has no one to be told to.
[[noreturn]] void give_up(const std::string& why);

class Memory {
 public:
  // One for the process, as a GPU's memory is.
  static Memory& of_process();

  Result<void*> allocate(int64_t bytes, int64_t most);
  void free(void* memory);

  // Whether these bytes are the device's, in one allocation that is not freed.
  bool has(const void* at, int64_t bytes) const;
  // Whether any of these bytes is the device's.
  bool overlaps(const void* at, int64_t bytes) const;
  // Whether nothing was written beside an allocation.
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
  std::vector<Block> freed_;           // for a while nobody else gets their addresses
  int64_t used_ = 0;
};

}  // namespace millrace::emulated
