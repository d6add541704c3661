// An operator as tasks of the oracle: sums over the reduced indices first, then a formula at each point. Pure.
// Test: tests/oracle/oracle_test.cpp
#pragma once

#include <vector>

#include "ir/graph.h"
#include "millrace/result.h"
#include "oracle/task.h"

namespace millrace {

// The kernel that a task is for.
enum class TaskKind { map, fold, contract };

// What a task reads or writes: a tensor of the graph, or a temporary of the operator.
struct TaskTensor {
  TensorId tensor;
  int temporary = -1;  // if not negative
};

// A task without addresses: those of `inputs` and `outputs` are filled in when it runs.
struct OperatorTask {
  TaskKind kind = TaskKind::map;
  oracle::Task task{};
  std::vector<TaskTensor> inputs;
  std::vector<TaskTensor> outputs;
};

struct Temporary {
  int64_t elements = 0;
  TensorId like;  // if valid: stored like this tensor, of which it is a copy; else as Numbers
};

struct OperatorTasks {
  std::vector<OperatorTask> tasks;
  std::vector<Temporary> temporaries;
};

// Fails if the operator has more indices than a task.
Result<OperatorTasks> tasks_of(const Graph& graph, const Operator& op);

}  // namespace millrace
