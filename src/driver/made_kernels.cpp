#include "driver/made_kernels.h"

#include "base/directories.h"
#include "base/file.h"
#include "base/text.h"
#include "device/kernel_store.h"

namespace millrace {
namespace {

constexpr const char* kFolder = "/made";

// The key covers everything that must not be exchanged: a plan that gives one kernel's function to another launch has
// another key.
std::string key_of(const StepPlan& plan) {
  std::vector<std::string> parts = {plan.kernels.sources, plan.kernels.machine, plan.kernels.sha256};
  for (const PlanLaunch& launch : plan.launches) parts.push_back(launch.function);
  return kernel_name(parts);
}

}  // namespace

Result<Done> record_kernels(const StepPlan& plan) {
  const Result<std::string> directory = cache_directory();
  if (!directory) return directory.error();
  const std::string folder = *directory + kFolder;
  if (Result<Done> usable = make_private_directory(folder); !usable) return usable;
  const std::string key = key_of(plan);
  const std::string& hash = plan.kernels.sha256;
  const Result<Done> written = write_file(concat(folder, "/", key, ".index"), to_text({key, object_name(hash), hash}));
  if (!written) return with_room_as_remedy(written.error(), folder);
  return Done{};
}

bool are_recorded(const StepPlan& plan) {
  const Result<std::string> directory = find_cache_directory();
  if (!directory) return false;
  const std::optional<IndexEntry> entry = KernelStore(*directory + kFolder, ".so").entry(key_of(plan));
  return entry && entry->sha256 == plan.kernels.sha256;
}

}  // namespace millrace
