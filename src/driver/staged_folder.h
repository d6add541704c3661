// A plan's folder until the plan is checked: files are written to a temporary folder inside it, and keep() moves them
// into place. Without keep(), nothing has changed in the end; a folder that did not exist before is removed.
// Test: tests/driver/staged_folder_test.cpp
#pragma once

#include <string>

#include "base/temporary_directory.h"
#include "millrace/result.h"

namespace millrace {

class StagedFolder {
 public:
  static Result<StagedFolder> make(const std::string& folder);

  StagedFolder(StagedFolder&& other) noexcept;
  StagedFolder& operator=(StagedFolder&&) = delete;
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  ~StagedFolder();

  // Where to write.
  const std::string& path() const { return stage_.path(); }

  // Moves the plan's files into the folder, plan.json last.
  Result<Done> keep();

 private:
  StagedFolder(std::string folder, std::string fresh, TemporaryDirectory stage);

  std::string folder_;
  std::string fresh_;  // the folder if it was made here and is to be removed; else empty
  TemporaryDirectory stage_;
};

}  // namespace millrace
