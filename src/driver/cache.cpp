// `millrace cache`: the kernels that were compiled, and the record of those that belong to plans. Other files in the
// folder, such as the plans of millrace.torch, are left alone.
#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/directories.h"
#include "base/quote.h"
#include "base/text.h"
#include "millrace/millrace.h"
#include "report/json_text.h"
#include "report/units.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// "k_" or "o_", 32 or more hexadecimal digits, and one of the suffixes that kernel caches write.
bool is_kernel_file(const std::string& name) {
  constexpr size_t kDigits = 32;
  if (!name.starts_with("k_") && !name.starts_with("o_")) return false;
  const size_t end = name.find_first_not_of("0123456789abcdef", 2);
  if (end == std::string::npos || end < 2 + kDigits) return false;
  const std::string suffix = name.substr(end);
  return suffix == ".index" || suffix == ".so" || suffix == ".cubin" || suffix == ".cpp" || suffix == ".cu";
}

struct CacheFiles {
  std::string folder;
  std::vector<fs::path> files;
  int64_t bytes = 0;
};

void add_files(const fs::path& folder, CacheFiles& found) {
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code unknown;
    if (!at->is_regular_file(unknown) || at->is_symlink(unknown) || !is_kernel_file(at->path().filename().string()))
      continue;
    const std::uintmax_t size = at->file_size(unknown);
    found.files.push_back(at->path());
    found.bytes += unknown ? 0 : static_cast<int64_t>(size);
  }
}

Result<CacheFiles> find_files() {
  const Result<std::string> folder = find_cache_directory();
  if (!folder) return folder.error();
  CacheFiles found{*folder, {}, 0};
  for (const char* const part : {"", "made", "failed"}) add_files(fs::path(*folder) / part, found);
  std::sort(found.files.begin(), found.files.end());
  return found;
}

std::string cache_text(const CacheFiles& files, Format format, std::string_view verb) {
  if (format == Format::json) {
    JsonText json;
    json.field("schema_version", 1);
    json.field("folder", files.folder);
    json.field("files", files.files.size());
    json.field("bytes", files.bytes);
    return std::move(json).finish();
  }
  return concat(files.files.size(), " files of compiled kernels ", verb, " ", printable_line(files.folder), ", ",
                shown_bytes(files.bytes), "\n");
}

}  // namespace

Result<std::string> show_cache(const CacheOptions& options) {
  const Result<CacheFiles> found = find_files();
  if (!found) return found.error();
  return cache_text(*found, options.format, "in");
}

Result<std::string> clean_cache(const CacheOptions& options) {
  const Result<CacheFiles> found = find_files();
  if (!found) return found.error();
  for (const fs::path& file : found->files) {
    std::error_code failed;
    fs::remove(file, failed);
    if (failed)
      return Error::make(ErrorKind::failed, concat("cannot delete '", file.string(), "': ", failed.message()),
                         "check the permissions of its folder");
  }
  return cache_text(*found, options.format, "deleted from");
}

}  // namespace millrace
