#include "fusion/label_matching.h"

#include <algorithm>
#include <cstdlib>

namespace millrace {
namespace {

std::vector<IndexTerm> by_stride(const Position& position) {
  std::vector<IndexTerm> terms = position.terms;
  std::sort(terms.begin(), terms.end(),
            [](const IndexTerm& l, const IndexTerm& r) { return std::abs(l.stride) > std::abs(r.stride); });
  return terms;
}

}  // namespace

bool LabelMatching::match(int label_b, const Match& match) {
  if (label_b == kNoLabel || match.label == kNoLabel) return label_b == match.label;
  Match& known = to_a_[as_index(label_b)];
  if (known == match) return true;
  const size_t target = as_index(match.label);
  const int64_t extent_a = graph_.extent(a_[target]);
  const int64_t extent_b = graph_.extent(b_[as_index(label_b)]);
  const bool in_a = match.shift >= 0 && match.shift + extent_b <= extent_a;
  const bool in_b = match.shift <= 0 && extent_a - match.shift <= extent_b;
  if (known.label != kNoLabel || taken_[target] || !(in_a || in_b)) return false;
  known = match;
  taken_[target] = true;
  return true;
}

bool LabelMatching::match(const Position& b, const Position& a) {
  std::vector<IndexTerm> terms_b = by_stride(b);
  std::vector<IndexTerm> terms_a = by_stride(a);
  if (terms_a.size() != terms_b.size()) {  // an index of extent one may have no label
    drop_units(a_, terms_a, units_a_);
    drop_units(b_, terms_b, units_b_);
  }
  if (terms_a.size() != terms_b.size()) return false;
  if (terms_a.empty()) return a.offset == b.offset;
  const int64_t stride = terms_a[0].stride;
  const int64_t apart = b.offset - a.offset;
  if (apart % stride != 0) return false;
  for (size_t k = 0; k < terms_a.size(); ++k) {
    if (terms_a[k].stride != terms_b[k].stride) return false;
    const bool inner = k > 0;
    if (inner && extent_of(a_, terms_a[k].index) != extent_of(b_, terms_b[k].index)) return false;
    if (!match(terms_b[k].index, {terms_a[k].index, inner ? 0 : apart / stride})) return false;
  }
  return true;
}

void LabelMatching::match_if_free(const Position& b, const Position& a) {
  if (a.terms.size() != 1 || b.terms.size() != 1 || a.offset != b.offset || a.terms[0].stride != b.terms[0].stride)
    return;
  if (extent_of(a_, a.index()) == extent_of(b_, b.index())) match(b.index(), {a.index(), 0});
}

bool LabelMatching::loses_a_unit() const {
  for (size_t label = 0; label < to_a_.size(); ++label) {
    const Match& match = to_a_[label];
    if (match.label == kNoLabel) continue;
    const bool longer_a = extent_of(a_, match.label) > 1;
    const bool longer_b = extent_of(b_, static_cast<int>(label)) > 1;
    if ((longer_a && units_b_.contains(static_cast<int>(label))) || (longer_b && units_a_.contains(match.label)))
      return true;
  }
  return false;
}

void LabelMatching::drop_units(const std::vector<DimId>& dims, std::vector<IndexTerm>& terms,
                               std::set<int>& units) const {
  std::erase_if(terms, [&](const IndexTerm& term) {
    const bool unit = extent_of(dims, term.index) == 1;
    if (unit) units.insert(term.index);
    return unit;
  });
}

}  // namespace millrace
