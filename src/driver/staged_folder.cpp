#include "driver/staged_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/directories.h"
#include "base/text.h"
#include "driver/plan_folder.h"

namespace millrace {
namespace {

constexpr double kStaleSeconds = 3600;  // compiling and checking a plan takes less

}  // namespace

Result<StagedFolder> StagedFolder::make(const std::string& folder) {
  std::error_code failed;
  const bool there = std::filesystem::exists(folder, failed);
  if (Result<Done> usable = make_private_directory(folder); !usable) return usable.error();
  remove_stale_temporaries(folder, kStaleSeconds);
  Result<TemporaryDirectory> stage = TemporaryDirectory::make(folder);
  if (!stage) return stage.error();
  return StagedFolder(folder, there ? "" : folder, std::move(*stage));
}

StagedFolder::StagedFolder(std::string folder, std::string fresh, TemporaryDirectory stage)
    : folder_(std::move(folder)), fresh_(std::move(fresh)), stage_(std::move(stage)) {}

StagedFolder::StagedFolder(StagedFolder&& other) noexcept
    : folder_(std::move(other.folder_)), fresh_(std::exchange(other.fresh_, {})), stage_(std::move(other.stage_)) {}

StagedFolder::~StagedFolder() {
  if (fresh_.empty()) return;
  { const TemporaryDirectory removed = std::move(stage_); }
  rmdir(fresh_.c_str());  // fails if somebody put something there
}

Result<Done> StagedFolder::keep() {
  for (const char* const name : kFilesOfPlan) {
    const std::string from = concat(path(), "/", name);
    const std::string to = concat(folder_, "/", name);
    if (std::rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) continue;
    return Error::make(ErrorKind::failed, concat("cannot write '", to, "': ", std::strerror(errno)),
                       "use a folder that you may write to");
  }
  fresh_.clear();
  return Done{};
}

}  // namespace millrace
