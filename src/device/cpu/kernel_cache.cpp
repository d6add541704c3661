#include "device/cpu/kernel_cache.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/directories.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/temporary_directory.h"
#include "base/text.h"
#include "device/cpu/compile.h"
#include "device/cpu/kernel_index.h"

namespace millrace {
namespace {

constexpr int64_t kLargestIndex = 4096;           // bytes
constexpr double kStaleSeconds = 3600;            // no compilation lasts as long
constexpr double kLongestTogetherSeconds = 1800;  // half of that

std::string index_path(const std::string& directory, const std::string& name) {
  return concat(directory, "/", name, ".index");
}

// What stands in the directory, each object hashed once.
class Found {
 public:
  explicit Found(const std::string& directory) : directory_(directory) {}

  std::optional<CompiledKernel> find(const std::string& name) {
    const std::string path = index_path(directory_, name);
    if (!check_own_file(path)) return std::nullopt;
    const Result<std::string> text = read_file(path, kLargestIndex);
    if (!text) return std::nullopt;
    const std::optional<IndexEntry> entry = parse_index_entry(*text, name);
    if (!entry || hash_of(entry->object) != entry->sha256) return std::nullopt;
    return CompiledKernel{name, concat(directory_, "/", entry->object), entry->sha256};
  }

 private:
  // "" when it is not there or not ours.
  const std::string& hash_of(const std::string& object) {
    const auto [known, fresh] = hashes_.try_emplace(object);
    const std::string path = concat(directory_, "/", object);
    if (fresh && check_own_file(path)) {
      const Result<std::string> bytes = read_file(path, kLargestObject);
      if (bytes) known->second = sha256(*bytes);
    }
    return known->second;
  }

  const std::string& directory_;
  std::map<std::string, std::string> hashes_;
};

Result<Done> move_into_place(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return Done{};
  return Error::make(ErrorKind::failed, concat("cannot write '", to, "': ", std::strerror(errno)));
}

// The object first: an entry never speaks of a file that is not there.
Result<Done> put(const FreshObject& object, const std::vector<NamedKernel>& kernels, const std::string& directory) {
  const std::string name = object_name(object.sha256);
  if (Result<Done> moved = move_into_place(object.path, concat(directory, "/", name)); !moved) return moved;
  const std::string entry = object.folder.path() + "/entry";
  for (const NamedKernel& kernel : kernels) {
    if (Result<Done> written = write_file(entry, to_text({kernel.name, name, object.sha256})); !written) return written;
    if (Result<Done> moved = move_into_place(entry, index_path(directory, kernel.name)); !moved) return moved;
  }
  return Done{};
}

// Kernels that are still to be compiled, by batches, and what became of them. Several threads work on it.
class Compilation {
 public:
  using Results = std::map<std::string, Result<CompiledKernel>>;

  Compilation(const std::string& directory, const Compiler& compiler, const std::string& prelude, CompileLimits limits,
              const CompileProgress& progress)
      : directory_(directory), compiler_(compiler), prelude_(prelude), limits_(limits), progress_(progress) {}

  Results run(const std::vector<NamedKernel>& kernels, size_t jobs) {
    total_ = kernels.size();
    const size_t even = (kernels.size() + jobs - 1) / jobs;
    const size_t batch = std::clamp<size_t>(even, 1, std::max<size_t>(limits_.batch, 1));
    for (size_t at = 0; at < kernels.size(); at += batch)
      batches_.emplace_back(kernels.begin() + static_cast<ptrdiff_t>(at),
                            kernels.begin() + static_cast<ptrdiff_t>(std::min(at + batch, kernels.size())));
    std::vector<std::thread> helpers;
    try {
      while (helpers.size() + 1 < std::min(jobs, total_)) helpers.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // No more threads to be had: those that there are do it.
    }
    work();
    for (std::thread& helper : helpers) helper.join();
    return std::move(results_);
  }

 private:
  using Batch = std::vector<NamedKernel>;

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !batches_.empty() || running_ == 0; });
      if (batches_.empty()) return;
      const Batch batch = std::move(batches_.front());
      batches_.pop_front();
      ++running_;
      lock.unlock();
      const Result<std::string> hash = compile_batch(batch);
      lock.lock();
      --running_;
      finish(batch, hash);
      changed_.notify_all();
    }
  }

  // The hash of the object that is in place now; an error without diagnostics when the batch is to be halved.
  Result<std::string> compile_batch(const Batch& batch) const {
    const std::string text = translation_unit(prelude_, batch);
    const CompileOutcome outcome = compile(compiler_, text, directory_, limits_.seconds);
    if (outcome.object) {
      const Result<Done> stored = put(*outcome.object, batch, directory_);
      if (!stored) return with_room_as_remedy(stored.error(), directory_);
      return outcome.object->sha256;
    }
    if (!outcome.failure.by_text) return outcome.failure.error;
    if (batch.size() > 1) return Error{};
    return blame(batch.front(), outcome.failure.error, text);
  }

  Error blame(const NamedKernel& kernel, Error error, const std::string& text) const {
    error.kind = ErrorKind::bad_input;
    Diagnostic& diagnostic = error.diagnostics.front();
    diagnostic.message = concat("kernel ", kernel.name, " does not compile: ", diagnostic.message);
    const std::string folder = directory_ + "/failed";
    const std::string path = concat(folder, "/", kernel.name, ".cpp");
    if (make_private_directory(folder) && write_file(path, text)) diagnostic.remedy = concat("its source is in ", path);
    return error;
  }

  // With the lock held.
  void finish(const Batch& batch, const Result<std::string>& hash) {
    if (!hash && hash.error().diagnostics.empty()) {
      const auto middle = batch.begin() + static_cast<ptrdiff_t>(batch.size() / 2);
      batches_.emplace_back(batch.begin(), middle);
      batches_.emplace_back(middle, batch.end());
      return;
    }
    for (const NamedKernel& kernel : batch) {
      if (hash)
        results_.emplace(kernel.name, CompiledKernel{kernel.name, concat(directory_, "/", object_name(*hash)), *hash});
      else
        results_.emplace(kernel.name, hash.error());
    }
    if (progress_) progress_(results_.size(), total_);
  }

  const std::string& directory_;
  const Compiler& compiler_;
  const std::string& prelude_;
  const CompileLimits limits_;
  const CompileProgress& progress_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<Batch> batches_;
  size_t running_ = 0;
  size_t total_ = 0;
  Results results_;
};

}  // namespace

KernelCache::KernelCache(std::string directory, Compiler compiler, std::string prelude, std::string cpu_model,
                         CompileLimits limits)
    : directory_(std::move(directory)),
      compiler_(std::move(compiler)),
      prelude_(std::move(prelude)),
      cpu_model_(std::move(cpu_model)),
      limits_(limits) {}

std::string KernelCache::name_of(const KernelSource& source) const {
  std::string all;
  std::vector<std::string> parts = {prelude_, source.text, compiler_.version, cpu_model_};
  parts.insert(parts.end(), compiler_.flags.begin(), compiler_.flags.end());
  // With their lengths, so that no two lists of parts read the same.
  for (const std::string& part : parts) all += concat(part.size(), " ", part, "\n");
  return "k_" + sha256(all).substr(0, 32);
}

std::vector<Result<CompiledKernel>> KernelCache::get(const std::vector<KernelSource>& sources, int jobs,
                                                     const CompileProgress& progress) const {
  std::vector<Result<CompiledKernel>> results;
  if (const Result<Done> usable = make_private_directory(directory_); !usable) {
    results.assign(sources.size(), usable.error());
    return results;
  }
  std::vector<std::string> names;
  std::vector<NamedKernel> missing;
  Compilation::Results known;
  Found found(directory_);
  for (const KernelSource& source : sources) {
    names.push_back(name_of(source));
    const std::string& name = names.back();
    if (known.contains(name)) continue;
    const std::optional<CompiledKernel> kernel = found.find(name);
    known.emplace(name, kernel ? Result<CompiledKernel>(*kernel) : Result<CompiledKernel>(Error{}));
    if (!kernel) missing.push_back({name, source.text});
  }
  if (!missing.empty()) {
    remove_stale_temporaries(directory_, kStaleSeconds);
    Compilation compilation(directory_, compiler_, prelude_, limits_, progress);
    for (auto& [name, result] : compilation.run(missing, static_cast<size_t>(std::max(jobs, 1))))
      known.insert_or_assign(name, std::move(result));
  }
  for (const std::string& name : names) results.push_back(known.at(name));
  return results;
}

Result<std::string> KernelCache::compile_together(const std::vector<KernelSource>& sources,
                                                  const std::string& output_path) const {
  if (const Result<Done> usable = make_private_directory(directory_); !usable) return usable.error();
  std::map<std::string, std::string> kernels;
  for (const KernelSource& source : sources) kernels.emplace(name_of(source), source.text);
  std::vector<NamedKernel> named;
  for (const auto& [name, text] : kernels) named.push_back({name, text});
  const size_t batches = named.size() / std::max<size_t>(limits_.batch, 1) + 1;
  const double seconds = std::min(limits_.seconds * static_cast<double>(batches), kLongestTogetherSeconds);
  const CompileOutcome outcome = compile(compiler_, translation_unit(prelude_, named), directory_, seconds);
  if (!outcome.object) {
    Error error = outcome.failure.error;
    if (outcome.failure.by_text)
      error.diagnostics.front().message = concat("kernels do not compile: ", error.diagnostics.front().message);
    return error;
  }
  if (const Result<Done> written = write_file(output_path, outcome.object->bytes); !written) return written.error();
  return outcome.object->sha256;
}

}  // namespace millrace
