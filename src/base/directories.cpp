#include "base/directories.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/descriptor.h"
#include "base/quote.h"
#include "base/text.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;

// An environment variable's value; "" if it is not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Kind {
  const char* own;      // the variable that names the directory itself
  const char* base;     // the variable that names its parent directory
  const char* in_home;  // the default of `base`, from $HOME
};

constexpr Kind kCache = {.own = "MILLRACE_CACHE_DIR", .base = "XDG_CACHE_HOME", .in_home = ".cache"};
constexpr Kind kData = {.own = "MILLRACE_DATA_DIR", .base = "XDG_DATA_HOME", .in_home = ".local/share"};

Result<std::string> find_directory(const Kind& kind) {
  if (const std::string own = variable(kind.own); !own.empty()) {
    std::error_code failed;
    const fs::path path = fs::absolute(own, failed);
    if (!failed) return path.string();
    return Error::make(ErrorKind::bad_input, concat("$", kind.own, " is '", own, "': ", failed.message()));
  }
  // The XDG specification says to ignore relative paths.
  if (const std::string base = variable(kind.base); fs::path(base).is_absolute()) return base + "/millrace";
  if (const std::string home = variable("HOME"); fs::path(home).is_absolute())
    return concat(home, "/", kind.in_home, "/millrace");
  return Error::make(ErrorKind::bad_input,
                     concat("no directory for Millrace's files: none of $", kind.own, ", $", kind.base,
                            " and $HOME names an absolute path"),
                     concat("set ", kind.own, " to a directory that you own"));
}

Result<std::string> found_and_made(const Kind& kind) {
  Result<std::string> path = find_directory(kind);
  if (!path) return path;
  Result<Done> made = make_private_directory(*path);
  if (made) return path;
  made.error().diagnostics.front().remedy += concat(", or set ", kind.own, " to another directory that you own");
  return made.error();
}

Error directory_error(const std::string& path, int number) {
  return Error::make(ErrorKind::failed, concat("cannot create the directory '", path, "': ", std::strerror(number)),
                     "use a directory that you may write to");
}

Result<Done> make_with_parents(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return Done{};
  if (errno != ENOENT) return directory_error(path, errno);
  const std::string parent = fs::path(path).parent_path().string();
  if (parent.empty() || parent == path) return directory_error(path, ENOENT);
  if (Result<Done> made = make_with_parents(parent); !made) return made;
  // Another process may have created it meanwhile.
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return Done{};
  return directory_error(path, errno);
}

}  // namespace

Result<std::string> cache_directory() { return found_and_made(kCache); }
Result<std::string> data_directory() { return found_and_made(kData); }
Result<std::string> find_cache_directory() { return find_directory(kCache); }
Result<std::string> find_data_directory() { return find_directory(kData); }

Result<Done> make_private_directory(const std::string& path) {
  if (Result<Done> made = make_with_parents(fs::path(path).lexically_normal().string()); !made) return made;
  const Descriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (!directory.is_open() || fstat(directory.number(), &status) != 0) return directory_error(path, errno);
  if (status.st_uid != geteuid())
    return Error::make(ErrorKind::failed,
                       concat("'", path, "' belongs to user ", status.st_uid, ", not to you (user ", geteuid(), ")"),
                       concat("Millrace executes files from it, so you must own it: remove it or change its owner"));
  if ((status.st_mode & kWritableByOthers) != 0)
    return Error::make(ErrorKind::failed, concat("other users may write to '", path, "'"),
                       concat("Millrace executes files from it: run chmod go-w ", shell_word(path)));
  return Done{};
}

Result<Done> check_own_file(const std::string& path) {
  // Not blocking: opening a named pipe must not wait for its other end.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.is_open()) return check_own_file(file.number(), path);
  const int number = errno;
  if (number == ELOOP) return Error::make(ErrorKind::failed, concat("'", path, "' is a link, not a regular file"));
  return Error::make(ErrorKind::failed, concat("cannot open '", path, "': ", std::strerror(number)));
}

Result<Done> check_own_file(int descriptor, const std::string& path) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0)
    return Error::make(ErrorKind::failed, concat("cannot read '", path, "': ", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) return Error::make(ErrorKind::failed, concat("'", path, "' is not a regular file"));
  if (status.st_uid != geteuid() && status.st_uid != 0)
    return Error::make(ErrorKind::failed,
                       concat("'", path, "' belongs to user ", status.st_uid, ", not to you (user ", geteuid(), ")"),
                       "remove it, or change its owner if you trust its content");
  if ((status.st_mode & kWritableByOthers) != 0)
    return Error::make(ErrorKind::failed, concat("other users may write to '", path, "'"),
                       concat("run chmod go-w ", shell_word(path), " if you trust its content"));
  return Done{};
}

}  // namespace millrace
