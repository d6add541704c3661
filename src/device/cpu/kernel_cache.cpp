#include "device/cpu/kernel_cache.h"

#include <algorithm>
#include <condition_variable>
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
#include "base/text.h"
#include "device/cpu/compile.h"
#include "device/kernel_index.h"

namespace millrace {
namespace {

constexpr double kLongestTogetherSeconds = 1800;  // half of what makes a temporary directory stale

// Compilers take more than proportional time for long functions. At -O2 they take a third of it, and kernels of 240
// operators were as fast.
constexpr size_t kLongKernel = size_t{16} << 10;  // characters

bool is_long(const NamedKernel& kernel) { return kernel.text.size() >= kLongKernel; }

std::vector<std::string> flags_of(const std::string& kernel) {
  return kernel.size() >= kLongKernel ? std::vector<std::string>{"-O2"} : std::vector<std::string>();
}

// Either all of its kernels are long, or none is.
TranslationUnit unit_of(const std::string& prelude, const std::vector<NamedKernel>& kernels) {
  return {translation_unit(prelude, kernels), flags_of(kernels.front().text)};
}

// The objects in the directory, each hashed once.
class Found {
 public:
  explicit Found(const KernelStore& store) : store_(store) {}

  std::optional<CompiledKernel> find(const std::string& name) {
    const std::optional<IndexEntry> entry = store_.entry(name);
    if (!entry || hash_of(entry->object) != entry->sha256) return std::nullopt;
    return CompiledKernel{name, store_.path_of(entry->object), entry->sha256};
  }

 private:
  // "" if it is missing or another user's.
  const std::string& hash_of(const std::string& object) {
    const auto [known, fresh] = hashes_.try_emplace(object);
    if (fresh)
      if (const std::optional<std::string> bytes = store_.object(object)) known->second = sha256(*bytes);
    return known->second;
  }

  const KernelStore& store_;
  std::map<std::string, std::string> hashes_;
};

// Kernels that still have to be compiled, in batches, and their results. Several threads work on it.
class Compilation {
 public:
  using Results = std::map<std::string, Result<CompiledKernel>>;

  Compilation(const KernelStore& store, const Compiler& compiler, const std::string& prelude, CompileLimits limits,
              const CompileProgress& progress)
      : store_(store), compiler_(compiler), prelude_(prelude), limits_(limits), progress_(progress) {}

  Results run(const std::vector<NamedKernel>& kernels, size_t jobs) {
    total_ = kernels.size();
    make_batches(kernels, jobs);
    std::vector<std::thread> helpers;
    try {
      while (helpers.size() + 1 < std::min(jobs, total_)) helpers.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      // No more threads can be created: the existing ones do the work.
    }
    work();
    for (std::thread& helper : helpers) helper.join();
    return std::move(results_);
  }

 private:
  using Batch = std::vector<NamedKernel>;

  // Long kernels first, each by itself.
  void make_batches(const std::vector<NamedKernel>& kernels, size_t jobs) {
    std::vector<NamedKernel> ordinary;
    for (const NamedKernel& kernel : kernels) {
      if (is_long(kernel))
        batches_.push_back({kernel});
      else
        ordinary.push_back(kernel);
    }
    const size_t even = (ordinary.size() + jobs - 1) / jobs;
    const size_t batch = std::clamp<size_t>(even, 1, std::max<size_t>(limits_.batch, 1));
    for (size_t at = 0; at < ordinary.size(); at += batch)
      batches_.emplace_back(ordinary.begin() + static_cast<ptrdiff_t>(at),
                            ordinary.begin() + static_cast<ptrdiff_t>(std::min(at + batch, ordinary.size())));
  }

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

  // The hash of the object that is now in place; an error without diagnostics if the batch must be halved.
  Result<std::string> compile_batch(const Batch& batch) const {
    const TranslationUnit unit = unit_of(prelude_, batch);
    const CompileOutcome outcome = compile(compiler_, {unit}, store_.directory(), limits_.seconds);
    if (outcome.object) {
      std::vector<std::string> names;
      for (const NamedKernel& kernel : batch) names.push_back(kernel.name);
      const FreshObject& object = *outcome.object;
      if (Result<Done> stored = store_.put(object.folder, object.path, object.sha256, names); !stored)
        return stored.error();
      return object.sha256;
    }
    if (!outcome.failure.by_text) return outcome.failure.error;
    if (batch.size() > 1) return Error{};
    return store_.blame(batch.front().name, outcome.failure.error, unit.text, ".cpp");
  }

  // Needs the lock.
  void finish(const Batch& batch, const Result<std::string>& hash) {
    if (!hash && hash.error().diagnostics.empty()) {
      const auto middle = batch.begin() + static_cast<ptrdiff_t>(batch.size() / 2);
      batches_.emplace_back(batch.begin(), middle);
      batches_.emplace_back(middle, batch.end());
      return;
    }
    for (const NamedKernel& kernel : batch) {
      if (hash)
        results_.emplace(kernel.name, CompiledKernel{kernel.name, store_.path_of(object_name(*hash)), *hash});
      else
        results_.emplace(kernel.name, hash.error());
    }
    if (progress_) progress_(results_.size(), total_);
  }

  const KernelStore& store_;
  const Compiler& compiler_;
  const std::string& prelude_;
  const CompileLimits limits_;
  const CompileProgress& progress_;
  std::mutex mutex_;  // guards everything below
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
  std::vector<std::string> parts = {prelude_, source.text, compiler_.version, cpu_model_};
  parts.insert(parts.end(), compiler_.flags.begin(), compiler_.flags.end());
  const std::vector<std::string> further = flags_of(source.text);
  parts.insert(parts.end(), further.begin(), further.end());
  return kernel_name(parts);
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
  const KernelStore store(directory_, ".so");
  Found found(store);
  for (const KernelSource& source : sources) {
    names.push_back(name_of(source));
    const std::string& name = names.back();
    if (known.contains(name)) continue;
    const std::optional<CompiledKernel> kernel = found.find(name);
    known.emplace(name, kernel ? Result<CompiledKernel>(*kernel) : Result<CompiledKernel>(Error{}));
    if (!kernel) missing.push_back({name, source.text});
  }
  if (!missing.empty()) {
    store.remove_stale();
    Compilation compilation(store, compiler_, prelude_, limits_, progress);
    for (auto& [name, result] : compilation.run(missing, static_cast<size_t>(std::max(jobs, 1))))
      known.insert_or_assign(name, std::move(result));
  }
  for (const std::string& name : names) results.push_back(known.at(name));
  return results;
}

namespace {

// Divides kernels into units of about equal length, longest kernels first.
void share_out(const std::vector<NamedKernel>& sorted, size_t count, const std::string& prelude,
               std::vector<TranslationUnit>& units) {
  std::vector<std::vector<NamedKernel>> shares(std::min(count, sorted.size()));
  for (size_t k = 0; k < sorted.size(); ++k) shares[k % shares.size()].push_back(sorted[k]);
  for (const std::vector<NamedKernel>& share : shares) units.push_back(unit_of(prelude, share));
}

}  // namespace

// Makes at most `jobs` units of long kernels and as many of others.
std::vector<TranslationUnit> KernelCache::shared_out(const std::map<std::string, std::string>& kernels,
                                                     size_t jobs) const {
  constexpr size_t kFewest = 4;  // starting a compiler takes as long as compiling this many kernels
  std::vector<NamedKernel> sorted;
  for (const auto& [name, text] : kernels) sorted.push_back({name, text});
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const NamedKernel& l, const NamedKernel& r) { return l.text.size() > r.text.size(); });
  const auto ordinary = std::find_if_not(sorted.begin(), sorted.end(), is_long);
  std::vector<TranslationUnit> units;
  share_out({sorted.begin(), ordinary}, jobs, prelude_, units);
  const auto count = static_cast<size_t>(sorted.end() - ordinary);
  share_out({ordinary, sorted.end()}, std::clamp<size_t>(count / kFewest, 1, jobs), prelude_, units);
  return units;
}

Result<std::string> KernelCache::compile_together(const std::vector<KernelSource>& sources,
                                                  const std::string& output_path, int jobs) const {
  if (const Result<Done> usable = make_private_directory(directory_); !usable) return usable.error();
  std::map<std::string, std::string> kernels;
  for (const KernelSource& source : sources) kernels.emplace(name_of(source), source.text);
  const std::vector<TranslationUnit> units = shared_out(kernels, static_cast<size_t>(std::max(jobs, 1)));
  const size_t batches = kernels.size() / std::max<size_t>(limits_.batch, 1) + 1;
  const double seconds = std::min(limits_.seconds * static_cast<double>(batches), kLongestTogetherSeconds);
  const CompileOutcome outcome = compile(compiler_, units, directory_, seconds);
  if (!outcome.object) {
    Error error = outcome.failure.error;
    if (outcome.failure.by_text)
      error.diagnostics.front().message = concat("kernels do not compile: ", error.diagnostics.front().message);
    return error;
  }
  if (const Result<Done> written = write_own_file(output_path, outcome.object->bytes); !written) return written.error();
  return outcome.object->sha256;
}

}  // namespace millrace
