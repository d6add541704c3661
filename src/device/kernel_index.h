// Maps a kernel to the object of a cache that contains it, a shared object (.so) or a cubin. Each kernel has one small
// text file:
//
//   millrace kernel 1
//   name k_0123456789abcdef0123456789abcdef
//   object o_0123456789abcdef0123456789abcdef.so
//   sha256 <64 digits: the object's content>
//   check <64 digits: the lines above>
//
// A file is used only if every byte is as it was written.
// Test: tests/device/cpu/kernel_cache_test.cpp
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace millrace {

struct IndexEntry {
  std::string name;    // the kernel's function
  std::string object;  // the file's name, in the same directory
  std::string sha256;  // of the object's content
};

// The name of the object file whose content has this hash.
std::string object_name(std::string_view sha256, std::string_view suffix = ".so");

std::string to_text(const IndexEntry& entry);

// nullopt unless `text` is exactly what to_text made for the kernel `name`.
std::optional<IndexEntry> parse_index_entry(std::string_view text, std::string_view name,
                                            std::string_view suffix = ".so");

}  // namespace millrace
