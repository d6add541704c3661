// What explorer and worker say to each other: one JSON object a line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "measure/measurement_row.h"
#include "measure/trial.h"

namespace millrace {

// A candidate to try: of a partition, or of a tensor's conversion.
struct TrialRequest {
  std::string partition;  // its name, or the tensor's
  bool conversion = false;
  std::string candidate;  // as print_candidate writes it
  std::string function;   // of the compiled kernel; empty: a matrix product
  std::string path;       // of the shared object that has it
  std::string sha256;
  TrialSettings settings;
};

std::string to_line(const TrialRequest& request);
std::optional<TrialRequest> parse_request(std::string_view line);

// The key is not sent: whoever asked knows it.
std::string to_line(const MeasurementRow& row);
std::optional<MeasurementRow> parse_reply(std::string_view line);

}  // namespace millrace
