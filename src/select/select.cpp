#include "select/select.h"

#include "select/exact.h"
#include "select/sssp.h"

namespace millrace {

std::vector<std::pair<int, int>> SelectedConversion::chain() const {
  std::vector<std::pair<int, int>> result;
  int at = from;
  for (const int layout : via) {
    result.emplace_back(at, layout);
    at = layout;
  }
  result.emplace_back(at, to);
  return result;
}

Result<Selection> select(const Measurements& measurements, SelectMethod method, const SelectLimits& limits) {
  return method == SelectMethod::sssp ? select_sssp(measurements, limits) : select_exact(measurements, limits);
}

}  // namespace millrace
