// A private directory that is removed, with its content, at the end of the scope. Tests: tests/device/cpu/.
#pragma once

#include <string>

#include "millrace/result.h"

namespace millrace {

class TemporaryDirectory {
 public:
  // Prefix of all names, so that directories left by killed processes can be recognized. Not "tmp.", the prefix of
  // `mktemp -d`: `parent` may be a folder of the user's.
  static constexpr const char* kPrefix = "millrace-tmp.";

  // Creates one in `parent`, with a unique name.
  static Result<TemporaryDirectory> make(const std::string& parent);
  // The same in the system's folder for temporary files.
  static Result<TemporaryDirectory> make() { return make(system_folder()); }
  static std::string system_folder();

  TemporaryDirectory(TemporaryDirectory&& other) noexcept;
  TemporaryDirectory& operator=(TemporaryDirectory&& other) noexcept;
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::string path);

  std::string path_;  // empty: moved away
};

// Removes our temporary directories in `parent` that were last modified more than `seconds` ago, by killed processes.
// Test: tests/driver/staged_folder_test.cpp.
void remove_stale_temporaries(const std::string& parent, double seconds);

}  // namespace millrace
