#include "device/gpu_kernel_cache.h"

#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/directories.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "device/compile_queue.h"

namespace millrace {
namespace {

constexpr std::string_view kToken = "MILLRACE_KERNEL";

std::optional<CompiledCubin> find(const KernelStore& store, const std::string& name) {
  const std::optional<IndexEntry> entry = store.entry(name);
  if (!entry) return std::nullopt;
  std::optional<std::string> bytes = store.object(entry->object);
  if (!bytes || sha256(*bytes) != entry->sha256) return std::nullopt;
  return CompiledCubin{name, store.path_of(entry->object), entry->sha256, std::move(*bytes)};
}

}  // namespace

std::string with_kernel_name(std::string text, const std::string& name) {
  for (size_t at = text.find(kToken); at != std::string::npos; at = text.find(kToken, at + name.size()))
    text.replace(at, kToken.size(), name);
  return text;
}

Launch with_kernel_names(Launch launch, const std::string& name) {
  for (GpuGrid& grid : launch.grids) grid.function = with_kernel_name(std::move(grid.function), name);
  return launch;
}

GpuKernelCache::GpuKernelCache(std::string directory, const GpuCompiler& compiler, std::string prelude,
                               std::string architecture)
    : directory_(std::move(directory)),
      compiler_(compiler),
      prelude_(std::move(prelude)),
      architecture_(std::move(architecture)),
      queue_(std::make_shared<CompileQueue>()) {
  add_to_name(names_, prelude_);
}

std::string GpuKernelCache::name_of(const Launch& launch) const {
  return kernel_name({launch.kernel, architecture_, compiler_.version()}, names_);
}

std::string GpuKernelCache::source_of(const Launch& launch) const {
  return concat("#line 1 \"prelude\"\n", prelude_, "\n#line 1 \"kernel\"\n",
                with_kernel_name(launch.kernel, name_of(launch)), "\n");
}

Result<CompiledCubin> GpuKernelCache::compile(const KernelStore& store, const Launch& launch,
                                              const std::string& name) const {
  const std::string source = source_of(launch);
  Result<std::string> cubin = compiler_.compile(source, architecture_);
  if (!cubin && cubin.error().kind != ErrorKind::bad_input) return cubin.error();
  if (!cubin) return store.blame(name, cubin.error(), source, ".cu");
  const Result<TemporaryDirectory> folder = TemporaryDirectory::make(directory_);
  if (!folder) return with_room_as_remedy(folder.error(), directory_);
  const std::string made = folder->path() + "/kernel.cubin";
  if (const Result<Done> written = write_file(made, *cubin); !written)
    return with_room_as_remedy(written.error(), directory_);
  const std::string hash = sha256(*cubin);
  if (const Result<Done> stored = store.put(*folder, made, hash, {name}); !stored) return stored.error();
  return CompiledCubin{name, store.path_of(object_name(hash, ".cubin")), hash, std::move(*cubin)};
}

std::vector<Result<CompiledCubin>> GpuKernelCache::get(const std::vector<Launch>& launches, int jobs,
                                                       const CompileProgress& progress) const {
  std::vector<Result<CompiledCubin>> results;
  if (const Result<Done> usable = make_private_directory(directory_); !usable) {
    results.assign(launches.size(), usable.error());
    return results;
  }
  const KernelStore store(directory_, ".cubin");
  std::vector<std::string> names;
  std::map<std::string, Result<CompiledCubin>> known;
  std::vector<std::pair<std::string, const Launch*>> missing;
  known.emplace("", CompiledCubin{});
  for (const Launch& launch : launches) {
    names.push_back(launch.kernel.empty() ? "" : name_of(launch));
    const std::string& name = names.back();
    if (known.contains(name)) continue;
    std::optional<CompiledCubin> found = find(store, name);
    if (!found) missing.emplace_back(name, &launch);
    known.emplace(name, found ? Result<CompiledCubin>(std::move(*found)) : Result<CompiledCubin>(Error{}));
  }
  if (!missing.empty()) store.remove_stale();
  std::mutex mutex;  // guards everything below
  size_t done = 0;
  queue_->run(missing.size(), jobs, [&](size_t k) {
    Result<CompiledCubin> compiled = compile(store, *missing[k].second, missing[k].first);
    const std::lock_guard lock(mutex);
    known.insert_or_assign(missing[k].first, std::move(compiled));
    if (progress) progress(++done, missing.size());
  });
  for (const std::string& name : names) results.push_back(known.at(name));
  return results;
}

void GpuKernelCache::forget() const { queue_->forget(); }

}  // namespace millrace
