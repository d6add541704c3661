// What other processes leave of the machine: its cores, its clock governor, and its memory. Test:
// tests/device/cpu/machine_load_test.cpp
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// The cores that other processes use, between two readings.
class LoadMeter {
 public:
  LoadMeter();
  // How many cores other processes have used since the construction, on average: 1.5 is one and a half. Nothing if it
  // is unknown, or less than a few ticks of the kernel's clock have passed.
  std::optional<double> others_cores() const;

 private:
  double busy_;   // seconds of all cores since the machine started; negative: unknown
  double ours_;   // of this process
  double begin_;  // by base/clock.h
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

// Seconds in which the cores were not idle, from the text of /proc/stat; negative if it has no such line.
double busy_seconds(std::string_view stat, double ticks_per_second);
// Cores in the text of /proc/stat.
int cores_in(std::string_view stat);

}  // namespace millrace
