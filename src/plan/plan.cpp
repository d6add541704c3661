#include "plan/plan.h"

#include "base/text.h"

namespace millrace {

std::string name_of(const PlanLaunch& launch) {
  return launch.part.empty() ? concat("conversion of ", launch.conversion_of) : launch.part;
}

std::string_view name_of(BufferPlace place) {
  switch (place) {
    case BufferPlace::arena: return "arena";
    case BufferPlace::argument: return "argument";
    case BufferPlace::result: return "result";
    case BufferPlace::result_gradient: return "result_gradient";
    case BufferPlace::argument_gradient: return "argument_gradient";
  }
  return "";
}

}  // namespace millrace
