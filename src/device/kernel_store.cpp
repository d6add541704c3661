#include "device/kernel_store.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/directories.h"
#include "base/file.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr int64_t kLargestIndex = 4096;        // bytes
constexpr int64_t kLargestObject = 1LL << 30;  // bytes
constexpr double kStaleSeconds = 3600;         // no compilation takes as long

Result<Done> move_into_place(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return Done{};
  return Error::make(ErrorKind::failed, concat("cannot write '", to, "': ", std::strerror(errno)));
}

}  // namespace

void add_to_name(Sha256& hash, const std::string& part) {
  hash.add(concat(part.size(), " "));
  hash.add(part);
  hash.add("\n");
}

std::string kernel_name(const std::vector<std::string>& parts, Sha256 begun) {
  for (const std::string& part : parts) add_to_name(begun, part);
  return "k_" + begun.digest().substr(0, 32);
}

Error with_room_as_remedy(Error error, const std::string& directory) {
  if (error.diagnostics.front().remedy.empty())
    error.diagnostics.front().remedy =
        concat("free space in '", directory,
               "' and check that it is writable, or set MILLRACE_CACHE_DIR to another directory");
  return error;
}

std::optional<IndexEntry> KernelStore::entry(const std::string& name) const {
  const std::string path = path_of(name + ".index");
  if (!check_own_file(path)) return std::nullopt;
  const Result<std::string> text = read_file(path, kLargestIndex);
  if (!text) return std::nullopt;
  return parse_index_entry(*text, name, suffix_);
}

std::optional<std::string> KernelStore::object(const std::string& file) const {
  const std::string path = path_of(file);
  if (!check_own_file(path)) return std::nullopt;
  Result<std::string> bytes = read_file(path, kLargestObject);
  if (!bytes) return std::nullopt;
  return std::move(*bytes);
}

Result<Done> KernelStore::put(const TemporaryDirectory& folder, const std::string& made, const std::string& sha256,
                              const std::vector<std::string>& names) const {
  const std::string object = object_name(sha256, suffix_);
  const std::string entry = folder.path() + "/entry";
  Result<Done> done = move_into_place(made, path_of(object));
  for (const std::string& name : names) {
    if (done) done = write_file(entry, to_text({name, object, sha256}));
    if (done) done = move_into_place(entry, path_of(name + ".index"));
  }
  if (!done) return with_room_as_remedy(done.error(), directory_);
  return done;
}

Error KernelStore::blame(const std::string& name, Error error, const std::string& text,
                         const std::string& text_suffix) const {
  error.kind = ErrorKind::bad_input;
  Diagnostic& diagnostic = error.diagnostics.front();
  diagnostic.message = concat("kernel ", name, " does not compile: ", diagnostic.message);
  const std::string folder = directory_ + "/failed";
  const std::string path = concat(folder, "/", name, text_suffix);
  if (make_private_directory(folder) && write_file(path, text)) diagnostic.remedy = concat("its source is in ", path);
  return error;
}

void KernelStore::remove_stale() const { remove_stale_temporaries(directory_, kStaleSeconds); }

}  // namespace millrace
