#include "frontend/einsum.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "base/text.h"
#include "frontend/views.h"

namespace millrace {
namespace {

using Term = Builder::Term;

constexpr size_t kMaxOperands = 32;  // NumPy's
constexpr int kEllipsis = 256;       // labels from here on number the axes of an ellipsis, from the right

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string shown(int label) { return label >= kEllipsis ? "..." : std::string(1, static_cast<char>(label)); }

class Einsum {
 public:
  Einsum(const std::string& subscripts, const std::vector<View>& operands, const Numbers& numbers,
         SourceLocation location, Builder& builder, Diagnostics& diagnostics)
      : operands_(operands), numbers_(numbers), location_(location), builder_(builder), diagnostics_(diagnostics) {
    std::copy_if(subscripts.begin(), subscripts.end(), std::back_inserter(subscripts_),
                 [](char c) { return c != ' '; });
  }

  Value run() {
    if (!parse() || !bind_extents()) return Value::broken();
    std::vector<Value> scales;
    take_scalars(scales);
    if (!simplify_terms()) return Value::broken();
    while (terms_.size() > 1) {
      if (!contract_cheapest_pair()) return Value::broken();
    }
    Value result = terms_.empty() ? scales.front() : last_term();
    for (size_t k = terms_.empty() ? 1 : 0; k < scales.size(); ++k) {
      result = builder_.map(OperatorKind::multiply, {scales[k], result}, location_);
    }
    return result;
  }

 private:
  bool report(const std::string& message, const std::string& remedy) {
    diagnostics_.report(location_, concat("einsum \"", subscripts_.substr(0, 80), "\": ", message), remedy);
    return false;
  }

  // The labels of one operand or of the result; an ellipsis takes `ellipsis_rank` axes.
  bool parse_part(const std::string& part, size_t ellipsis_rank, std::vector<int>& labels) {
    const size_t dots = part.find("...");
    for (size_t k = 0; k < part.size();) {
      if (k == dots) {
        for (size_t axis = ellipsis_rank; axis > 0; --axis) labels.push_back(kEllipsis + static_cast<int>(axis) - 1);
        k += 3;
      } else if (is_letter(part[k])) {
        labels.push_back(part[k++]);
      } else {
        return report(concat("'", part[k], "' is not a subscript"),
                      "subscripts are letters, ',', '->' and one '...' per operand");
      }
    }
    return true;
  }

  bool parse() {
    if (operands_.empty() || operands_.size() > kMaxOperands) {
      return report(concat(operands_.size(), " operands"), concat("pass 1 to ", kMaxOperands));
    }
    const size_t arrow = subscripts_.find("->");
    const std::vector<std::string> parts = split(subscripts_.substr(0, arrow), ',');
    if (parts.size() != operands_.size()) {
      return report(concat("subscripts for ", parts.size(), " operands, but ", operands_.size(), " were passed"),
                    "write the letters of each operand, separated by ','");
    }
    size_t ellipsis_rank = 0;
    for (size_t k = 0; k < parts.size(); ++k) {
      const bool dots = parts[k].find("...") != std::string::npos;
      const size_t letters = parts[k].size() - (dots ? 3 : 0);
      const size_t rank = operands_[k].axes.size();
      if (dots ? letters > rank : letters != rank) {
        return report(concat("operand ", k + 1, " has ", rank, " axes, but its subscripts \"", parts[k].substr(0, 80),
                             "\" name ", letters),
                      "write one letter per axis");
      }
      Term term{operands_[k], {}};
      if (!parse_part(parts[k], rank - letters, term.labels)) return false;
      if (dots) ellipsis_rank = std::max(ellipsis_rank, rank - letters);
      terms_.push_back(std::move(term));
    }
    return arrow == std::string::npos ? imply_output(ellipsis_rank)
                                      : parse_output(subscripts_.substr(arrow + 2), ellipsis_rank);
  }

  // Without '->': the ellipsis, then the letters that occur once, in alphabetical order.
  bool imply_output(size_t ellipsis_rank) {
    for (size_t axis = ellipsis_rank; axis > 0; --axis) output_.push_back(kEllipsis + static_cast<int>(axis) - 1);
    std::map<int, int> count;
    for (const Term& term : terms_) {
      for (const int label : term.labels) ++count[label];
    }
    for (const auto& [label, times] : count) {
      if (label < kEllipsis && times == 1) output_.push_back(label);
    }
    return true;
  }

  bool parse_output(const std::string& text, size_t ellipsis_rank) {
    if (!parse_part(text, ellipsis_rank, output_)) return false;
    if (ellipsis_rank > 0 && text.find("...") == std::string::npos) {
      return report("an operand has '...' but the result does not", "write '...' in the result too");
    }
    std::set<int> seen;
    for (const int label : output_) {
      if (!seen.insert(label).second)
        return report(concat("'", shown(label), "' occurs twice in the result"), "write it once");
      const bool known = std::any_of(terms_.begin(), terms_.end(), [&](const Term& term) {
        return std::find(term.labels.begin(), term.labels.end(), label) != term.labels.end();
      });
      if (!known)
        return report(concat("'", shown(label), "' in the result is in no operand"),
                      "remove it, and broadcast the result in a separate statement");
    }
    return true;
  }

  // Finds the extent of each label; an axis of extent one is broadcast along a longer one.
  bool bind_extents() {
    if (output_.size() > kMaxRank)
      return report(concat("the result has ", output_.size(), " axes"), concat("at most ", kMaxRank, " are allowed"));
    std::map<int, int64_t> extents;
    for (const Term& term : terms_) {
      for (size_t axis = 0; axis < term.labels.size(); ++axis) {
        const int label = term.labels[axis];
        const int64_t here = builder_.extent(term.view, axis);
        const auto [entry, fresh] = extents.try_emplace(label, here);
        if (fresh || (entry->second == 1 && here != 1)) {
          entry->second = here;
          dims_[label] = name_dim(label, builder_.dim_of(term.view, axis));
        } else if (here != 1 && here != entry->second) {
          return report(concat("'", shown(label), "' is ", entry->second, " in one operand and ", here, " in another"),
                        "all axes with one letter must have the same extent");
        }
      }
    }
    for (Term& term : terms_) {
      for (size_t axis = 0; axis < term.labels.size(); ++axis) {
        if (builder_.extent(term.view, axis) != extents[term.labels[axis]]) term.labels[axis] = kFixed;
      }
    }
    return true;
  }

  // Letter k names its axis K if the module has a size K of that extent: attention's keys and queries stay distinct.
  DimId name_dim(int label, DimId inherited) {
    if (label >= kEllipsis) return inherited;
    const std::string name(1, static_cast<char>(std::toupper(label)));
    const auto size = numbers_.find(name);
    const int64_t extent = builder_.graph.extent(inherited);
    return size != numbers_.end() && size->second.integer == extent ? builder_.dim(name, extent) : inherited;
  }

  // Scalars and constants multiply the result; they are not operands of a contraction.
  void take_scalars(std::vector<Value>& scales) {
    std::erase_if(terms_, [&](const Term& term) {
      const bool scalar = term.labels.empty();
      if (scalar) scales.push_back(Value::of(term.view));
      return scalar;
    });
  }

  std::vector<int> free_labels(const Term& term) const {
    std::vector<int> labels;
    for (const int label : term.labels) {
      if (label != kFixed && std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
    }
    return labels;
  }

  bool is_needed(int label, const Term* except_a, const Term* except_b) const {
    if (std::find(output_.begin(), output_.end(), label) != output_.end()) return true;
    return std::any_of(terms_.begin(), terms_.end(), [&](const Term& term) {
      return &term != except_a && &term != except_b &&
             std::find(term.labels.begin(), term.labels.end(), label) != term.labels.end();
    });
  }

  // Takes diagonals and sums over indices that only one operand has, so that only plain products remain.
  bool simplify_terms() {
    for (Term& term : terms_) {
      const std::vector<int> labels = free_labels(term);
      const auto fixed = std::count(term.labels.begin(), term.labels.end(), kFixed);
      if (labels.size() + static_cast<size_t>(fixed) < term.labels.size()) {
        if (!replace(term, builder_.copy(term, labels, dims_, location_), labels)) return false;
      }
      std::vector<bool> reduced;
      std::vector<int> kept;
      for (const int label : term.labels) {
        reduced.push_back(label != kFixed && !is_needed(label, &term, nullptr));
        if (!reduced.back()) kept.push_back(label);
      }
      if (kept.size() == term.labels.size()) continue;
      if (!replace(term, builder_.reduce(OperatorKind::sum, term.view, reduced, false, location_), kept)) return false;
    }
    return true;
  }

  bool replace(Term& term, const Value& value, const std::vector<int>& labels) {
    if (value.kind != ValueKind::view) return false;
    term = {value.view, labels};
    return true;
  }

  double cost(const Term& a, const Term& b) const {
    std::set<int> labels(a.labels.begin(), a.labels.end());
    labels.insert(b.labels.begin(), b.labels.end());
    labels.erase(kFixed);
    double points = 1;
    for (const int label : labels) points *= static_cast<double>(builder_.graph.extent(dims_.at(label)));
    return points;
  }

  // With three or more operands, multiplies the pair with the fewest multiplications first; of equal pairs the first.
  bool contract_cheapest_pair() {
    size_t best_a = 0;
    size_t best_b = 1;
    double best = cost(terms_[0], terms_[1]);
    for (size_t a = 0; a < terms_.size(); ++a) {
      for (size_t b = a + 1; b < terms_.size(); ++b) {
        const double here = cost(terms_[a], terms_[b]);
        if (here < best) {
          best = here;
          best_a = a;
          best_b = b;
        }
      }
    }
    const Term& a = terms_[best_a];
    const Term& b = terms_[best_b];
    std::vector<int> out;
    if (terms_.size() == 2) {
      out = output_;
    } else {
      std::vector<int> labels = free_labels(a);
      for (const int label : free_labels(b)) {
        if (std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
      }
      std::copy_if(labels.begin(), labels.end(), std::back_inserter(out),
                   [&](int label) { return is_needed(label, &a, &b); });
    }
    const Value value = builder_.product(a, b, out, dims_, location_);
    if (value.kind != ValueKind::view) return false;
    terms_[best_a] = {value.view, out};
    terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(best_b));
    return true;
  }

  // The one operand that is left, with its axes in the order of the result: a view, which moves no data.
  Value last_term() {
    const Term& term = terms_.front();
    std::vector<size_t> order;
    for (const int label : output_) {
      const auto axis = std::find(term.labels.begin(), term.labels.end(), label);
      order.push_back(static_cast<size_t>(axis - term.labels.begin()));
    }
    return Value::of(permuted(term.view, order));
  }

  std::string subscripts_;
  const std::vector<View>& operands_;
  const Numbers& numbers_;
  SourceLocation location_;
  Builder& builder_;
  Diagnostics& diagnostics_;
  std::vector<Term> terms_;
  std::vector<int> output_;
  std::map<int, DimId> dims_;
};

}  // namespace

Value lower_einsum(const std::string& subscripts, const std::vector<View>& operands, const Numbers& numbers,
                   SourceLocation location, Builder& builder, Diagnostics& diagnostics) {
  return Einsum(subscripts, operands, numbers, location, builder, diagnostics).run();
}

}  // namespace millrace
