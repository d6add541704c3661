#include "select/select.h"

#include "select/exact.h"
#include "select/sssp.h"

namespace millrace {

Result<Selection> select(const Measurements& measurements, SelectMethod method, const SelectLimits& limits) {
  return method == SelectMethod::sssp ? select_sssp(measurements, limits) : select_exact(measurements, limits);
}

}  // namespace millrace
