// Which parts together make a whole: the alternatives of every site.
#pragma once

#include <string>
#include <vector>

#include "candidates/candidates.h"
#include "fusion/fused_graph.h"

namespace millrace {

struct SiteRules {
  std::vector<size_t> site_of;                    // one an operator: those of one site have one number
  std::vector<std::vector<std::string>> bundles;  // parts, by name, of which either all run or none
  std::vector<OperatorId> swallowable;            // operators that some product with an epilogue does
  std::vector<OperatorId> optional;               // operators that need not be carried out
};

inline constexpr size_t kMostAlternatives = 64;  // of a site

bool has(const std::vector<OperatorId>& operators, OperatorId op);

// The operators that are in both.
std::vector<OperatorId> common(const std::vector<OperatorId>& one, const std::vector<OperatorId>& other);

// `parts`: in an order in which every cover can run. The first alternative of a site is the fused one, with
// contractions apart.
std::vector<Site> find_sites(const std::vector<PartCandidates>& parts, const std::vector<FusedOperator>& groups,
                             const SiteRules& rules);

}  // namespace millrace
