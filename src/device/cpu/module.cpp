#include "device/cpu/module.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/directories.h"
#include "base/sha256.h"
#include "base/text.h"

namespace millrace {
namespace {

// The threads of OpenMP runtimes outlive the modules that started them, so their code must stay loaded.
void keep_openmp_loaded() {
  for (const char* runtime : {"libgomp.so.1", "libomp.so.5", "libomp.so"})
    if (void* handle = dlopen(runtime, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE)) dlclose(handle);
}

std::string loader_message() {
  const char* message = dlerror();
  return message == nullptr ? "unknown error" : message;
}

std::optional<std::string> content_of(const Descriptor& file) {
  std::string bytes;
  std::array<char, 65536> block{};
  while (true) {
    const ssize_t count = read(file.number(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) return bytes;
    bytes.append(block.data(), static_cast<size_t>(count));
  }
}

}  // namespace

Result<KernelModule> KernelModule::load(const std::string& path, const std::string& expected_sha256) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open())
    return Error::make(ErrorKind::failed, concat("cannot open the kernels in '", path, "': ", std::strerror(errno)));
  if (const Result<Done> own = check_own_file(file.number(), path); !own) return own.error();
  const std::optional<std::string> bytes = content_of(file);
  if (!bytes)
    return Error::make(ErrorKind::failed, concat("cannot read the kernels in '", path, "': ", std::strerror(errno)));
  if (sha256(*bytes) != expected_sha256)
    return Error::make(ErrorKind::failed, concat("'", path, "' was changed after it was made: its hash differs"),
                       "remove it; Millrace makes it again");
  const std::string loaded_as = concat("/proc/self/fd/", file.number());
  void* handle = dlopen(loaded_as.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Error::make(ErrorKind::failed, concat("cannot load the kernels in '", path, "': ", loader_message()));
  keep_openmp_loaded();
  return KernelModule(path, std::move(file), loaded_as, handle);
}

KernelModule::KernelModule(std::string path, Descriptor file, std::string loaded_as, void* handle)
    : path_(std::move(path)), file_(std::move(file)), loaded_as_(std::move(loaded_as)), handle_(handle) {}

KernelModule::KernelModule(KernelModule&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      loaded_as_(std::move(other.loaded_as_)),
      handle_(std::exchange(other.handle_, nullptr)) {}

KernelModule& KernelModule::operator=(KernelModule&& other) noexcept {
  if (this != &other) {
    unload();
    path_ = std::move(other.path_);
    file_ = std::move(other.file_);
    loaded_as_ = std::move(other.loaded_as_);
    handle_ = std::exchange(other.handle_, nullptr);
  }
  return *this;
}

KernelModule::~KernelModule() { unload(); }

void KernelModule::unload() {
  if (handle_ == nullptr) return;
  dlclose(std::exchange(handle_, nullptr));
  // The loader may keep the library (another KernelModule of the same file, symbols that must be unique) and would then
  // take the next file of the same name for it. The descriptor stays open in that case, so that no other file gets its
  // number.
  if (void* kept = dlopen(loaded_as_.c_str(), RTLD_NOW | RTLD_NOLOAD)) {
    dlclose(kept);
    file_.release();
  }
}

Result<void*> KernelModule::function(const std::string& name) const {
  void* address = handle_ == nullptr ? nullptr : dlsym(handle_, name.c_str());
  if (address != nullptr) return address;
  return Error::make(ErrorKind::failed, concat("there is no function '", name, "' in '", path_, "'"));
}

}  // namespace millrace
