// The protocol between explorer and worker: one JSON object per line. Test: tests/measure/worker_test.cpp
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "measure/measurement_row.h"
#include "measure/trial.h"

namespace millrace {

// A candidate to try, of a partition or of a tensor's conversion.
struct TrialRequest {
  std::string partition;  // its name, or the tensor's
  bool conversion = false;
  std::string candidate;  // as print_candidate writes it
  std::string function;   // the compiled kernel's name; empty: a library's product
  std::string path;       // the file that contains it
  std::string sha256;
  TrialSettings settings;
};

std::string to_line(const TrialRequest& request);
std::optional<TrialRequest> parse_request(std::string_view line);

// Without the key, which the explorer knows.
std::string to_line(const MeasurementRow& row);
std::optional<MeasurementRow> parse_reply(std::string_view line);

}  // namespace millrace
