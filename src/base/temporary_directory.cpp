#include "base/temporary_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/text.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRandom = "XXXXXX";  // as mkdtemp requires

// Whether make() may have chosen this name.
bool is_own_name(std::string_view name) {
  const std::string_view prefix = TemporaryDirectory::kPrefix;
  return name.starts_with(prefix) && name.size() == prefix.size() + kRandom.size();
}

void remove_all(const std::string& path) {
  std::error_code ignored;  // what cannot be removed now is removed as stale later
  if (!path.empty()) fs::remove_all(path, ignored);
}

}  // namespace

std::string TemporaryDirectory::system_folder() {
  std::error_code failed;
  const fs::path folder = fs::temp_directory_path(failed);
  return failed ? "/tmp" : folder.string();
}

Result<TemporaryDirectory> TemporaryDirectory::make(const std::string& parent) {
  std::string path = concat(parent, "/", kPrefix, kRandom);
  if (mkdtemp(path.data()) == nullptr)
    return Error::make(ErrorKind::failed, concat("cannot write to '", parent, "': ", std::strerror(errno)));
  return TemporaryDirectory(std::move(path));
}

TemporaryDirectory::TemporaryDirectory(std::string path) : path_(std::move(path)) {}

TemporaryDirectory::TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TemporaryDirectory& TemporaryDirectory::operator=(TemporaryDirectory&& other) noexcept {
  if (this != &other) {
    remove_all(path_);
    path_ = std::exchange(other.path_, {});
  }
  return *this;
}

TemporaryDirectory::~TemporaryDirectory() { remove_all(path_); }

void remove_stale_temporaries(const std::string& parent, double seconds) {
  std::error_code failed;
  for (fs::directory_iterator entry(parent, failed), end; !failed && entry != end; entry.increment(failed)) {
    const std::string path = entry->path().string();
    if (!is_own_name(entry->path().filename().string())) continue;
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid()) continue;
    if (std::difftime(std::time(nullptr), status.st_mtime) > seconds) remove_all(path);
  }
}

}  // namespace millrace
