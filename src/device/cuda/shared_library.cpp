#include "device/cuda/shared_library.h"

#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "base/text.h"

namespace millrace {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void add_matching(const std::string& pattern, std::vector<std::string>& folders) {
  glob_t found{};
  if (glob(pattern.c_str(), GLOB_NOSORT | GLOB_ONLYDIR, nullptr, &found) == 0) {
    std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    std::sort(paths.begin(), paths.end(), std::greater<>());  // later versions first
    folders.insert(folders.end(), paths.begin(), paths.end());
  }
  globfree(&found);
}

}  // namespace

Result<SharedLibrary> SharedLibrary::open(const std::vector<std::string>& files,
                                          const std::vector<std::string>& folders) {
  std::vector<std::string> paths = files;
  for (const std::string& folder : folders)
    for (const std::string& file : files) paths.push_back(concat(folder, "/", file));
  std::string reason;
  for (const std::string& path : paths) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return SharedLibrary(handle);
    const char* message = dlerror();
    // A file that exists but does not load says more than missing files.
    const std::string said = message == nullptr ? path : message;
    if (reason.empty() || said.find("No such file") == std::string::npos) reason = said;
  }
  return Error::make(ErrorKind::unavailable, reason);
}

std::vector<std::string> toolkit_folders() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_PATH", "CUDA_HOME"})
    if (const std::string root = variable(name); root.starts_with("/")) folders.push_back(root + "/lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  add_matching("/usr/local/cuda/targets/*/lib", folders);
  // Packages of the Python that is first in $PATH, of an active environment, and of the system.
  std::vector<std::string> prefixes;
  if (const std::string active = variable("VIRTUAL_ENV"); active.starts_with("/")) prefixes.push_back(active);
  for (const std::string& folder : split(variable("PATH"), ':'))
    if (folder.starts_with("/")) prefixes.push_back(folder + "/..");
  if (const std::string home = variable("HOME"); home.starts_with("/")) prefixes.push_back(home + "/.local");
  for (const std::string& prefix : prefixes)
    for (const char* packages : {"site-packages", "dist-packages"})
      add_matching(concat(prefix, "/lib/python3*/", packages, "/nvidia/*/lib"), folders);
  add_matching("/usr/local/cuda-*/lib64", folders);
  return folders;
}

GpuSoftware missing_software(const Error& error) {
  const Diagnostic& why = error.diagnostics.front();
  return {"", "", why.remedy.empty() ? why.message : concat(why.message, ": ", why.remedy)};
}

std::string version_text(long version, long major_unit, long minor_unit) {
  return concat(version / major_unit, ".", version % major_unit / minor_unit);
}

}  // namespace millrace
