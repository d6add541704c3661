// Scripts that complete commands, options and their values in a shell. Test: tests/python/completion_test.py
#pragma once

#include <string>

#include "millrace/result.h"
#include "tools/command_help.h"

// `shell`: bash, zsh or fish.
millrace::Result<std::string> completion_script(const CommandHelp& program, const std::string& shell);
