// Whether the address sanitizer is on, which makes everything several times slower.
#pragma once

#include <cstdint>

namespace millrace {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// How many of `count` random cases to run: with a sanitizer a tenth, but at least one.
constexpr uint64_t tried_of(uint64_t count) { return kSanitized ? (count + 9) / 10 : count; }

}  // namespace millrace
