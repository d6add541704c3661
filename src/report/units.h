// Counts, times and sizes in units that fit. Test: tests/report/units_test.cpp
#pragma once

#include <cstdint>
#include <string>

namespace millrace {

// "411,055"
std::string with_commas(double count);
// "about 38,000,000 (estimated)"
std::string about(double count);

// "1.23", "0.0043": two digits at least, never zero for a positive number.
std::string shown_ratio(double ratio);

// "1.23 ms"
std::string shown_seconds(double seconds);

// "1.5 ms", "100 ns", "0": for the marks of an axis, which are round.
std::string round_seconds(double seconds);

// "512 B", "1.5 KiB", "20.3 MiB"
std::string shown_bytes(int64_t bytes);

}  // namespace millrace
