#include "fusion/names.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "ir/label.h"

namespace millrace {
namespace {

// A backward sum is a bias's gradient; an addition of two gradients is a residual.
std::string role_of(const Graph& graph, const Operator& op) {
  if (op.pass == Pass::backward && op.kind == OperatorKind::sum) return "bias_dw";
  return std::string(label_of(graph, op));
}

struct PaperKernel {
  std::string_view name;
  Pass pass;
  std::string_view roles;  // separated by spaces; '+' after one: all operators of that role, at least two
};

// Larger kernels first, so that a small one does not take the members of a larger one.
constexpr auto kPaperKernels = std::to_array<PaperKernel>({
    {"BDRLN", Pass::forward, "bias dropout residual layernorm"},
    {"BRD", Pass::forward, "bias relu dropout"},
    {"SM", Pass::forward, "softmax dropout"},
    {"SM", Pass::forward, "softmax"},
    {"AIB", Pass::forward, "bias+"},
    {"BDRB", Pass::backward, "dropout_dx relu_dx bias_dw"},
    {"EBSB", Pass::backward, "residual layernorm_dw"},
    {"BLNRD", Pass::backward, "layernorm_dx dropout_dx"},
    {"BSB", Pass::backward, "layernorm_dw"},
    {"BS", Pass::backward, "softmax_dx dropout_dx"},
    {"BS", Pass::backward, "softmax_dx"},
    {"BAIB", Pass::backward, "bias_dw+"},
    {"BAOB", Pass::backward, "bias_dw"},
    {"BEI", Pass::backward, "residual+"},
    {"BEI", Pass::backward, "residual"},
});

// Removes the kernel's roles from `roles` if all are present.
bool take(std::map<std::string, int>& roles, std::string_view wanted) {
  const std::vector<std::string> parts = split(wanted, ' ');
  const bool there = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
    const bool several = part.back() == '+';
    const auto found = roles.find(several ? part.substr(0, part.size() - 1) : part);
    return found != roles.end() && found->second >= (several ? 2 : 1);
  });
  if (!there) return false;
  for (const std::string& part : parts) {
    if (part.back() == '+') {
      roles[part.substr(0, part.size() - 1)] = 0;
    } else {
      --roles[part];
    }
  }
  return true;
}

}  // namespace

std::string derived_name(const Graph& graph, const std::vector<OperatorId>& members) {
  std::vector<std::pair<std::string, int>> runs;
  for (const OperatorId id : members) {
    const std::string role = role_of(graph, graph.operators[id.at()]);
    if (runs.empty() || runs.back().first != role) {
      runs.emplace_back(role, 1);
    } else {
      ++runs.back().second;
    }
  }
  std::vector<std::string> parts;
  for (const auto& [role, count] : runs) parts.push_back(count == 1 ? role : concat(role, "*", count));
  return join(parts, "-");
}

std::string paper_name(const Graph& graph, const std::vector<OperatorId>& members) {
  std::map<std::string, int> roles;
  for (const OperatorId id : members) ++roles[role_of(graph, graph.operators[id.at()])];
  std::vector<std::string> names;
  for (const PaperKernel& kernel : kPaperKernels) {
    if (kernel.pass == graph.operators[members.front().at()].pass && take(roles, kernel.roles))
      names.emplace_back(kernel.name);
  }
  return join(names, "+");
}

}  // namespace millrace
