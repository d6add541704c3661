// Compiled kernels on disk, by name: what the CPU's and the GPU's kernel caches have in common.
//
// Any number of threads and processes may use one directory at once: every file is made in a folder of its own and
// renamed into place, and nothing that is found is used before its owner and its hash have been checked.
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

// How many of the kernels that are not there yet have been compiled. Called from several threads, one at a time.
using CompileProgress = std::function<void(size_t done, size_t total)>;

// One of the parts that a name follows from; with its length, so that no two lists of parts read the same.
void add_to_name(Sha256& hash, const std::string& part);

// k_ and 32 digits, which follow from all the parts and their order, behind those that `begun` has.
std::string kernel_name(const std::vector<std::string>& parts, Sha256 begun = {});

// `error` with what to do when the cache's directory could not be written to.
Error with_room_as_remedy(Error error, const std::string& directory);

class KernelStore {
 public:
  // `suffix`: of the objects' files, ".so" or ".cubin". The directory is there and private.
  KernelStore(std::string directory, std::string suffix)
      : directory_(std::move(directory)), suffix_(std::move(suffix)) {}

  const std::string& directory() const { return directory_; }
  std::string path_of(const std::string& object) const { return directory_ + "/" + object; }

  // What the index says of a kernel; nullopt when it is not there, damaged or somebody else's.
  std::optional<IndexEntry> entry(const std::string& name) const;
  // An object's bytes, whose hash the caller compares; nullopt when it is not there or somebody else's.
  std::optional<std::string> object(const std::string& file) const;

  // Moves the file `made` of a temporary folder into place, as the object of the kernels `names`. The object first: an
  // entry never speaks of a file that is not there.
  Result<Done> put(const TemporaryDirectory& folder, const std::string& made, const std::string& sha256,
                   const std::vector<std::string>& names) const;

  // The error of a kernel that does not compile, whose text is kept for looking at.
  Error blame(const std::string& name, Error error, const std::string& text, const std::string& text_suffix) const;

  // What killed processes left.
  void remove_stale() const;

 private:
  std::string directory_;
  std::string suffix_;
};

}  // namespace millrace
