// Texts from elsewhere, made safe to print: paths and names may contain any bytes. Tests: tests/base/quote_test.cpp
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// `text` with control characters as escapes: a terminal must not obey them. Line ends and tabs stay.
std::string printable(std::string_view text);

// The same on one line: line ends and tabs are escapes, too.
std::string printable_line(std::string_view text);

// The same for tables and excerpts, whose columns must stay: each control character becomes one `replacement`.
std::string without_controls(std::string_view text, char replacement);

// Indents all lines but the first one: a line end in a name must not look like the end of a message.
std::string indented(std::string_view text);

// A word for a shell command that the user may copy: quoted if it contains more than letters, digits and /._-+:=@%. A
// path that begins with a hyphen begins with ./ instead, since it would be an option.
std::string shell_word(std::string_view text);

}  // namespace millrace
