#include "device/cpu/address_space.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "base/text.h"
#include "device/cpu/cpu_info.h"

namespace millrace {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;
constexpr int64_t kForLibrary = 128 * kMebibyte;     // code, tables and a buffer for the calling thread
constexpr int64_t kForEachThread = 160 * kMebibyte;  // a buffer and a stack
constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

// What this process has reserved: all of it, and what counts as data.
struct Reserved {
  int64_t whole = 0;
  int64_t data = 0;
};

Reserved reserved() {
  std::ifstream file("/proc/self/statm");
  int64_t resident = 0;
  int64_t shared = 0;
  int64_t text = 0;
  int64_t unused = 0;
  Reserved found;
  file >> found.whole >> resident >> shared >> text >> unused >> found.data;
  const int64_t page = sysconf(_SC_PAGESIZE);
  return {found.whole * page, found.data * page};
}

int64_t left_of(decltype(RLIMIT_AS) resource, int64_t used) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(kEndless)) return kEndless;
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used);
}

}  // namespace

int64_t free_address_space() {
  const Reserved used = reserved();
  return std::min(left_of(RLIMIT_AS, used.whole), left_of(RLIMIT_DATA, used.data));
}

std::string lack_of_address_space() {
  const int64_t needed = kForLibrary + kForEachThread * cpu_info().cores;
  const int64_t left = free_address_space();
  if (left >= needed) return "";
  return concat("it may reserve ", needed / kMebibyte, " MiB of memory, and `ulimit -v` or `ulimit -d` leaves ",
                left / kMebibyte, " MiB: raise the limit");
}

}  // namespace millrace
