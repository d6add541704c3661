// Texts from programs and files, made harmless where they are shown. Test: tests/report/escape_test.cpp
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// For HTML and SVG, between tags and in quoted attributes. Control characters and bytes that are no UTF-8 become '?'.
std::string escape_html(std::string_view text);

// A field of a CSV file: quoted where it must be. A text that a spreadsheet would take for a formula gets a ' before
// it.
std::string csv_field(std::string_view text);

}  // namespace millrace
