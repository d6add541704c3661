// The manual page of all commands, made from their help. Test: tests/python/completion_test.py
#pragma once

#include <string>

#include "tools/command_help.h"

// In the language of man pages, for section 1.
std::string manual_page(const CommandHelp& program, const std::string& version);
