// Compiled kernels on disk, by name. The kernel caches of the CPU and the GPU share it.
//
// Any number of threads and processes may use one directory at once: every file is made in its own folder and renamed
// into place, and no file is used before its owner and its hash have been checked.
// Tests: tests/device/cpu/kernel_cache_test.cpp, tests/device/gpu_test.cpp
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/temporary_directory.h"
#include "device/kernel_index.h"
#include "millrace/result.h"

namespace millrace {

// How many of the missing kernels have been compiled. Called from several threads, one at a time.
using CompileProgress = std::function<void(size_t done, size_t total)>;

// Adds one part of a name, with its length, so that no two lists of parts give the same bytes.
void add_to_name(Sha256& hash, const std::string& part);

// k_ and 32 digits: a hash of all parts in order, after those that `begun` contains.
std::string kernel_name(const std::vector<std::string>& parts, Sha256 begun = {});

// `error`, with what to do if the cache's directory is not writable.
Error with_room_as_remedy(Error error, const std::string& directory);

class KernelStore {
 public:
  // `suffix`: of the object files, ".so" or ".cubin". The directory exists and is private.
  KernelStore(std::string directory, std::string suffix)
      : directory_(std::move(directory)), suffix_(std::move(suffix)) {}

  const std::string& directory() const { return directory_; }
  std::string path_of(const std::string& object) const { return directory_ + "/" + object; }

  // The index entry of a kernel; nullopt if it is missing, damaged or another user's.
  std::optional<IndexEntry> entry(const std::string& name) const;
  // An object's bytes, whose hash the caller compares; nullopt if it is missing or another user's.
  std::optional<std::string> object(const std::string& file) const;

  // Moves the file `made` from a temporary folder into place as the object of the kernels `names`. The object comes
  // first, so that no entry names a missing file.
  Result<Done> put(const TemporaryDirectory& folder, const std::string& made, const std::string& sha256,
                   const std::vector<std::string>& names) const;

  // The error of a kernel that does not compile. Keeps its source for inspection.
  Error blame(const std::string& name, Error error, const std::string& text, const std::string& text_suffix) const;

  // Removes what killed processes left.
  void remove_stale() const;

 private:
  std::string directory_;
  std::string suffix_;
};

}  // namespace millrace
