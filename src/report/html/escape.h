// Makes texts from programs and files safe to show. Test: tests/report/escape_test.cpp
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// For HTML and SVG, between tags and in quoted attributes. Control characters and invalid UTF-8 become '?'.
std::string escape_html(std::string_view text);

// A field of a CSV file, quoted if necessary. A text that a spreadsheet would read as a formula gets a leading '.
std::string csv_field(std::string_view text);

}  // namespace millrace
