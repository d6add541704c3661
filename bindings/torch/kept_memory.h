// Memory of the large CPU tensors that calls of plans make, kept for the next call: what forward saves, and gradients.
//
// A training step frees them and allocates them again. glibc returns blocks of this size to the system, so every step
// would pay a page fault for each 4 KiB: 17,900 of them in the step of a BERT-base layer. At most as many bytes
// are kept as were in use at once. Test: tests/torch/kept_memory_test.py
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <list>
#include <mutex>

class KeptMemory {
 public:
  // malloc itself keeps smaller blocks.
  static constexpr size_t kLeastBytes = size_t{64} << 10;

  // Never destroyed, since tensors may outlive everything else.
  static KeptMemory& shared() {
    static auto* const memory = new KeptMemory;
    return *memory;
  }

  // Page-aligned; null if there is no memory.
  void* take(size_t bytes) {
    const size_t size = rounded(bytes);
    const std::lock_guard<std::mutex> lock(turn_);
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Block& block) { return block.size == size; });
    void* memory = nullptr;
    if (found != kept_.end()) {
      memory = found->memory;
      kept_bytes_ -= size;
      kept_.erase(found);
    } else {
      memory = std::aligned_alloc(kPage, size);
      if (memory == nullptr) return nullptr;
    }
    used_bytes_ += size;
    most_bytes_ = std::max(most_bytes_, used_bytes_);
    return memory;
  }

  // Takes back a block of this many bytes.
  void give(void* memory, size_t bytes) {
    const size_t size = rounded(bytes);
    const std::lock_guard<std::mutex> lock(turn_);
    used_bytes_ -= size;
    kept_bytes_ += size;
    kept_.push_front({memory, size});
    while (kept_bytes_ > most_bytes_) {
      kept_bytes_ -= kept_.back().size;
      std::free(kept_.back().memory);
      kept_.pop_back();
    }
  }

 private:
  struct Block {
    void* memory;
    size_t size;
  };
  static constexpr size_t kPage = 4096;

  static size_t rounded(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

  std::mutex turn_;
  std::list<Block> kept_;  // the last used first
  size_t kept_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t most_bytes_ = 0;  // that were in use at once
};
