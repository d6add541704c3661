#include "random/einsums.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/text.h"
#include "random/elementwise.h"

namespace millrace::random_programs {
namespace {

constexpr int kMostLabels = 20;  // NumPy takes 32 axes, and there are 26 letters

// The axis of each label: an extent of one is replaced by any other.
std::map<int, Axis> axes_of(const std::vector<Term>& terms) {
  std::map<int, Axis> axes;
  for (const Term& term : terms) {
    const size_t hidden = term.value.shape.size() + 1 - term.labels.size();  // axes of the ellipsis, if there is one
    size_t axis = 0;
    for (const int label : term.labels) {
      if (label == kEllipsis) {
        axis += hidden;
        continue;
      }
      const Axis& here = term.value.shape[axis++];
      const auto [entry, is_new] = axes.try_emplace(label, here);
      if (!is_new && entry->second.extent == 1) entry->second = here;
    }
  }
  return axes;
}

// The axes of all ellipses, broadcast together.
Shape ellipsis_of(const std::vector<Term>& terms) {
  Shape shape;
  for (const Term& term : terms) {
    const auto position = std::find(term.labels.begin(), term.labels.end(), kEllipsis);
    if (position == term.labels.end()) continue;
    const auto first = term.value.shape.begin() + (position - term.labels.begin());
    const auto hidden = static_cast<std::ptrdiff_t>(term.value.shape.size() + 1 - term.labels.size());
    shape = *broadcast(shape, Shape(first, first + hidden));
  }
  return shape;
}

int64_t points_of(const std::vector<Term>& terms) {
  int64_t points = elements(ellipsis_of(terms));
  for (const auto& [label, axis] : axes_of(terms)) points *= axis.extent;
  return points;
}

std::string subscripts(const std::vector<int>& labels, const std::map<int, char>& letters) {
  std::string text;
  for (const int label : labels) text += label == kEllipsis ? "..." : std::string(1, letters.at(label));
  return text;
}

// The largest number of operators: one per pair, and one for each operand with a diagonal or a sum before that.
int operators_of(const std::vector<Term>& terms, const std::vector<int>& output) {
  std::map<int, int> terms_with;
  for (const Term& term : terms) {
    for (const int label : std::set<int>(term.labels.begin(), term.labels.end())) ++terms_with[label];
  }
  int operators =
      static_cast<int>(terms.size() < 3 ? 1 : terms.size());  // with several, the output may need a transpose
  for (const Term& term : terms) {
    const std::set<int> labels(term.labels.begin(), term.labels.end());
    const bool summed = std::any_of(labels.begin(), labels.end(), [&](int label) {
      return terms_with[label] == 1 && std::find(output.begin(), output.end(), label) == output.end();
    });
    operators += (summed ? 1 : 0) + (labels.size() < term.labels.size() ? 1 : 0);
  }
  return operators;
}

// Axes [begin, end) of an operand.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// Some adjacent axes, or none, for the ellipsis: they must broadcast with those of the other ellipses.
Range draw_hidden(Random& random, const Value& value, const std::vector<Term>& terms) {
  const size_t rank = value.shape.size();
  const auto begin = static_cast<size_t>(random.below(static_cast<int64_t>(rank) + 1));
  const size_t end = begin + static_cast<size_t>(random.below(static_cast<int64_t>(rank - begin) + 1));
  const Shape hidden(value.shape.begin() + static_cast<std::ptrdiff_t>(begin),
                     value.shape.begin() + static_cast<std::ptrdiff_t>(end));
  return broadcast(ellipsis_of(terms), hidden) ? Range{begin, end} : Range{begin, begin};
}

// A label for each axis of a new operand: one that `known` operands have, one that it has itself, or the `next` one.
std::vector<int> draw_labels(Random& random, const Value& value, const std::optional<Range>& hidden,
                             const std::map<int, Axis>& known, int diagonal_percent, int& next) {
  const size_t rank = value.shape.size();
  std::vector<int> labels;
  std::map<int, int64_t> own;  // labels of this operand, with extents
  for (size_t axis = 0; axis <= rank; ++axis) {
    if (hidden && axis == hidden->begin) labels.push_back(kEllipsis);
    if (axis == rank) break;
    if (hidden && axis >= hidden->begin && axis < hidden->end) continue;
    const int64_t extent = value.shape[axis].extent;
    std::vector<int> square;  // a label twice in one operand takes a diagonal: only of a square
    for (const auto& [label, other] : own) {
      if (other == extent) square.push_back(label);
    }
    std::vector<int> shared;
    for (const auto& [label, other] : known) {
      const bool fits = other.extent == extent || extent == 1 || other.extent == 1;
      if (fits && !own.contains(label)) shared.push_back(label);
    }
    const bool shares = random.chance(65);
    int label = next;
    if (random.chance(diagonal_percent) && !square.empty()) {
      label = random.pick(square);
    } else if (shares && !shared.empty()) {
      label = random.pick(shared);
    } else {
      ++next;
    }
    labels.push_back(label);
    own.emplace(label, extent);
  }
  return labels;
}

bool any_ellipsis(const std::vector<Term>& terms) {
  return std::any_of(terms.begin(), terms.end(), [](const Term& term) {
    return std::find(term.labels.begin(), term.labels.end(), kEllipsis) != term.labels.end();
  });
}

int64_t size_of(const std::vector<Term>& terms, const std::vector<int>& output) {
  const std::map<int, Axis> axes = axes_of(terms);
  int64_t size = 1;
  for (const int label : output) size *= label == kEllipsis ? elements(ellipsis_of(terms)) : axes.at(label).extent;
  return size;
}

// The ellipsis, then the labels that occur once, in order: NumPy's rule without "->".
std::vector<int> implicit_output_of(const std::vector<Term>& terms) {
  std::map<int, int> uses;
  for (const Term& term : terms) {
    for (const int label : term.labels) ++uses[label];
  }
  std::vector<int> output;
  if (any_ellipsis(terms)) output.push_back(kEllipsis);
  for (const auto& [label, count] : uses) {
    if (label != kEllipsis && count == 1) output.push_back(label);
  }
  return output;
}

// Some of the labels, in any order, always with the ellipsis.
std::vector<int> draw_output(Random& random, const std::vector<Term>& terms) {
  const std::map<int, Axis> axes = axes_of(terms);
  std::vector<int> candidates;
  for (const auto& [label, axis] : axes) candidates.push_back(label);
  random.shuffle(candidates);
  std::vector<int> output;
  int64_t size = elements(ellipsis_of(terms));
  for (const int label : candidates) {
    const int64_t extent = axes.at(label).extent;
    if (output.size() >= 4 || size * extent > kMostElements || random.chance(30)) continue;
    output.push_back(label);
    size *= extent;
  }
  if (any_ellipsis(terms)) {
    const auto position = random.below(static_cast<int64_t>(output.size()) + 1);
    output.insert(output.begin() + position, kEllipsis);
  }
  return output;
}

}  // namespace

std::vector<int> labels_of(const Value& value) {
  std::vector<int> labels(value.shape.size());
  std::iota(labels.begin(), labels.end(), 0);
  return labels;
}

Value einsum(Body& body, const std::vector<Term>& terms, const std::vector<int>& output, OutputForm form) {
  Random& random = body.random;
  const std::map<int, Axis> axes = axes_of(terms);
  std::vector<char> alphabet;
  for (char letter = 'a'; letter <= 'z'; ++letter) alphabet.push_back(letter);
  if (random.chance(10)) {
    for (char letter = 'A'; letter <= 'Z'; ++letter) alphabet.push_back(letter);
  }
  random.shuffle(alphabet);
  alphabet.resize(axes.size());
  if (form == OutputForm::implicit_output) std::sort(alphabet.begin(), alphabet.end());
  std::map<int, char> letters;
  for (const auto& [label, axis] : axes) letters[label] = alphabet[letters.size()];

  body.spend(operators_of(terms, output));
  Value result{"", Binding::atom, {}, 1, false};
  for (const int label : output) {
    if (label == kEllipsis) {
      const Shape hidden = ellipsis_of(terms);
      result.shape.insert(result.shape.end(), hidden.begin(), hidden.end());
    } else {
      result.shape.push_back(axes.at(label));
    }
  }
  std::vector<std::string> inputs;
  std::string operands;
  for (const Term& term : terms) {
    inputs.push_back(subscripts(term.labels, letters));
    operands += ", " + term.value.text;
    result.bound *= term.value.bound;
  }
  int64_t summed = 1;
  for (const auto& [label, axis] : axes) {
    if (std::find(output.begin(), output.end(), label) == output.end()) summed *= axis.extent;
  }
  result.bound *= std::sqrt(static_cast<double>(summed));  // the signs of the terms differ
  const bool spaced = random.chance(5);
  std::string formula = join(inputs, spaced ? ", " : ",");
  if (form == OutputForm::explicit_output) formula += (spaced ? " -> " : "->") + subscripts(output, letters);
  const char quote = random.chance(80) ? '"' : '\'';
  result.text = concat("np.einsum(", quote, formula, quote, operands, random.chance(10) ? ", optimize=True)" : ")");
  result.exact = terms.size() == 1 && terms[0].value.exact && elements(result.shape) == elements(terms[0].value.shape);
  return result;
}

Value rearranged(Body& body, const Value& value) {
  Random& random = body.random;
  std::vector<int> output = labels_of(value);
  if (random.chance(70)) {
    if (output.size() == 2) {
      std::swap(output[0], output[1]);
    } else {
      random.shuffle(output);
    }
    return einsum(body, {{value, labels_of(value)}}, output);
  }
  return contracted(body, value);
}

Value projected(Body& body, const Value& x) {
  Random& random = body.random;
  const std::vector<int> labels = labels_of(x);
  std::vector<int> output;
  std::vector<int> weight_labels;
  Shape weight;
  for (const int label : labels) {
    const Axis& axis = x.shape[static_cast<size_t>(label)];
    const bool contract = weight.empty() || random.chance(15);
    const bool batch = !contract && random.chance(10);
    if (contract || batch) {
      weight.push_back(axis);
      weight_labels.push_back(label);
    }
    if (!contract) output.push_back(label);
  }
  const int64_t added = random.chance(60) ? 1 : 2;
  for (int64_t i = 0; i < added; ++i) {
    const int label = static_cast<int>(labels.size() + static_cast<size_t>(i));
    int64_t points = elements(x.shape);
    for (size_t j = 0; j < weight.size(); ++j) {
      if (weight_labels[j] >= static_cast<int>(labels.size())) points *= weight[j].extent;
    }
    const int64_t most = std::min(kMostPoints / points, kMostElements / std::max(elements(weight), points));
    weight.push_back(body.size(std::max<int64_t>(most, 1)));
    weight_labels.push_back(label);
    output.push_back(label);
  }
  // The axes of the weight, of the output and the two operands in any order.
  std::vector<size_t> order(weight.size());
  std::iota(order.begin(), order.end(), size_t{0});
  random.shuffle(order);
  Shape shape;
  std::vector<int> ordered;
  for (const size_t i : order) {
    shape.push_back(weight[i]);
    ordered.push_back(weight_labels[i]);
  }
  if (random.chance(50)) random.shuffle(output);
  const Term right{body.parameter(shape), ordered};
  const Term left{x, labels};
  if (random.chance(50)) return einsum(body, {left, right}, output);
  return einsum(body, {right, left}, output);
}

Value contracted(Body& body, const Value& first) {
  Random& random = body.random;
  int64_t count = random.pick(std::vector<int64_t>{1, 2, 2, 3, 3, 3, 4, 4, 4, 4});
  if (body.left() < 8) count = std::min<int64_t>(count, 2);
  const int diagonal_percent = count == 1 ? 50 : 20;
  const bool with_ellipsis = random.chance(30);
  std::vector<Term> terms;
  int next = 0;
  for (int64_t i = 0; i < count; ++i) {
    Value value = i == 0 ? first : body.any();
    if (random.chance(12) && !value.shape.empty()) value = expanded(body, value);
    std::optional<Range> hidden;
    if (with_ellipsis && (i == 0 || random.chance(70))) hidden = draw_hidden(random, value, terms);
    terms.push_back({value, draw_labels(random, value, hidden, axes_of(terms), diagonal_percent, next)});
    if (points_of(terms) > kMostPoints || next > kMostLabels) {
      terms.pop_back();
      break;
    }
  }
  const std::vector<int> once = implicit_output_of(terms);
  if (size_of(terms, once) <= kMostElements && random.chance(25)) {
    return einsum(body, terms, once, OutputForm::implicit_output);
  }
  return einsum(body, terms, draw_output(random, terms));
}

}  // namespace millrace::random_programs
