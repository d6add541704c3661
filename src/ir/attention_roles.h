// The roles of indices and axes in an attention. Test: tests/ir/attention_test.cpp
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace millrace {

// A batch index (by its number), or one of the others.
using Role = int;
inline constexpr Role kQueryRole = -1;
inline constexpr Role kKeyRole = -2;
inline constexpr Role kInnerRole = -3;
inline constexpr Role kValueRole = -4;
inline constexpr Role kNoRole = -5;
inline constexpr Role kOuterInnerRole = -6;  // the first of two inner indices, such as the halves of a rotary embedding

using Roles = std::vector<Role>;  // one per axis of a tensor, or one per index of a space

bool is_reduced_exactly(const Operator& op, const Roles& indices, const Roles& wanted);

// The roles of an access's axes; nothing if one runs along no index, or two run along one index.
std::optional<Roles> roles_along(const Access& access, const Roles& indices);
// The same, where an axis of extent one has no role.
std::optional<Roles> roles_of_axes(const Access& access, const Roles& indices);

// Copies the roles of a tensor's axes to the indices that they run along; false if they contradict each other.
bool take_roles(const Access& access, const Roles& axes, Roles& indices);

bool have_same_roles(Roles roles, Roles wanted);

// A causal mask compares the last two indices of its space.
bool masks_keys_after_queries(const Roles& indices);

}  // namespace millrace
