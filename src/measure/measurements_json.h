// Measurements as a JSON file with a schema_version. The file is untrusted: the result is verified, and every error
// names the position in the file and what is expected there. Test: tests/measure/measurements_json_test.cpp
#pragma once

#include <string>
#include <string_view>

#include "measure/measurements.h"
#include "millrace/result.h"

namespace millrace {

std::string measurements_json(const Measurements& measurements);

// `file`: its name, for error messages.
Result<Measurements> parse_measurements(std::string_view text, const std::string& file);

}  // namespace millrace
