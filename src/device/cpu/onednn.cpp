#include "device/cpu/onednn.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/text.h"
#include "device/cpu/openmp_settings.h"

namespace millrace {
namespace {

constexpr int64_t kOneDnnAlignment = 64;  // bytes: a cache line

// 0: the library has no products of the type.
int onednn_type(StoredType type) {
  switch (type) {
    case StoredType::f32: return kOneDnnFloat32;
    case StoredType::f16: return kOneDnnFloat16;
    case StoredType::bf16: return kOneDnnBfloat16;
    default: return 0;
  }
}

OneDnnFunction function_of(Activation activation) {
  if (activation == Activation::relu) return kOneDnnRelu;
  return activation == Activation::exact_gelu ? kOneDnnGeluByErf : kOneDnnGeluByTanh;
}

// Whether it succeeds.
bool append_function(void* post_ops, Activation activation) {
  const OneDnnFunction function = function_of(activation);
  return (onednn().major == 2 ? onednn().post_ops_append_scaled_eltwise(post_ops, 1, function.in_version_2, 0, 0)
                              : onednn().post_ops_append_eltwise(post_ops, function.in_version_3, 0, 0)) == 0;
}

OneDnnObject no_object() { return {nullptr, nullptr}; }

// The object that make(&object) makes; none if it fails.
template <class Make>
OneDnnObject made(Make make, int (*destroy)(void*)) {
  void* object = nullptr;
  return make(&object) == 0 ? OneDnnObject(object, destroy) : no_object();
}

void require_success(bool success) {
  if (success) return;
  std::fputs(
      "millrace: oneDNN failed to run a matrix product: free memory, or load another version (MILLRACE_ONEDNN)\n",
      stderr);
  std::abort();
}

}  // namespace

OneDnnDescriptor::OneDnnDescriptor(int type, const OneDnnMatrix& matrix) : object_(no_object()) {
  const std::array extents = {matrix.rows, matrix.columns};
  const std::array strides = {matrix.row_stride, matrix.column_stride};
  if (onednn().major == 2) {
    valid_ = onednn().memory_desc_init_by_strides(bytes_.data(), 2, extents.data(), type, strides.data()) == 0;
    return;
  }
  object_ = made(
      [&](void** object) {
        return onednn().memory_desc_create_with_strides(object, 2, extents.data(), type, strides.data());
      },
      onednn().memory_desc_destroy);
  valid_ = object_ != nullptr;
}

OneDnnMatmul::OneDnnMatmul(const OneDnnProduct& product)
    : product_(product),
      a_(onednn_type(product.type), product.a),
      b_(onednn_type(product.type), product.b),
      c_(onednn_type(product.type), product.c),
      factor_(kOneDnnFloat32, {}),
      bias_(onednn_type(product.type), {1, product.c.columns, product.c.columns, 1}),
      descriptor_(no_object()),
      primitive_(no_object()) {}

OrRejected<std::shared_ptr<const OneDnnMatmul>> OneDnnMatmul::make(const OneDnnProduct& product) {
  if (!onednn_info().there) return Rejection{onednn_info().missing};
  // The library divides the work for the number of threads that there are now.
  const OpenMpSettings settings;
  omp_set_num_threads(product.threads);
  const auto matmul = std::make_shared<OneDnnMatmul>(product);
  if (std::string reason = matmul->complete(); !reason.empty()) return Rejection{std::move(reason)};
  return std::shared_ptr<const OneDnnMatmul>(matmul);
}

// Makes the library's objects. Returns why the library rejects them; empty if it does not.
std::string OneDnnMatmul::complete() {
  if (!a_.is_valid() || !b_.is_valid() || !c_.is_valid() || !factor_.is_valid() || !bias_.is_valid())
    return "it rejects the strides";
  const OneDnnObject how = attributes();
  if (!how) return "it rejects what follows the product";
  descriptor_ = primitive_descriptor(how.get());
  const char* name = nullptr;
  if (!descriptor_ || onednn().primitive_desc_query(descriptor_.get(), kOneDnnQueryImplementation, 0, &name) != 0)
    return "it has no such product for this processor";
  implementation_ = name;
  if (implementation_.find("ref") != std::string::npos)
    return "it has only a slow reference of such a product for this processor";
  primitive_ = made([&](void** object) { return onednn().primitive_create(object, descriptor_.get()); },
                    onednn().primitive_destroy);
  if (!primitive_) return "it cannot generate code";
  const void* scratchpad = onednn().primitive_desc_query_md(descriptor_.get(), kOneDnnQueryScratchpad, 0);
  const auto bytes = static_cast<int64_t>(onednn().memory_desc_get_size(scratchpad));
  scratch_bytes_ = (bytes + kOneDnnAlignment - 1) / kOneDnnAlignment * kOneDnnAlignment;
  return "";
}

// None if the library rejects them. Its environment variables must not make float32 less exact.
OneDnnObject OneDnnMatmul::attributes() const {
  OneDnnObject how = made(onednn().primitive_attr_create, onednn().primitive_attr_destroy);
  const OneDnnObject post_ops = made(onednn().post_ops_create, onednn().post_ops_destroy);
  if (!how || !post_ops) return no_object();
  const auto append = [&](int algorithm, const OneDnnDescriptor& operand) {
    return onednn().post_ops_append_binary(post_ops.get(), algorithm, operand.get()) == 0;
  };
  if (product_.scaled && !append(kOneDnnBinaryMultiply, factor_)) return no_object();
  if (product_.has_bias && !append(kOneDnnBinaryAdd, bias_)) return no_object();
  if (product_.activation != Activation::none && !append_function(post_ops.get(), product_.activation))
    return no_object();
  if (product_.adds && !append(kOneDnnBinaryAdd, c_)) return no_object();
  if (onednn().primitive_attr_set_post_ops(how.get(), post_ops.get()) != 0 ||
      onednn().primitive_attr_set_fpmath_mode(how.get(), kOneDnnStrictMath) != 0 ||
      onednn().primitive_attr_set_scratchpad_mode(how.get(), kOneDnnUserScratchpad) != 0)
    return no_object();
  if (onednn().primitive_attr_set_deterministic != nullptr &&
      onednn().primitive_attr_set_deterministic(how.get(), 1) != 0)
    return no_object();
  return how;
}

OneDnnObject OneDnnMatmul::primitive_descriptor(const void* attributes) const {
  constexpr size_t kProductBytes = 8192;  // version 2's struct has fewer
  alignas(std::max_align_t) std::array<std::byte, kProductBytes> product{};
  if (onednn().major == 2 && onednn().matmul_desc_init(product.data(), a_.get(), b_.get(), nullptr, c_.get()) != 0)
    return no_object();
  const auto make = [&](void** object) {
    return onednn().major == 2
               ? onednn().primitive_desc_create(object, product.data(), attributes, onednn().engine, nullptr)
               : onednn().matmul_primitive_desc_create(object, onednn().engine, a_.get(), b_.get(), nullptr, c_.get(),
                                                       attributes);
  };
  return made(make, onednn().primitive_desc_destroy);
}

OneDnnCall::OneDnnCall(const OneDnnMatmul& matmul, float factor, char* scratch)
    : matmul_(matmul),
      factor_(factor),
      stream_(made([](void** object) { return onednn().stream_create(object, onednn().engine, kOneDnnInOrder); },
                   onednn().stream_destroy)) {
  require_success(stream_ != nullptr);
  a_ = add(kOneDnnA, matmul.a_.get(), nullptr);
  b_ = add(kOneDnnB, matmul.b_.get(), nullptr);
  c_ = add(kOneDnnC, matmul.c_.get(), nullptr);
  int post_op = 0;
  if (matmul.product_.scaled) add(onednn().post_op(post_op++), matmul.factor_.get(), &factor_);
  if (matmul.product_.has_bias) bias_ = add(onednn().post_op(post_op++), matmul.bias_.get(), nullptr);
  if (matmul.product_.activation != Activation::none) ++post_op;
  if (matmul.product_.adds) added_ = add(onednn().post_op(post_op), matmul.c_.get(), nullptr);
  if (matmul.scratch_bytes() > 0) {
    const void* scratchpad = onednn().primitive_desc_query_md(matmul.descriptor_.get(), kOneDnnQueryScratchpad, 0);
    add(kOneDnnScratchpad, scratchpad, scratch);
  }
}

void* OneDnnCall::add(int number, const void* descriptor, void* data) {
  memory_.push_back(
      made([&](void** object) { return onednn().memory_create(object, descriptor, onednn().engine, data); },
           onednn().memory_destroy));
  require_success(memory_.back() != nullptr);
  arguments_.push_back({number, memory_.back().get()});
  return memory_.back().get();
}

void OneDnnCall::run(const void* a, const void* b, void* c, const void* added, const void* bias) {
  const auto place = [](void* memory, const void* data) {
    return memory == nullptr || onednn().memory_set_data_handle(memory, const_cast<void*>(data)) == 0;
  };
  require_success(place(a_, a) && place(b_, b) && place(c_, c) && place(added_, added) && place(bias_, bias));
  const int count = static_cast<int>(arguments_.size());
  require_success(onednn().primitive_execute(matmul_.primitive_.get(), stream_.get(), count, arguments_.data()) == 0 &&
                  onednn().stream_wait(stream_.get()) == 0);
}

const std::string& onednn_implementation(StoredType type) {
  static const std::map<StoredType, std::string> kImplementations = [] {
    constexpr int64_t kLarge = 256;
    constexpr OneDnnMatrix kMatrix = {kLarge, kLarge, kLarge, 1};
    std::map<StoredType, std::string> found;
    for (const StoredType each : {StoredType::f32, StoredType::f16, StoredType::bf16}) {
      const auto matmul = OneDnnMatmul::make({each, kMatrix, kMatrix, kMatrix});
      if (matmul) found[each] = (*matmul)->implementation();
    }
    return found;
  }();
  static const std::string kNone;
  const auto found = kImplementations.find(type);
  return found == kImplementations.end() ? kNone : found->second;
}

}  // namespace millrace
