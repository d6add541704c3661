// One row of the database: what a candidate took on a device, or why it was refused. And rows as JSON lines, the form
// in which they travel between machines.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/result.h"

namespace millrace {

// Everything that could change the time, as three canonical texts. None is empty; all are UTF-8.
struct MeasurementKey {
  std::string device;     // machine, driver, compiler, libraries, flags
  std::string partition;  // what is computed: kinds, extents, dtypes, accesses
  std::string candidate;  // how, with the layouts

  auto operator<=>(const MeasurementKey&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one
};

enum class Outcome { measured, wrong, crashed, hung, out_of_memory, failed };
inline constexpr std::array<std::string_view, 6> kOutcomeNames = {"measured", "wrong",         "crashed",
                                                                  "hung",     "out_of_memory", "failed"};

struct MeasurementRow {
  MeasurementKey key;
  Outcome outcome = Outcome::failed;
  double seconds = 0;  // the median, 0 when it was not measured
  double low = 0;      // its confidence interval
  double high = 0;
  int64_t samples = 0;
  std::string detail;  // why it was refused: "d_x[17] is 0.3 where 0.5 ± 1e-6 is right"
  std::string when;    // UTC: "2024-05-31T23:59:59Z", so that the order of times is that of texts

  auto operator<=>(const MeasurementRow&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees one
};

// The time of the clock, as rows hold it.
std::string utc_now();

// What is wrong with a row, or "": values come from files that anybody may have written.
std::string complaint_about(const MeasurementRow& row);

// A detail may be a compiler's output: as UTF-8 without control characters but line ends, and of bounded length.
std::string storable_detail(std::string_view detail);

// Of two rows with the same key, whether `other` is to replace `ours`: the later one, and of two at the same time the
// same one whichever is ours.
bool replaces(const MeasurementRow& other, const MeasurementRow& ours);

// One JSON object a line, in the order of the keys.
std::string to_lines(std::vector<MeasurementRow> rows);

// All rows, or the complaints with their lines' numbers. Empty lines are skipped.
Result<std::vector<MeasurementRow>> from_lines(std::string_view text);

}  // namespace millrace
