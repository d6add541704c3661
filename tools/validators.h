// Checks of options' values, with messages in our own words. Test: tests/python/command_line_test.py
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

// A whole number in a range.
CLI::Validator whole_number(int64_t least, int64_t most);
// Any number in a range.
CLI::Validator number(double least, double most);
// Replaces "50MiB", "2G" or "4096" by a number of bytes, at least one.
CLI::Validator bytes();
