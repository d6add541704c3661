// A directory for the user alone that is removed, with all in it, at the end of the scope.
#pragma once

#include <string>

#include "millrace/result.h"

namespace millrace {

class TemporaryDirectory {
 public:
  // Every name begins with this, so that what a killed process left can be told by name.
  static constexpr const char* kPrefix = "tmp.";

  // In `parent`, under a name that nobody else has.
  static Result<TemporaryDirectory> make(const std::string& parent);

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

// Removes the temporary directories in `parent` that were last written to more than `seconds` ago: a killed process's.
void remove_stale_temporaries(const std::string& parent, double seconds);

}  // namespace millrace
