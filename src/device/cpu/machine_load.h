// What other processes leave of the machine: its cores, its clock governor, and its memory. Test:
// tests/device/cpu/machine_load_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// Seconds of all cores together since the machine started.
struct CoreSeconds {
  double busy = -1;  // negative: unknown
  double all = 0;    // busy or idle
};

// The cores that other processes use, between two readings.
class LoadMeter {
 public:
  LoadMeter();
  // How many cores other processes have used since the construction, on average: 1.5 is one and a half. Nothing if it
  // is unknown, or less than a few ticks of the kernel's clock have passed.
  std::optional<double> others_cores() const;

 private:
  CoreSeconds begin_;
  double ours_;  // of this process
};

// "2.13": the load average of the last minute; empty if it is unknown.
std::string load_average();

// "performance", "powersave", …; empty if it is unknown, as on many virtual machines.
std::string clock_governor();

// What disturbs measurements by `threads` threads, as one sentence; empty if no disturbance is known.
std::string disturbance(std::optional<double> others_cores, int threads);

// Bytes that a process can allocate before the machine runs out of memory; 0 if it is unknown.
int64_t available_memory();

// The parts of the above, computed from texts.

// From the text of /proc/meminfo; 0 if it has no such line.
int64_t available_memory_in(std::string_view meminfo);

// From the text of /proc/stat.
CoreSeconds core_seconds(std::string_view stat, double ticks_per_second);
// How many of the cores others used between two readings, in which we used `ours` seconds; nothing if that is unknown.
// Both times of a reading come from one text: by our own clock the busy cores could be more than there are, since on a
// busy machine we may wait between reading the clock and reading the text.
std::optional<double> others_cores(const CoreSeconds& begin, const CoreSeconds& end, double ours, int cores);
// Cores in the text of /proc/stat.
int cores_in(std::string_view stat);

}  // namespace millrace
