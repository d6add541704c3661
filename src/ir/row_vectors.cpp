#include "ir/row_vectors.h"

#include <algorithm>
#include <numeric>

namespace millrace {
namespace {

constexpr int64_t kWidest = 8;  // halves in 16 bytes

// The pieces from number `first` on whose columns take turns; nothing if some column between theirs is in none.
std::optional<RowRun> run_from(const RowExpression& expression, size_t first) {
  const RowPiece& begin = expression.pieces[first];
  RowRun made{begin.first, {}};
  for (int64_t next = 0; next < begin.step; ++next) {
    const auto found = std::find_if(expression.pieces.begin(), expression.pieces.end(), [&](const RowPiece& piece) {
      return piece.first == begin.first + next && piece.step == begin.step && piece.count == begin.count;
    });
    if (found == expression.pieces.end()) return std::nullopt;
    made.pieces.push_back(static_cast<size_t>(found - expression.pieces.begin()));
  }
  return made;
}

bool is_in(const std::vector<RowRun>& runs, size_t piece) {
  return std::any_of(runs.begin(), runs.end(), [&](const RowRun& run) {
    return std::find(run.pieces.begin(), run.pieces.end(), piece) != run.pieces.end();
  });
}

// Whether they read some element or gradient at the same columns.
bool share_sources(const RowPiece& one, const RowPiece& other) {
  return std::any_of(one.nodes.begin(), one.nodes.end(), [&](const RowNode& node) {
    return !node.positions.empty() && std::find(other.nodes.begin(), other.nodes.end(), node) != other.nodes.end();
  });
}

bool share_sources(const RowExpression& expression, const RowRun& one, const RowRun& other) {
  return std::any_of(one.pieces.begin(), one.pieces.end(), [&](size_t left) {
    return std::any_of(other.pieces.begin(), other.pieces.end(),
                       [&](size_t right) { return share_sources(expression.pieces[left], expression.pieces[right]); });
  });
}

}  // namespace

std::optional<std::vector<RowVectors>> row_vectors(const RowExpression& expression) {
  std::vector<RowRun> runs;
  for (size_t piece = 0; piece < expression.pieces.size(); ++piece) {
    if (is_in(runs, piece)) continue;
    std::optional<RowRun> run = run_from(expression, piece);
    if (!run) return std::nullopt;
    runs.push_back(std::move(*run));
  }
  std::vector<RowVectors> made;
  for (const RowRun& run : runs) {
    const int64_t count = expression.pieces[run.pieces.front()].count;
    const int64_t width = std::gcd(kWidest, count);
    if (run.first % 2 != 0 || width * std::ssize(run.pieces) % 2 != 0) return std::nullopt;
    const auto same = std::find_if(made.begin(), made.end(), [&](const RowVectors& vectors) {
      return vectors.count * vectors.width == count && share_sources(expression, vectors.runs.front(), run);
    });
    if (same != made.end())
      same->runs.push_back(run);
    else
      made.push_back({width, count / width, {run}});
  }
  return made;
}

}  // namespace millrace
