#include "device/cpu/machine_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "device/cpu/cpu_info.h"

namespace millrace {
namespace {

constexpr double kShortest = 0.05;    // seconds between readings: the kernel counts in ticks of 10 ms
constexpr double kNoticeable = 0.25;  // cores

double kernel_ticks() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Processor time of this process, its threads, and the processes that it has waited for.
double own_seconds() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    if (getrusage(who, &usage) == 0) seconds += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  }
  return seconds;
}

}  // namespace

int64_t available_memory() { return available_memory_in(system_text("/proc/meminfo")); }

int64_t available_memory_in(std::string_view meminfo) {
  for (const std::string& line : split(meminfo, '\n')) {
    std::istringstream words(line);
    std::string name;
    int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:" && kibibytes > 0 && kibibytes < INT64_MAX / 1024)
      return 1024 * kibibytes;
  }
  return 0;
}

LoadMeter::LoadMeter() : begin_(core_seconds(system_text("/proc/stat"), kernel_ticks())), ours_(own_seconds()) {}

std::optional<double> LoadMeter::others_cores() const {
  const std::string stat = system_text("/proc/stat");
  return millrace::others_cores(begin_, core_seconds(stat, kernel_ticks()), own_seconds() - ours_, cores_in(stat));
}

std::string load_average() {
  const std::string text = system_text("/proc/loadavg");
  return text.substr(0, text.find(' '));
}

std::string clock_governor() { return system_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"); }

std::string disturbance(std::optional<double> others_cores, int threads) {
  const int cores = cores_in(system_text("/proc/stat"));
  if (!others_cores || *others_cores < kNoticeable || *others_cores + threads <= cores) return "";
  return concat("other processes use ", fixed(*others_cores, 1), " of the ", cores, " cores (load average ",
                load_average(), "), so times of ", threads, threads == 1 ? " thread" : " threads",
                " are too long and vary");
}

CoreSeconds core_seconds(std::string_view stat, double ticks_per_second) {
  std::istringstream line{std::string(stat.substr(0, stat.find('\n')))};
  std::string name;
  double user = -1;
  double nice = 0;
  double system = 0;
  double idle = 0;
  double waiting = 0;
  double interrupts = 0;
  double soft_interrupts = 0;
  double stolen = 0;
  line >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft_interrupts >> stolen;
  if (name != "cpu" || user < 0) return {};
  const double busy = user + nice + system + interrupts + soft_interrupts + stolen;
  return {busy / ticks_per_second, (busy + idle + waiting) / ticks_per_second};
}

std::optional<double> others_cores(const CoreSeconds& begin, const CoreSeconds& end, double ours, int cores) {
  const double all = end.all - begin.all;
  if (begin.busy < 0 || end.busy < 0 || cores <= 0 || all < kShortest * cores) return std::nullopt;
  return std::clamp((end.busy - begin.busy - ours) / all, 0.0, 1.0) * cores;
}

int cores_in(std::string_view stat) {
  int cores = 0;
  for (const std::string& line : split(stat, '\n'))
    cores += line.starts_with("cpu") && line.size() > 3 && line[3] != ' ' ? 1 : 0;
  return cores;
}

}  // namespace millrace
