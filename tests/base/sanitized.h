// Whether the address sanitizer watches, which makes everything many times slower; how often chance is tried then.
#pragma once

#include <algorithm>
#include <cstdint>

namespace millrace {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// Of so many random trials: a sanitizer sees in the first ones what it sees in the others, which are for the results.
inline constexpr uint64_t trials(uint64_t count) { return kSanitized ? std::max<uint64_t>(count / 8, 1) : count; }

}  // namespace millrace
