#include "measure/database_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/quote.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr std::array<const char*, 3> kSqlitesOwn = {"-wal", "-shm", "-journal"};  // what it adds to the file's name

// No function here opens an existing database: closing it would drop the locks of all of this process's connections.

Error cannot(const std::string& verb, const std::string& path, int number) {
  const bool missing = number == ENOENT || number == ENOTDIR;
  const bool forbidden = number == EACCES || number == EPERM || number == EROFS;
  return Error::make(missing || forbidden ? ErrorKind::bad_input : ErrorKind::failed,
                     concat("cannot ", verb, " the database '", path, "': ", std::strerror(number)),
                     missing && verb == "create" ? "create its folder first, or pass another file with --db"
                     : missing                   ? "check the name; db import and db merge create a new file"
                                                 : "check the permissions of the file and its folder");
}

Result<Done> check_ours(const std::string& path, const struct stat& status) {
  if (status.st_uid != geteuid())
    return Error::make(ErrorKind::bad_input, concat("'", path, "' belongs to another user and is not trusted"),
                       "copy it, or import its rows: millrace db merge FILE");
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error::make(ErrorKind::bad_input, concat("'", path, "' is writable by other users and is not trusted"),
                       concat("if its rows are yours: chmod 600 ", shell_word(path)));
  return Done{};
}

}  // namespace

Result<std::string> readable_database_file(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  if (real == nullptr) return cannot("open", path, errno);
  struct stat status {};
  if (stat(real.get(), &status) != 0) return cannot("open", path, errno);
  if (!S_ISREG(status.st_mode))
    return Error::make(
        ErrorKind::bad_input,
        concat("'", path, "' is ", S_ISDIR(status.st_mode) ? "a directory" : "not a plain file", ", not a database"),
        "pass a file with --db");
  for (const char* const suffix : kSqlitesOwn) {
    const std::string own = concat(real.get(), suffix);
    if (stat(own.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
      return Error::make(ErrorKind::bad_input, concat("'", own, "' is not a plain file; SQLite would wait for it"),
                         "remove it, or pass another database with --db");
  }
  return std::string(real.get());
}

Result<std::string> own_database_file(const std::string& path) {
  Result<std::string> file = readable_database_file(path);
  if (!file) return file;
  std::vector<std::string> files = {*file};
  for (const char* const suffix : kSqlitesOwn) files.push_back(*file + suffix);
  for (const std::string& one : files) {
    struct stat status {};
    if (stat(one.c_str(), &status) != 0) continue;  // SQLite's own files may not exist
    const Result<Done> ours = check_ours(one, status);
    if (!ours) return ours.error();
  }
  return file;
}

Result<Done> create_database_file(const std::string& path) {
  // Create it under another name, so that it is closed before anybody can open it.
  std::string name = path + ".XXXXXX";
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return Done{};
  const int made = mkstemp(name.data());  // 0600
  if (made < 0) return cannot("create", path, errno);
  close(made);
  const int linked = link(name.c_str(), path.c_str()) == 0 ? 0 : errno;
  unlink(name.c_str());
  if (linked != 0 && linked != EEXIST) return cannot("create", path, linked);
  return Done{};
}

}  // namespace millrace
