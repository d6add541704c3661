#include "select/select.h"

#include "select/exact.h"
#include "select/sssp.h"

namespace millrace {

Result<Selection> select(const Measurements& measurements, SelectMethod method, const SelectLimits&) {
  return method == SelectMethod::sssp ? select_sssp(measurements) : select_exact(measurements);
}

}  // namespace millrace
