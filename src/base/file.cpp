#include "base/file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/text.h"

namespace millrace {
namespace {

Error file_error(ErrorKind kind, const std::string& verb, const std::string& path, int number) {
  return Error::make(kind, concat("cannot ", verb, " '", path, "': ", std::strerror(number)));
}

Result<std::string> read_open_file(const Descriptor& file, const std::string& path, int64_t size, int64_t limit,
                                   CheckBeginning check) {
  const Error too_large = Error::make(ErrorKind::bad_input, concat("'", path, "' is larger than ", limit, " bytes"),
                                      concat("at most ", limit, " bytes are read"));
  if (size > limit) return too_large;
  std::string bytes;
  bytes.reserve(static_cast<size_t>(size));
  std::array<char, 65536> block{};
  while (true) {
    const ssize_t count = read(file.number(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error(ErrorKind::failed, "read", path, errno);
    if (count == 0) return bytes;
    bytes.append(block.data(), static_cast<size_t>(count));
    if (static_cast<int64_t>(bytes.size()) > limit) return too_large;
    Result<Done> right = check == nullptr ? Result<Done>(Done{}) : check(bytes);
    if (right) continue;
    for (Diagnostic& diagnostic : right.error().diagnostics) diagnostic.file = path;
    return right.error();
  }
}

enum class Accepted { regular_files, pipes_too };

Result<std::string> read_accepted(const std::string& path, int64_t limit, Accepted accepted, CheckBeginning check) {
  const bool regular = accepted == Accepted::regular_files;
  // Not blocking: opening a named pipe must not wait for its other end.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | (regular ? O_NONBLOCK : 0)));
  if (!file.is_open()) return file_error(ErrorKind::bad_input, "open", path, errno);
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return file_error(ErrorKind::failed, "read", path, errno);
  if (S_ISDIR(status.st_mode))
    return Error::make(ErrorKind::bad_input, concat("'", path, "' is a directory, not a file"));
  if (regular && !S_ISREG(status.st_mode))
    return Error::make(ErrorKind::bad_input, concat("'", path, "' is a pipe or a device, not a regular file"),
                       "remove it, or give the path of a file");
  return read_open_file(file, path, status.st_size, limit, check);
}

// 0, or errno.
int write_all(const Descriptor& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file.number(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return 0;
}

bool is_link(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

constexpr mode_t kMode = 0644;
constexpr mode_t kReadersButUs = 0044;

// Where to write.
struct Destination {
  Descriptor through;  // a device or a pipe; closed: replace `file`
  std::string file;
  mode_t mode = kMode;  // of the new file: whoever may not read the earlier one may not read this one
};

// Opens `path` to learn what it is, so that the kernel decides which links may be followed.
Result<Destination> find_destination(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
  const bool link = is_link(path);
  Descriptor there(open(path.c_str(), kFlags));
  if (!there.is_open() && errno == ENOENT && !link) return Destination{{}, path};
  if (!there.is_open() && errno == ENOENT) there = Descriptor(open(path.c_str(), kFlags | O_CREAT, kMode));
  struct stat status {};
  if (!there.is_open() || fstat(there.number(), &status) != 0)
    return file_error(ErrorKind::failed, "write", path, errno);
  if (!S_ISREG(status.st_mode)) return Destination{std::move(there), path};
  const mode_t mode = (kMode & ~kReadersButUs) | (status.st_mode & kReadersButUs);
  if (!link) return Destination{{}, path, mode};
  std::error_code failed;
  const auto target = std::filesystem::read_symlink(concat("/proc/self/fd/", there.number()), failed);
  if (failed) return file_error(ErrorKind::failed, "write", path, failed.value());
  return Destination{{}, target.string(), mode};
}

// An unpredictable name, so that nobody can put a file or a link there first.
Result<std::string> unpredictable_name(const std::string& path) {
  std::array<unsigned char, 16> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return file_error(ErrorKind::failed, "write", path, errno);
  std::string name = concat(path, ".");
  for (const unsigned char byte : random) {
    name += "0123456789abcdef"[byte / 16];
    name += "0123456789abcdef"[byte % 16];
  }
  return name + ".tmp";
}

Result<Done> replace_file(const std::string& path, mode_t mode, std::string_view bytes) {
  const Result<std::string> temporary = unpredictable_name(path);
  if (!temporary) return temporary.error();
  const Descriptor file(open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file.is_open()) return file_error(ErrorKind::failed, "write", path, errno);
  int number = write_all(file, bytes);
  if (number == 0 && std::rename(temporary->c_str(), path.c_str()) != 0) number = errno;
  if (number == 0) return Done{};
  unlink(temporary->c_str());
  return file_error(ErrorKind::failed, "write", path, number);
}

}  // namespace

Result<std::string> read_file(const std::string& path, int64_t limit) {
  return read_accepted(path, limit, Accepted::regular_files, nullptr);
}

Result<std::string> read_file_or_pipe(const std::string& path, int64_t limit, CheckBeginning check) {
  return read_accepted(path, limit, Accepted::pipes_too, check);
}

Result<Done> write_file(const std::string& path, std::string_view bytes) {
  const Result<Destination> destination = find_destination(path);
  if (!destination) return destination.error();
  if (!destination->through.is_open()) return replace_file(destination->file, destination->mode, bytes);
  if (const int number = write_all(destination->through, bytes); number != 0)
    return file_error(ErrorKind::failed, "write", path, number);
  return Done{};
}

Result<Done> write_own_file(const std::string& path, std::string_view bytes) {
  return replace_file(path, kMode, bytes);
}

}  // namespace millrace
