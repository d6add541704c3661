#include "device/emulated/emulated_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/text.h"

namespace millrace::emulated {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kZone = 512;           // bytes before and after an allocation
constexpr std::byte kPoison{0xff};       // NaNs of every type
constexpr size_t kKeptFreed = 64;        // allocations
constexpr int64_t kKeptBytes = 1 << 20;  // larger ones are not kept

uintptr_t number(const void* at) { return reinterpret_cast<uintptr_t>(at); }

}  // namespace

void give_up(const std::string& why) {
  std::fprintf(stderr, "emulated GPU: %s\n", why.c_str());
  std::abort();
}

Memory& Memory::of_process() {
  static Memory memory;
  return memory;
}

Result<void*> Memory::allocate(int64_t bytes, int64_t most) {
  const std::lock_guard lock(mutex_);
  if (bytes < 0 || bytes > most - used_)
    return Error::make(ErrorKind::failed,
                       concat("cannot allocate ", bytes, " bytes on the GPU: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"),
                       concat(most - used_, " of its ", most,
                              " bytes are free: take a smaller batch, or end what else "
                              "runs on it"));
  Block block;
  block.size = std::max<int64_t>(bytes, 1);
  block.bytes.resize(static_cast<size_t>(block.size + 2 * kZone + kAlignment), kPoison);
  std::byte* const after_zone = block.bytes.data() + kZone;
  block.begin = after_zone + (kAlignment - static_cast<int64_t>(number(after_zone) % kAlignment)) % kAlignment;
  used_ += block.size;
  std::byte* const begin = block.begin;
  blocks_.emplace(number(begin), std::move(block));
  return begin;
}

void Memory::free(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(number(memory));
  if (found == blocks_.end()) give_up("what is freed was not allocated, or is free already");
  Block& block = found->second;
  if (!is_intact(block)) give_up(concat("something was written beside an allocation of ", block.size, " bytes"));
  used_ -= block.size;
  if (block.size <= kKeptBytes) {
    std::fill(block.bytes.begin(), block.bytes.end(), kPoison);
    freed_.push_back(std::move(block));
    if (freed_.size() > kKeptFreed) freed_.erase(freed_.begin());
  }
  blocks_.erase(found);
}

bool Memory::has(const void* at, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  auto above = blocks_.upper_bound(number(at));
  if (above == blocks_.begin()) return false;
  const Block& block = std::prev(above)->second;
  const auto offset = static_cast<int64_t>(number(at) - number(block.begin));
  return offset < block.size && bytes >= 0 && bytes <= block.size - offset;
}

bool Memory::overlaps(const void* at, int64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(blocks_.begin(), blocks_.end(), [&](const auto& entry) {
    return entry.first < number(at) + static_cast<uintptr_t>(bytes) &&
           number(at) < entry.first + static_cast<uintptr_t>(entry.second.size);
  });
}

bool Memory::is_intact(const Block& block) {
  const std::byte* const end = block.begin + block.size;
  const auto is_poison = [](std::byte byte) { return byte == kPoison; };
  return std::all_of(block.bytes.data(), static_cast<const std::byte*>(block.begin), is_poison) &&
         std::all_of(end, block.bytes.data() + block.bytes.size(), is_poison);
}

bool Memory::is_intact() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(blocks_.begin(), blocks_.end(), [](const auto& entry) { return is_intact(entry.second); });
}

size_t Memory::allocations() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

}  // namespace millrace::emulated
