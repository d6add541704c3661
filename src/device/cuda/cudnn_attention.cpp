// The operations, their order and the types of intermediate tensors are those that cuDNN's engines for attention match.
#include "device/cuda/cudnn_attention.h"

#include "base/text.h"

namespace millrace {
namespace {

using Id = CudnnGraph::Id;
using Operand = AttentionCall::Operand;
using Role = CudnnAttentionTensor::Role;

class AttentionGraph {
 public:
  AttentionGraph(const Cudnn& library, const AttentionCall& call)
      : call_(call), graph_(library), type_(call.type == StoredType::f16 ? cudnn::kHalf : cudnn::kBfloat16) {}

  Result<CudnnAttention> run(const std::shared_ptr<cudnnContext>& handle) {
    call_.backward ? add_backward() : add_forward();
    Result<std::unique_ptr<CudnnPlan>> plan = graph_.plan(handle);
    if (!plan) return plan.error();
    return CudnnAttention{std::move(*plan), std::move(tensors_)};
  }

 private:
  // ---- Shapes ----

  CudnnShape shape(Operand operand) const {
    const AttentionCall::Strides& strides = call_.strides[operand];
    const bool queries = call_.rows_are_queries(operand);
    const bool inner =
        operand == Operand::q || operand == Operand::k || operand == Operand::d_q || operand == Operand::d_k;
    const int64_t columns = operand == Operand::log_sums ? 1 : inner ? call_.inner : call_.values;
    return {{call_.batches, queries ? call_.heads : call_.key_heads, queries ? call_.queries : call_.keys, columns},
            {strides.batch, strides.head, strides.row, strides.column}};
  }

  // Dense, by rows.
  static CudnnShape dense(int64_t batches, int64_t heads, int64_t rows, int64_t columns) {
    return {{batches, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
  }
  CudnnShape scores() const { return dense(call_.batches, call_.heads, call_.queries, call_.keys); }
  CudnnShape rows() const { return dense(call_.batches, call_.heads, call_.queries, 1); }

  // ---- Tensors ----

  Id stored(Operand operand, const CudnnShape& shape) {
    const Id id = graph_.stored(operand == Operand::log_sums ? cudnn::kFloat : type_, shape);
    tensors_.push_back({id, Role::operand, operand});
    return id;
  }
  Id stored(Operand operand) { return stored(operand, shape(operand)); }
  Id scalar(Role role) {
    const Id id = graph_.scalar(cudnn::kFloat);
    tensors_.push_back({id, role, Operand::q});
    return id;
  }
  Id row_sums() {
    const Id id = graph_.stored(cudnn::kFloat, rows());
    tensors_.push_back({id, Role::row_sums, Operand::q});
    return id;
  }

  // ---- Operations ----

  Id matrix_product(Id a, Id b) {
    const Id result = graph_.intermediate(cudnn::kFloat, scores());
    graph_.multiply_matrices(a, b, result);
    return result;
  }
  void pointwise(cudnn::PointwiseMode mode, Id x, Id b, Id result) {
    graph_.pointwise(mode, cudnn::kFloat, {x, b, 0}, result);
  }
  Id pointwise(cudnn::PointwiseMode mode, Id x, Id b, const CudnnShape& shape) {
    const Id result = graph_.intermediate(cudnn::kFloat, shape);
    pointwise(mode, x, b, result);
    return result;
  }
  Id reduced(cudnn::ReductionOperator op, Id x) {
    const Id result = graph_.intermediate(cudnn::kFloat, rows());
    graph_.reduce(op, x, result);
    return result;
  }
  Id index_along(int64_t axis, Id x) {
    const Id result = graph_.intermediate(cudnn::kInt32, scores());
    graph_.index_along(axis, x, result);
    return result;
  }

  Id hide_later_keys(Id x) {
    if (!call_.causal) return x;
    constexpr int64_t kQueryAxis = 2;
    constexpr int64_t kKeyAxis = 3;
    const Id query = index_along(kQueryAxis, x);
    const Id key = index_along(kKeyAxis, x);
    const Id visible = graph_.intermediate(cudnn::kBoolean, scores());
    graph_.pointwise(cudnn::kGreaterOrEqual, cudnn::kBoolean, {query, key, 0}, visible);
    const Id result = graph_.intermediate(cudnn::kFloat, scores());
    graph_.pointwise(cudnn::kSelect, cudnn::kFloat, {x, scalar(Role::hidden), visible}, result);
    return result;
  }

  void add_forward() {
    const Id q = stored(Operand::q);
    const Id k = stored(Operand::k, shape(Operand::k).transposed());
    Id x = pointwise(cudnn::kMultiply, matrix_product(q, k), scalar(Role::scale), scores());
    x = hide_later_keys(x);
    const Id largest = reduced(cudnn::kMaximum, x);
    const Id exponentials =
        pointwise(cudnn::kExponential, pointwise(cudnn::kSubtract, x, largest, scores()), 0, scores());
    const Id sum = reduced(cudnn::kSum, exponentials);
    const Id logarithm = pointwise(cudnn::kLogarithm, sum, 0, rows());
    pointwise(cudnn::kAdd, largest, logarithm, stored(Operand::log_sums));
    const Id weights = graph_.intermediate(type_, scores());
    pointwise(cudnn::kDivide, exponentials, sum, weights);
    const Id v = stored(Operand::v);
    graph_.multiply_matrices(weights, v, stored(Operand::o));
  }

  // Rows times rows: aᵀ b, for a key and a column. The results of heads that share the key are added.
  void add_transposed_product(Id a, Id b, Operand result, int64_t columns) {
    const Id transposed = graph_.intermediate(type_, scores().transposed());
    graph_.reshape(a, transposed);
    if (call_.heads == call_.key_heads) return graph_.multiply_matrices(transposed, b, stored(result));
    const Id of_heads = graph_.intermediate(type_, dense(call_.batches, call_.heads, call_.keys, columns));
    graph_.multiply_matrices(transposed, b, of_heads);
    graph_.reduce(cudnn::kSum, of_heads, stored(result));
  }

  void add_backward() {
    const CudnnShape results = dense(call_.batches, call_.heads, call_.queries, call_.values);
    const Id q = stored(Operand::q);
    const CudnnShape transposed_keys = shape(Operand::k).transposed();
    const Id k = stored(Operand::k, transposed_keys);
    const Id v = stored(Operand::v, shape(Operand::v).transposed());
    const Id d_o = stored(Operand::d_o);
    const Id scale = scalar(Role::scale);
    const Id sums = row_sums();
    const Id products = pointwise(cudnn::kMultiply, d_o, stored(Operand::o), results);
    pointwise(cudnn::kMultiply, reduced(cudnn::kSum, products), scalar(Role::one), sums);

    Id x = pointwise(cudnn::kMultiply, matrix_product(q, k), scale, scores());
    x = pointwise(cudnn::kSubtract, x, stored(Operand::log_sums), scores());
    const Id weights = pointwise(cudnn::kExponential, hide_later_keys(x), 0, scores());
    add_transposed_product(weights, d_o, Operand::d_v, call_.values);

    Id gradient = pointwise(cudnn::kSubtract, matrix_product(d_o, v), sums, scores());
    gradient = pointwise(cudnn::kMultiply, gradient, weights, scores());
    gradient = pointwise(cudnn::kMultiply, gradient, scale, scores());
    add_transposed_product(gradient, q, Operand::d_k, call_.inner);

    // Written by one product: the library then keeps the scores' gradients in its workspace and adds in a fixed order.
    const Id keys = graph_.intermediate(type_, transposed_keys.transposed());
    graph_.reshape(k, keys);
    graph_.multiply_matrices(gradient, keys, stored(Operand::d_q));
  }

  const AttentionCall& call_;
  CudnnGraph graph_;
  cudnn::DataType type_;
  std::vector<CudnnAttentionTensor> tensors_;
};

// Versions with known errors, as NVIDIA's own front end for this interface lists them.
Result<Done> check_version(const Cudnn& library, const AttentionCall& call) {
  constexpr size_t kFirst = 90600;
  constexpr size_t kWrongBackward = 91000;
  constexpr size_t kRightBackward = 91002;
  constexpr size_t kAnyLength = 91501;
  constexpr int64_t kTile = 128;
  const size_t version = library.get_version();
  const bool wrong = version < kFirst || (call.backward && version >= kWrongBackward && version < kRightBackward) ||
                     (call.backward && version < kAnyLength && call.keys % kTile != 0);
  if (!wrong) return Done{};
  return Error::make(ErrorKind::failed,
                     concat("cuDNN ", library.version(), " is known to compute this attention wrongly"),
                     "install cuDNN 9.16 or newer");
}

}  // namespace

Result<CudnnAttention> make_cudnn_attention(const Cudnn& library, const std::shared_ptr<cudnnContext>& handle,
                                            const AttentionCall& call) {
  if (call.type != StoredType::f16 && call.type != StoredType::bf16)
    return Error::make(ErrorKind::failed, concat("cuDNN has no fused attention in ", name_of(call.type)));
  for (size_t operand = 0; operand < AttentionCall::kOperands; ++operand) {
    if (call.has(static_cast<Operand>(operand)) && call.strides[operand].column != 1)
      return Error::make(ErrorKind::failed, "cuDNN needs attentions with contiguous columns");
  }
  if (const Result<Done> right = check_version(library, call); !right) return right.error();
  return AttentionGraph(library, call).run(handle);
}

}  // namespace millrace
