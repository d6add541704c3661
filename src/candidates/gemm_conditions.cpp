#include "candidates/gemm_conditions.h"

#include <algorithm>

namespace millrace {
namespace {

bool is_constant_along(const ProductStrides& strides, size_t operand, const Chain& chain) {
  return std::all_of(chain.begin(), chain.end(), [&](int index) { return strides.along(operand, index) == 0; });
}

}  // namespace

GemmConditions::GemmConditions(const Graph& graph, const EnumerateOptions& options, const Product& product,
                               const ProductStrides& strides)
    : options_(options),
      product_(product),
      strides_(strides),
      type_(stored_type(graph.tensor(product.tensors[kC].front()).dtype)) {}

const char* GemmConditions::why_rejected(GemmLibrary library, const GemmShape& shape) const {
  if (library == GemmLibrary::cublaslt) return why_cublaslt(shape);
  const char* const epilogue = why_cpu_epilogue(library, shape.chains);
  return epilogue != nullptr ? epilogue : why_cpu_library(library, shape);
}

bool GemmConditions::is_summed(const std::vector<int>& loops) const {
  return std::any_of(loops.begin(), loops.end(), [&](int index) { return strides_.along(kC, index) == 0; });
}

const char* GemmConditions::why_cpu_library(GemmLibrary library, const GemmShape& shape) const {
  if (library == GemmLibrary::openblas && !shape.unit_strides)
    return "OpenBLAS: a matrix has no unit stride along either of its indices";
  if (library == GemmLibrary::mkl && !shape.unit_strides)
    return "MKL: a matrix has no unit stride along either of its indices";
  if (library != GemmLibrary::onednn) return nullptr;
  if (type_ == StoredType::f64) return "oneDNN has no products of float64";
  if (options_.lacking.contains({library, type_})) return "oneDNN has no fast products of the type on this processor";
  if (!shape.unit_strides) return "oneDNN: a matrix has no unit stride along either of its indices";
  if (type_ == StoredType::f16 && strides_.has_gaps(shape.chains))
    return "oneDNN: a float16 result with gaps between its rows";
  return is_summed(shape.loops) ? "oneDNN: a sum over products needs more than one call" : nullptr;
}

// Of the CPU's libraries oneDNN alone has epilogues. It adds a bias that runs along the index with stride 1 in the
// result.
const char* GemmConditions::why_cpu_epilogue(GemmLibrary library, const GemmChains& chains) const {
  if (!product_.has_epilogue()) return nullptr;
  if (library != GemmLibrary::onednn) return "of the CPU's libraries only oneDNN supports the epilogue";
  if (!product_.vector) return nullptr;
  const auto& [column, row] = strides_.result_order(chains);
  if (!is_constant_along(strides_, kV, row) || column.empty() || strides_.stride(kC, column) != 1)
    return "oneDNN: a bias runs along an index that has no unit stride in the result";
  if (strides_.has_gaps(chains)) return "oneDNN: a bias of a result with gaps between its rows";
  if (strides_.stride(kV, column) != 1) return "oneDNN: a bias has no unit stride";
  return strides_.merges(column, kV) ? nullptr : "oneDNN: a bias's strides do not merge as the matrix's do";
}

// One call: the loops are one batch of constant stride.
const char* GemmConditions::why_cublaslt(const GemmShape& shape) const {
  if (!shape.unit_strides) return "cuBLASLt: a matrix has no unit stride along either of its indices";
  if (is_summed(shape.loops)) return "cuBLASLt: a sum over products needs more than one call";
  std::vector<int> batch = shape.loops;
  std::sort(batch.begin(), batch.end(), [&](int l, int r) { return strides_.along(kC, l) > strides_.along(kC, r); });
  for (const size_t operand : {kA, kB, kC}) {
    if (!strides_.merges(batch, operand)) return "cuBLASLt: a batch along two indices that do not merge into one";
  }
  if (const char* const reason = why_cublaslt_vector(shape.chains, batch)) return reason;
  if (product_.auxiliary.valid() && !can_be_auxiliary(shape.chains, batch))
    return "cuBLASLt: the auxiliary matrix's leading dimension or batch stride is no multiple of 8";
  return nullptr;
}

// A bias runs along the matrix index that has stride 1 in C, the gradient of a bias along the operand's index that is
// not contracted.
const char* GemmConditions::why_cublaslt_vector(const GemmChains& chains, const std::vector<int>& batch) const {
  if (!product_.vector) return nullptr;
  const bool is_bias = product_.vector->role == ProductVector::Role::bias;
  const bool along_m = is_bias ? &strides_.result_order(chains).column == chains.m
                               : product_.vector->role == ProductVector::Role::gradient_of_a;
  const Chain& chain = along_m ? *chains.m : *chains.n;
  const Chain& other = along_m ? *chains.n : *chains.m;
  if (!is_constant_along(strides_, kV, other) || (is_bias && strides_.stride(kC, chain) != 1))
    return "cuBLASLt: a bias runs along an index that has no unit stride in the result";
  if (chain.empty() || strides_.stride(kV, chain) != 1) return "cuBLASLt: a bias has no unit stride";
  if (!strides_.merges(chain, kV)) return "cuBLASLt: a bias's strides do not merge as the matrix's do";
  for (size_t at = 0; at < batch.size(); ++at) {
    if (at + 1 < batch.size() && !strides_.merges(batch[at], batch[at + 1], kV))
      return "cuBLASLt: biases of a batch have no constant stride";
    if (!is_bias && strides_.along(kV, batch[at]) == 0)
      return "cuBLASLt: products of a batch would write the same gradient";
  }
  return nullptr;
}

// An auxiliary matrix has the result's layout.
bool GemmConditions::can_be_auxiliary(const GemmChains& chains, const std::vector<int>& batch) const {
  const auto& [column, row] = strides_.result_order(chains);
  const int64_t leading = row.empty() ? strides_.extent(column) : strides_.stride(kC, row);
  return leading % kAuxiliaryStep == 0 && (batch.empty() || strides_.along(kC, batch.back()) % kAuxiliaryStep == 0);
}

}  // namespace millrace
