// The processor that kernels run on, and how much of it is ours.
// Test: tests/device/cpu/cpu_info_test.cpp
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

struct CpuInfo {
  std::string model;             // "Neoverse-V1", "AMD EPYC 9654 96-Core Processor"
  std::string features;          // the instruction sets, as the kernel lists them
  int cores = 1;                 // logical cores that we may use: by affinity and by the cgroup's quota
  int64_t last_level_cache = 0;  // bytes
  int64_t memory = 0;            // bytes, or the cgroup's limit if that is less

  // Model and features in a short form, for names of compiled objects: virtual machines of one model may differ.
  std::string identity() const;
};

CpuInfo cpu_info();

// The first number of $OMP_NUM_THREADS if it is set and valid, else the cores that we may use; at most thread_limit().
int threads();
// $OMP_THREAD_LIMIT if it is set and valid, else the most that a number of threads can be.
int thread_limit();

// A file of /proc or /sys without surrounding whitespace; "" if it is missing.
std::string system_text(const std::string& path);

// The parts of the above, computed from texts and folders, so that tests can run on any machine.

struct CpuModel {
  std::string model;
  std::string features;
};
CpuModel parse_cpuinfo(std::string_view text);  // of /proc/cpuinfo

// Bytes of the highest cache level that holds data, in a folder such as /sys/devices/system/cpu/cpu0/cache; 32 MiB if
// unknown.
int64_t last_level_cache(const std::string& folder);

struct GroupLimits {
  double cores = 0;    // 0: no limit
  int64_t memory = 0;  // bytes; 0: no limit
};
// The tightest limits from our control group up to the root. `membership`: the text of /proc/self/cgroup; `root`: where
// the groups are mounted, /sys/fs/cgroup. Reads both versions of control groups.
GroupLimits group_limits(std::string_view membership, const std::string& root);

}  // namespace millrace
