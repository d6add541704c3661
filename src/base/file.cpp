#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/descriptor.h"
#include "base/text.h"

namespace millrace {
namespace {

Error file_error(ErrorKind kind, const std::string& verb, const std::string& path, int number) {
  return Error::make(kind, concat("cannot ", verb, " '", path, "': ", std::strerror(number)));
}

}  // namespace

Result<std::string> read_file(const std::string& path, int64_t limit) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return file_error(ErrorKind::bad_input, "open", path, errno);
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return file_error(ErrorKind::failed, "read", path, errno);
  if (S_ISDIR(status.st_mode))
    return Error::make(ErrorKind::bad_input, concat("'", path, "' is a directory, not a file"));
  const Error too_large = Error::make(ErrorKind::bad_input, concat("'", path, "' is larger than ", limit, " bytes"),
                                      concat("at most ", limit, " bytes are read"));
  if (status.st_size > limit) return too_large;
  std::string bytes;
  bytes.reserve(static_cast<size_t>(status.st_size));
  std::array<char, 65536> block{};
  while (true) {
    const ssize_t count = read(file.number(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(ErrorKind::failed, "read", path, errno);
    if (count == 0) return bytes;
    bytes.append(block.data(), static_cast<size_t>(count));
    if (static_cast<int64_t>(bytes.size()) > limit) return too_large;
  }
}

Result<Done> write_file(const std::string& path, std::string_view bytes) {
  static std::atomic<int> writes = 0;  // threads may write the same file concurrently
  const std::string temporary = concat(path, ".", getpid(), ".", ++writes, ".tmp");
  {
    const Descriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file.is_open()) return file_error(ErrorKind::failed, "write", path, errno);
    while (!bytes.empty()) {
      const ssize_t count = write(file.number(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        const int number = errno;
        unlink(temporary.c_str());
        return file_error(ErrorKind::failed, "write", path, number);
      }
      bytes.remove_prefix(static_cast<size_t>(count));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int number = errno;
    unlink(temporary.c_str());
    return file_error(ErrorKind::failed, "write", path, number);
  }
  return Done{};
}

}  // namespace millrace
