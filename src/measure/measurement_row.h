// One row of the database: the time of a candidate on a device, or why it failed. Also rows as JSON lines, to copy them
// between machines. Test: tests/measure/measurement_row_test.cpp
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// Everything that could change the time, as three canonical texts. They are UTF-8 and not empty.
struct MeasurementKey {
  std::string device;     // machine, driver, compiler, libraries, flags
  std::string partition;  // what is computed: kinds, extents, dtypes, accesses
  std::string candidate;  // how, with the layouts

  auto operator<=>(const MeasurementKey&) const =
      default;  // NOLINT(modernize-use-nullptr): false positive of clang-tidy 14
};

enum class Outcome { measured, wrong, crashed, hung, out_of_memory, failed };
inline constexpr std::array<std::string_view, 6> kOutcomeNames = {"measured", "wrong",         "crashed",
                                                                  "hung",     "out_of_memory", "failed"};

// Whether a later run would get the same outcome. The amount of free memory may change, and a worker may be killed by
// somebody else.
constexpr bool is_repeatable(Outcome outcome) { return outcome != Outcome::out_of_memory; }

struct MeasurementRow {
  MeasurementKey key;
  Outcome outcome = Outcome::failed;
  double seconds = 0;  // the median; 0 if not measured
  double low = 0;      // its confidence interval
  double high = 0;
  int64_t samples = 0;
  std::string detail;  // why it failed: "d_x[17] is 0.3, expected 0.5 ± 1e-06"
  std::string when;    // UTC: "2024-05-31T23:59:59Z", so that texts sort by time

  auto operator<=>(const MeasurementRow&) const =
      default;  // NOLINT(modernize-use-nullptr): false positive of clang-tidy 14
};

// A row without a key for a candidate that was not measured.
MeasurementRow failed_row(Outcome outcome, std::string detail);

// The current time in the format of `when`.
std::string utc_now();

// The first problem of a row, or "". Rows come from files that anybody may have written.
std::string complaint_about(const MeasurementRow& row);

// Makes a detail, such as a compiler's output, storable: UTF-8 without control characters except line ends and tabs,
// of bounded length.
std::string storable_detail(std::string_view detail);

// Whether `other` replaces `ours`, which has the same key. The later row wins; a tie is broken the same on both sides.
bool replaces(const MeasurementRow& other, const MeasurementRow& ours);

// One JSON object per line, sorted by key.
std::string to_lines(std::vector<MeasurementRow> rows);

// All rows, or errors with line numbers. Skips empty lines.
Result<std::vector<MeasurementRow>> from_lines(std::string_view text);

}  // namespace millrace
