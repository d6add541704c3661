#include "base/installation.h"

#include <dlfcn.h>

#include <system_error>

namespace millrace {
namespace fs = std::filesystem;
namespace {

// The folders of the program and of the shared library or program that contains this code.
std::vector<fs::path> own_folders() {
  std::vector<fs::path> folders;
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  if (!failed) folders.push_back(program.parent_path());
  Dl_info found{};
  if (dladdr(reinterpret_cast<void*>(&own_folders), &found) != 0 && found.dli_fname != nullptr) {
    const fs::path library = fs::canonical(found.dli_fname, failed);
    if (!failed) folders.push_back(library.parent_path());
  }
  return folders;
}

}  // namespace

std::vector<fs::path> places_near(const std::vector<fs::path>& own, const std::string& file, const fs::path& within,
                                  const fs::path& built_for) {
  std::vector<fs::path> places;
  for (const fs::path& folder : own) places.push_back(folder / file);
  for (const fs::path& folder : own) {
    const fs::path above = folder.parent_path();
    for (const fs::path& prefix : {above, above.parent_path()}) places.push_back(prefix / within / file);
  }
  if (!built_for.empty()) places.push_back(built_for / within / file);
  return places;
}

std::vector<fs::path> installed_places(const std::string& file, InstalledIn where) {
  const fs::path within = where == InstalledIn::lib ? MILLRACE_LIBDIR : MILLRACE_LIBEXECDIR;
  return places_near(own_folders(), file, within, MILLRACE_PREFIX);
}

}  // namespace millrace
