#include "autodiff/training_graph.h"

namespace millrace {

std::string_view name_of(Keeping keeping) {
  switch (keeping) {
    case Keeping::given: return "given";
    case Keeping::saved: return "saved";
    case Keeping::recomputed: return "recomputed";
  }
  return "";
}

bool has_gradient(const Tensor& argument) { return argument.role == TensorRole::argument && !argument.fixed; }

}  // namespace millrace
