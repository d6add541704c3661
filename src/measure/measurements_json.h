// Measurements as a JSON file with a schema_version. What is read is untrusted: every complaint names the place in the
// file and what would be right, and what comes back is verified.
#pragma once

#include <string>
#include <string_view>

#include "measure/measurements.h"
#include "millrace/result.h"

namespace millrace {

std::string measurements_json(const Measurements& measurements);

// `file` is for complaints alone.
Result<Measurements> parse_measurements(std::string_view text, const std::string& file);

}  // namespace millrace
