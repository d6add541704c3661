#include "ir/attention_roles.h"

#include <algorithm>

namespace millrace {

bool is_reduced_exactly(const Operator& op, const Roles& indices, const Roles& wanted) {
  for (size_t index = 0; index < op.space.size(); ++index) {
    const bool is_wanted = std::find(wanted.begin(), wanted.end(), indices[index]) != wanted.end();
    if (op.reduced[index] != is_wanted) return false;
  }
  return true;
}

std::optional<Roles> roles_of_axes(const Access& access, const Roles& indices) {
  Roles roles;
  for (const Position& axis : access.axes) {
    const Role role = axis.index() == kFixed ? kNoRole : indices[as_index(axis.index())];
    if (role != kNoRole && std::find(roles.begin(), roles.end(), role) != roles.end()) return std::nullopt;
    roles.push_back(role);
  }
  return roles;
}

std::optional<Roles> roles_along(const Access& access, const Roles& indices) {
  for (const Position& axis : access.axes) {
    if (axis.index() == kFixed) return std::nullopt;
  }
  Roles roles;
  for (const Position& axis : access.axes) {
    const Role role = indices[as_index(axis.index())];
    if (std::find(roles.begin(), roles.end(), role) != roles.end()) return std::nullopt;
    roles.push_back(role);
  }
  return roles;
}

bool take_roles(const Access& access, const Roles& axes, Roles& indices) {
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const int index = access.axes[axis].index();
    if (index == kFixed) return false;
    Role& role = indices[as_index(index)];
    if (role != kNoRole && role != axes[axis]) return false;
    if (role == kNoRole && std::find(indices.begin(), indices.end(), axes[axis]) != indices.end()) return false;
    role = axes[axis];
  }
  return true;
}

bool have_same_roles(Roles roles, Roles wanted) {
  std::sort(roles.begin(), roles.end());
  std::sort(wanted.begin(), wanted.end());
  return roles == wanted;
}

bool masks_keys_after_queries(const Roles& indices) {
  return indices.size() >= 2 && indices[indices.size() - 1] == kKeyRole && indices[indices.size() - 2] == kQueryRole;
}

}  // namespace millrace
