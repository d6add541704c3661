// Errors and warnings for programs that read --json. Test: tests/python/cli_test.py
#pragma once

#include <nlohmann/json.hpp>

#include "millrace/result.h"

namespace millrace {

nlohmann::ordered_json message_json(const Diagnostic& diagnostic);

}  // namespace millrace
