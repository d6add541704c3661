#include "codegen/cuda/unfold.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/text.h"

namespace millrace {
namespace {

constexpr int kThreads = 256;

const char* element_of_size(int64_t bytes) {
  switch (bytes) {
    case 1: return "mr::u8";
    case 2: return "mr::u16";
    case 4: return "mr::u32";
    default: return "mr::u64";
  }
}

// How far the copy or its source reaches: small ones have 32-bit indices, which divide faster.
bool is_small(const StridedCopy& copy) {
  int64_t reach = copy.elements() + kThreads;
  for (const CopyAxis& axis : copy.axes) reach = std::max(reach, copy.first + axis.extent * std::abs(axis.stride));
  return reach < std::numeric_limits<int32_t>::max() / 4;
}

// Where element `number` of the copy is in the source. The last axis runs fastest.
std::string source_of(const StridedCopy& copy, const std::string& number) {
  std::string text = concat("I(", copy.first, ")");
  int64_t inner = 1;
  for (size_t axis = copy.axes.size(); axis-- > 0;) {
    const auto [extent, stride] = copy.axes[axis];
    const std::string quotient = inner == 1 ? number : concat(number, " / ", inner);
    text += concat(" + I(", stride, ") * I(", quotient, axis > 0 ? concat(" % ", extent) : "", ")");
    inner *= extent;
  }
  return text;
}

}  // namespace

KernelText generate_unfold(const Launch& launch) {
  const size_t operand = launch.unfolded[0].empty() ? 1 : 0;
  const StridedCopy& copy = launch.unfolded.at(operand);
  const int64_t elements = copy.elements();
  const std::string element = element_of_size(bytes_of(launch.gemm.type));
  const std::string integer = is_small(copy) ? "int" : "long long";
  KernelText made;
  made.grids.push_back({"MILLRACE_KERNEL", (elements + kThreads - 1) / kThreads, kThreads});
  made.text =
      concat("MR_KERNEL(", kThreads, ") MILLRACE_KERNEL(MR_PARAMETER mr::Arguments<", launch.tensor_count, ", ",
             std::max<size_t>(launch.numbers.size(), 1), ", 1> args) {\n", "  using I = ", integer,
             ";\n  using U = unsigned ", integer, ";\n  mr::begin();\n  const U to = U(mr::block_number()) * ",
             kThreads, " + U(mr::thread_number());\n  if (to >= ", elements, ") return;\n  const ", element,
             "* const source = static_cast<const ", element, "*>(args.tensors[", launch.operands.at(operand).front(),
             "]);\n  reinterpret_cast<", element, "*>(args.scratch)[to] = source[", source_of(copy, "to"), "];\n}\n");
  return made;
}

}  // namespace millrace
