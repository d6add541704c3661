// The paper's method (section 6.1): a shortest path through the layouts of the forward pass's main chain of tensors;
// everything else follows from it, partition by partition, each taking what costs least given what is fixed already.
#pragma once

#include "measure/measurements.h"
#include "millrace/result.h"
#include "select/selection.h"

namespace millrace {

Result<Selection> select_sssp(const Measurements& measurements);

}  // namespace millrace
