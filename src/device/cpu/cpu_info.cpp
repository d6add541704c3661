#include "device/cpu/cpu_info.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr int64_t kUnknownCache = int64_t{32} << 20;  // bytes
constexpr int64_t kLargestSystemFile = int64_t{16} << 20;

struct ArmPart {
  std::string_view implementer;
  std::string_view part;
  std::string_view name;
};

// The names that lscpu prints.
constexpr std::array<ArmPart, 22> kArmParts = {
    {{"0x41", "0xd03", "Cortex-A53"},   {"0x41", "0xd05", "Cortex-A55"},    {"0x41", "0xd07", "Cortex-A57"},
     {"0x41", "0xd08", "Cortex-A72"},   {"0x41", "0xd0b", "Cortex-A76"},    {"0x41", "0xd0c", "Neoverse-N1"},
     {"0x41", "0xd40", "Neoverse-V1"},  {"0x41", "0xd49", "Neoverse-N2"},   {"0x41", "0xd4a", "Neoverse-E1"},
     {"0x41", "0xd4f", "Neoverse-V2"},  {"0x41", "0xd83", "Neoverse-V3AE"}, {"0x41", "0xd84", "Neoverse-V3"},
     {"0x41", "0xd8e", "Neoverse-N3"},  {"0x46", "0x001", "A64FX"},         {"0x43", "0x0af", "ThunderX2-99xx"},
     {"0x48", "0xd01", "TaiShan-v110"}, {"0x4e", "0x004", "Carmel"},        {"0x61", "0x022", "Icestorm-M1"},
     {"0x61", "0x023", "Firestorm-M1"}, {"0xc0", "0xac3", "Ampere-1"},      {"0xc0", "0xac4", "Ampere-1a"},
     {"0x4e", "0x010", "Olympus"}}};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// A positive integer that is all of `text`.
std::optional<int64_t> number_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value <= 0) return std::nullopt;
  return value;
}

// "32768K", "32M"
int64_t bytes_in(std::string_view text) {
  int shift = 0;
  if (text.ends_with('K')) shift = 10;
  if (text.ends_with('M')) shift = 20;
  if (text.ends_with('G')) shift = 30;
  if (shift != 0) text.remove_suffix(1);
  const std::optional<int64_t> value = number_in(text);
  return value && *value <= INT64_MAX >> shift ? *value << shift : 0;
}

int cores_by_affinity() {
  // A machine may have more cores than a cpu_set_t has bits: the kernel rejects a set that is too small.
  for (int cores = CPU_SETSIZE; cores <= 1 << 20; cores *= 2) {
    std::vector<cpu_set_t> set(static_cast<size_t>(cores / CPU_SETSIZE));
    const size_t bytes = set.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, set.data()) == 0) return std::max(CPU_COUNT_S(bytes, set.data()), 1);
  }
  return std::max(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), 1);
}

template <class Number>
void tighten(Number& limit, Number other) {
  if (other > 0 && (limit <= 0 || other < limit)) limit = other;
}

// Version 2 has quota and period in one file ("max 100000"), version 1 in two (-1 for none).
double cores_by_quota(const std::string& folder) {
  std::vector<std::string> words = split(system_text(folder + "/cpu.max"), ' ');
  if (words.size() != 2)
    words = {system_text(folder + "/cpu.cfs_quota_us"), system_text(folder + "/cpu.cfs_period_us")};
  const std::optional<int64_t> quota = number_in(words[0]);
  const std::optional<int64_t> period = number_in(words[1]);
  return quota && period ? static_cast<double>(*quota) / static_cast<double>(*period) : 0;
}

void tighten_by(GroupLimits& limits, const std::string& folder) {
  tighten(limits.cores, cores_by_quota(folder));
  for (const char* file : {"/memory.max", "/memory.limit_in_bytes"})
    tighten(limits.memory, number_in(system_text(folder + file)).value_or(0));
}

// The first number of a variable that OpenMP reads: further ones are for nested regions.
std::optional<int> threads_in(const char* variable) {
  constexpr int64_t kMost = 1 << 16;
  const char* const text = std::getenv(variable);
  const std::optional<int64_t> count = text != nullptr ? number_in(trimmed(split(text, ',').front())) : std::nullopt;
  return count && *count <= kMost ? std::optional(static_cast<int>(*count)) : std::nullopt;
}

}  // namespace

std::string system_text(const std::string& path) {
  const Result<std::string> text = read_file(path, kLargestSystemFile);
  return text ? std::string(trimmed(*text)) : "";
}

CpuModel parse_cpuinfo(std::string_view text) {
  // The first processor's fields; the others are assumed to be equal.
  std::map<std::string, std::string, std::less<>> fields;
  for (const std::string& line : split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos)
      fields.try_emplace(std::string(trimmed(line.substr(0, colon))), trimmed(line.substr(colon + 1)));
  }
  CpuModel cpu;
  cpu.features = fields.contains("flags") ? fields["flags"] : fields["Features"];
  cpu.model = fields["model name"];
  const std::string& implementer = fields["CPU implementer"];
  const std::string& part = fields["CPU part"];
  if (!cpu.model.empty() || implementer.empty()) {
    if (cpu.model.empty()) cpu.model = "unknown";
    return cpu;
  }
  const auto* const known = std::find_if(kArmParts.begin(), kArmParts.end(), [&](const ArmPart& arm) {
    return arm.implementer == implementer && arm.part == part;
  });
  cpu.model = known != kArmParts.end() ? std::string(known->name) : concat(implementer, "-", part);
  return cpu;
}

int64_t last_level_cache(const std::string& folder) {
  int64_t best_level = 0;
  int64_t bytes = 0;
  for (int k = 0; k < 16; ++k) {
    const std::string index = concat(folder, "/index", k, "/");
    const int64_t level = number_in(system_text(index + "level")).value_or(0);
    const int64_t size = bytes_in(system_text(index + "size"));
    if (size > 0 && level > best_level && system_text(index + "type") != "Instruction") {
      best_level = level;
      bytes = size;
    }
  }
  return bytes > 0 ? bytes : kUnknownCache;
}

GroupLimits group_limits(std::string_view membership, const std::string& root) {
  GroupLimits limits;
  for (const std::string& line : split(membership, '\n')) {
    // "0::/user.slice" (version 2), "4:memory:/docker/1" (version 1, mounted in a folder of that name)
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string mount = concat(root, "/", line.substr(first + 1, second - first - 1));
    std::string group = line.substr(second + 1);
    if (group.find("..") != std::string::npos) continue;
    while (true) {
      tighten_by(limits, mount + group);
      if (group.empty()) break;
      group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
    }
  }
  return limits;
}

CpuInfo cpu_info() {
  const CpuModel cpu = parse_cpuinfo(system_text("/proc/cpuinfo"));
  const GroupLimits limits = group_limits(system_text("/proc/self/cgroup"), "/sys/fs/cgroup");
  CpuInfo info;
  info.model = cpu.model;
  info.features = cpu.features;
  info.cores = cores_by_affinity();
  if (limits.cores > 0) info.cores = std::min(info.cores, std::max(1, static_cast<int>(std::ceil(limits.cores))));
  info.last_level_cache = last_level_cache("/sys/devices/system/cpu/cpu0/cache");
  info.memory = int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)};
  tighten(info.memory, limits.memory);
  return info;
}

std::string CpuInfo::identity() const { return concat(model, " ", sha256(features).substr(0, 16)); }

int threads() {
  const std::optional<int> wanted = threads_in("OMP_NUM_THREADS");
  return std::min(wanted ? *wanted : cpu_info().cores, thread_limit());
}

int thread_limit() { return threads_in("OMP_THREAD_LIMIT").value_or(std::numeric_limits<int>::max()); }

}  // namespace millrace
