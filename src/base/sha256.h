// SHA-256 (FIPS 180-4): names and verifies what is kept on disk.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// The digest of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace millrace
