#include "device/cuda/cublaslt.h"

#include <bit>
#include <cstdint>
#include <utility>

#include "base/text.h"
#include "device/cuda/shared_library.h"

namespace millrace {
namespace {

void find_all(SharedLibrary& library, CublasLt& lt) {
  library.find("cublasLtGetVersion", lt.get_version);
  library.find("cublasLtGetStatusName", lt.get_status_name);
  library.find("cublasLtGetStatusString", lt.get_status_string);
  library.find("cublasLtCreate", lt.create);
  library.find("cublasLtDestroy", lt.destroy);
  library.find("cublasLtMatrixLayoutCreate", lt.layout_create);
  library.find("cublasLtMatrixLayoutDestroy", lt.layout_destroy);
  library.find("cublasLtMatrixLayoutSetAttribute", lt.layout_set);
  library.find("cublasLtMatmulDescCreate", lt.desc_create);
  library.find("cublasLtMatmulDescDestroy", lt.desc_destroy);
  library.find("cublasLtMatmulDescSetAttribute", lt.desc_set);
  library.find("cublasLtMatmulPreferenceCreate", lt.preference_create);
  library.find("cublasLtMatmulPreferenceDestroy", lt.preference_destroy);
  library.find("cublasLtMatmulPreferenceSetAttribute", lt.preference_set);
  library.find("cublasLtMatmulAlgoGetHeuristic", lt.algo_get_heuristic);
  library.find("cublasLtMatmulAlgoGetIds", lt.algo_get_ids);
  library.find("cublasLtMatmulAlgoInit", lt.algo_init);
  library.find("cublasLtMatmulAlgoCheck", lt.algo_check);
  library.find("cublasLtMatmulAlgoCapGetAttribute", lt.algo_cap_get);
  library.find("cublasLtMatmulAlgoConfigSetAttribute", lt.algo_config_set);
  library.find("cublasLtMatmulAlgoConfigGetAttribute", lt.algo_config_get);
  library.find("cublasLtMatmul", lt.matmul);
}

Result<CublasLt> load_cublaslt() {
  constexpr const char* kRemedy =
      "install cuBLAS 12 or 13 (on Debian and Ubuntu NVIDIA's libcublas-13-0, by pip nvidia-cublas), or set CUDA_HOME "
      "to "
      "where CUDA is";
  Result<SharedLibrary> library = SharedLibrary::open({"libcublasLt.so.13", "libcublasLt.so.12"}, toolkit_folders());
  if (!library)
    return Error::make(ErrorKind::unavailable,
                       concat("cuBLASLt, which multiplies matrices on GPUs, is missing: ",
                              library.error().diagnostics.front().message),
                       kRemedy);
  CublasLt lt;
  find_all(*library, lt);
  if (library->missing().empty()) return lt;
  return Error::make(ErrorKind::unavailable, concat("cuBLASLt has no function ", library->missing()), kRemedy);
}

// An attribute of the size that the header states for it.
template <class Set, class Object, class Which, class Value>
cublasStatus_t set_attribute(Set set, Object* object, Which which, const Value& value) {
  return set(object, which, &value, sizeof(value));
}

}  // namespace

Result<Done> CublasLt::check(cublasStatus_t status, const std::string& what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return Done{};
  return Error::make(ErrorKind::failed, concat("cuBLASLt cannot ", what, ": ", get_status_name(status), " (",
                                               get_status_string(status), ")"));
}

std::string CublasLt::version() const {
  const auto version = static_cast<long>(get_version());
  return concat(version_text(version, 10000, 100), ".", version % 100);
}

Result<const CublasLt*> cublaslt_library() {
  static const Result<CublasLt> kLibrary = load_cublaslt();
  if (!kLibrary) return kLibrary.error();
  return &*kLibrary;
}

GpuSoftware inspect_cublaslt() {
  const Result<const CublasLt*> library = cublaslt_library();
  if (!library) return missing_software(library.error());
  return {(*library)->version(), SharedLibrary::path_of((*library)->matmul), ""};
}

Result<std::shared_ptr<cublasLtContext>> open_cublaslt(const CublasLt& library,
                                                       const std::shared_ptr<CudaContext>& context) {
  const CurrentContext current(*context);
  cublasLtHandle_t handle = nullptr;
  const Result<Done> opened = library.check(library.create(&handle), "start");
  if (!opened) return opened.error();
  return std::shared_ptr<cublasLtContext>(handle, [&library, context](cublasLtHandle_t made) {
    const CurrentContext its_own(*context);
    library.destroy(made);
  });
}

// ---- Descriptors ----

Result<CublasLtProduct> CublasLtProduct::make(const CublasLt& library, std::shared_ptr<cublasLtContext> handle,
                                              const GemmCall& call) {
  const Result<ColumnMajorProduct> shape = column_major(call);
  if (!shape) return shape.error();
  CublasLtProduct product(library, std::move(handle), *shape);
  product.k_ = call.k;
  product.tensor_cores_ = call.tensor_cores;
  product.activation_ = call.activation;
  product.has_auxiliary_ = call.has_auxiliary;
  product.adds_ = call.adds;
  if (const Result<Done> typed = product.set_types(call); !typed) return typed.error();
  if (const Result<Done> made = product.make_desc(); !made) return made.error();
  if (const Result<Done> set = product.set_epilogue(); !set) return set.error();
  Result<Layout> a = product.make_layout(shape->a);
  Result<Layout> b = product.make_layout(shape->b);
  Result<Layout> c = product.make_layout(shape->c);
  for (const Result<Layout>* layout : {&a, &b, &c})
    if (!*layout) return layout->error();
  product.a_ = std::move(*a);
  product.b_ = std::move(*b);
  product.c_ = std::move(*c);
  return product;
}

Result<Done> CublasLtProduct::set_types(const GemmCall& call) {
  switch (call.type) {
    case StoredType::f16:
    case StoredType::bf16:
      type_ = call.type == StoredType::f16 ? CUDA_R_16F : CUDA_R_16BF;
      // Halves are summed as floats: reductions that round partial sums to halves are not acceptable.
      reductions_ = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
      return Done{};
    case StoredType::f32:
      if (call.tensor_cores) compute_ = CUBLAS_COMPUTE_32F_FAST_TF32;
      return Done{};
    case StoredType::f64:
      type_ = CUDA_R_64F;
      scale_ = CUDA_R_64F;
      compute_ = CUBLAS_COMPUTE_64F;
      return Done{};
    default: return Error::make(ErrorKind::failed, concat("cuBLASLt does not multiply ", name_of(call.type)));
  }
}

Result<Done> CublasLtProduct::make_desc() {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasStatus_t status = library_->desc_create(&desc, compute_, scale_);
  if (status == CUBLAS_STATUS_SUCCESS) {
    desc_ = Desc(desc, Destroy{library_});
    const auto operation = [](const ColumnMajor& matrix) {
      return static_cast<int32_t>(matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    };
    status = set_attribute(library_->desc_set, desc, CUBLASLT_MATMUL_DESC_TRANSA, operation(shape_.a));
    if (status == CUBLAS_STATUS_SUCCESS)
      status = set_attribute(library_->desc_set, desc, CUBLASLT_MATMUL_DESC_TRANSB, operation(shape_.b));
  }
  return library_->check(status, "describe a product");
}

cublasLtEpilogue_t CublasLtProduct::epilogue() const {
  const bool bias = shape_.vector == ColumnVector::bias;
  if (shape_.vector == ColumnVector::gradient_of_a) return CUBLASLT_EPILOGUE_BGRADA;
  if (shape_.vector == ColumnVector::gradient_of_b) return CUBLASLT_EPILOGUE_BGRADB;
  switch (activation_) {
    case Activation::none: return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Activation::relu: return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Activation::gelu:
      if (has_auxiliary_) return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case Activation::gelu_gradient: return CUBLASLT_EPILOGUE_DGELU;
    case Activation::exact_gelu: break;  // column_major refuses it
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

// Must be set before algorithms are queried: the set of algorithms depends on it, and on the alignment of the vectors
// and auxiliary matrix. The addresses are therefore placeholders that nothing reads, with the smallest alignment that
// may occur.
Result<Done> CublasLtProduct::set_epilogue() {
  if (epilogue() == CUBLASLT_EPILOGUE_DEFAULT) return Done{};
  const auto set = [&](cublasLtMatmulDescAttributes_t which, const auto& value) {
    return library_->check(set_attribute(library_->desc_set, desc_.get(), which, value), "describe an epilogue");
  };
  const auto pointer = [](int64_t alignment) { return std::bit_cast<const void*>(static_cast<uintptr_t>(alignment)); };
  Result<Done> done = set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue()));
  if (shape_.vector != ColumnVector::none) {
    if (done) done = set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, shape_.vector_batch_stride);
    if (done) done = set_pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer(shape_.vector_alignment));
  }
  if (has_auxiliary_) {
    if (done) done = set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape_.c.leading);
    if (done) done = set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, shape_.c.batch_stride);
    if (done) done = set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, static_cast<int32_t>(type_));
    if (done) done = set_pointer(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointer(shape_.c.pointer_alignment));
  }
  return done;
}

Result<Done> CublasLtProduct::set_pointer(cublasLtMatmulDescAttributes_t which, const void* pointer) const {
  return library_->check(set_attribute(library_->desc_set, desc_.get(), which, pointer), "describe an epilogue");
}

Result<CublasLtProduct::Layout> CublasLtProduct::make_layout(const ColumnMajor& matrix) const {
  cublasLtMatrixLayout_t layout = nullptr;
  cublasStatus_t status = library_->layout_create(&layout, type_, static_cast<uint64_t>(matrix.rows),
                                                  static_cast<uint64_t>(matrix.columns), matrix.leading);
  Layout made(status == CUBLAS_STATUS_SUCCESS ? layout : nullptr, Destroy{library_});
  if (status == CUBLAS_STATUS_SUCCESS && shape_.batch > 1) {
    status = set_attribute(library_->layout_set, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                           static_cast<int32_t>(shape_.batch));
    if (status == CUBLAS_STATUS_SUCCESS)
      status = set_attribute(library_->layout_set, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                             int64_t{matrix.batch_stride});
  }
  if (const Result<Done> done = library_->check(status, "describe a matrix"); !done) return done.error();
  return made;
}

Result<CublasLtProduct::Preference> CublasLtProduct::make_preference() const {
  cublasLtMatmulPreference_t preference = nullptr;
  if (const Result<Done> done = library_->check(library_->preference_create(&preference), "create search preferences");
      !done)
    return done.error();
  Preference made(preference, Destroy{library_});
  const auto alignment = [](const ColumnMajor& matrix) { return static_cast<uint32_t>(matrix.pointer_alignment); };
  const uint64_t allowed =
      tensor_cores_ ? ~uint64_t{0} : ~static_cast<uint64_t>(CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK);
  const auto set = library_->preference_set;
  for (const cublasStatus_t status :
       {set_attribute(set, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kLargestWorkspace}),
        set_attribute(set, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions_),
        set_attribute(set, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(shape_.a)),
        set_attribute(set, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(shape_.b)),
        set_attribute(set, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(shape_.c)),
        set_attribute(set, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(shape_.c)),
        set_attribute(set, preference, CUBLASLT_MATMUL_PREF_IMPL_MASK, allowed)})
    if (const Result<Done> done = library_->check(status, "set a search preference"); !done) return done.error();
  return made;
}

// ---- Algorithms ----

Result<std::vector<int>> CublasLtProduct::algorithm_ids() const {
  constexpr int kMost = 1024;
  std::vector<int> ids(kMost);
  int count = 0;
  const Result<Done> done = library_->check(
      library_->algo_get_ids(handle_.get(), compute_, scale_, type_, type_, type_, type_, kMost, ids.data(), &count),
      "list its algorithms");
  if (!done) return done.error();
  ids.resize(static_cast<size_t>(count));
  return ids;
}

Result<cublasLtMatmulAlgo_t> CublasLtProduct::initialised(int id) const {
  cublasLtMatmulAlgo_t algorithm{};
  const Result<Done> done =
      library_->check(library_->algo_init(handle_.get(), compute_, scale_, type_, type_, type_, type_, id, &algorithm),
                      concat("use its algorithm ", id));
  if (!done) return done.error();
  return algorithm;
}

Result<cublasLtMatmulAlgo_t> CublasLtProduct::configured(const GemmAlgorithm& algorithm) const {
  Result<cublasLtMatmulAlgo_t> made = initialised(algorithm.id);
  if (!made) return made;
  // Shapes that are left to the library need no attribute, and older libraries have none for them.
  const auto set = [&](cublasLtMatmulAlgoConfigAttributes_t which, auto value) {
    if (sizeof(value) == sizeof(uint16_t) && value == 0) return CUBLAS_STATUS_SUCCESS;
    return set_attribute(library_->algo_config_set, &*made, which, value);
  };
  for (const cublasStatus_t status :
       {set(CUBLASLT_ALGO_CONFIG_TILE_ID, static_cast<uint32_t>(algorithm.tile)),
        set(CUBLASLT_ALGO_CONFIG_STAGES_ID, static_cast<uint32_t>(algorithm.stages)),
        set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, static_cast<int32_t>(algorithm.split_k)),
        set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, static_cast<uint32_t>(algorithm.reduction)),
        set(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, static_cast<uint32_t>(algorithm.swizzle)),
        set(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, static_cast<uint32_t>(algorithm.custom)),
        set(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, static_cast<uint16_t>(algorithm.inner_shape)),
        set(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, static_cast<uint16_t>(algorithm.cluster))})
    if (const Result<Done> done = library_->check(status, concat("configure its algorithm ", algorithm.id)); !done)
      return done.error();
  return made;
}

bool CublasLtProduct::admits(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulHeuristicResult_t& result) const {
  result = {};
  return library_->algo_check(handle_.get(), desc_.get(), a_.get(), b_.get(), c_.get(), c_.get(), &algorithm,
                              &result) == CUBLAS_STATUS_SUCCESS &&
         result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= static_cast<size_t>(kLargestWorkspace);
}

Result<std::vector<cublasLtMatmulHeuristicResult_t>> CublasLtProduct::heuristic(int count) const {
  const Result<Preference> preference = make_preference();
  if (!preference) return preference.error();
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(count));
  int returned = 0;
  const cublasStatus_t status =
      library_->algo_get_heuristic(handle_.get(), desc_.get(), a_.get(), b_.get(), c_.get(), c_.get(),
                                   preference->get(), count, found.data(), &returned);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::vector<cublasLtMatmulHeuristicResult_t>();
  if (const Result<Done> done = library_->check(status, "choose an algorithm"); !done) return done.error();
  found.resize(static_cast<size_t>(returned));
  std::erase_if(found, [](const auto& one) { return one.state != CUBLAS_STATUS_SUCCESS; });
  return found;
}

GemmAlgorithm CublasLtProduct::attributes(const cublasLtMatmulAlgo_t& algorithm) const {
  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t which, auto value) {
    size_t written = 0;
    const cublasStatus_t status = library_->algo_config_get(&algorithm, which, &value, sizeof(value), &written);
    return status == CUBLAS_STATUS_SUCCESS ? static_cast<int>(value) : 0;
  };
  GemmAlgorithm read;
  read.id = get(CUBLASLT_ALGO_CONFIG_ID, int32_t{0});
  read.tile = get(CUBLASLT_ALGO_CONFIG_TILE_ID, uint32_t{0});
  read.stages = get(CUBLASLT_ALGO_CONFIG_STAGES_ID, uint32_t{0});
  read.split_k = get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, int32_t{0});
  read.reduction = get(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, uint32_t{0});
  read.swizzle = get(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, uint32_t{0});
  read.custom = get(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, uint32_t{0});
  read.inner_shape = get(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, uint16_t{0});
  read.cluster = get(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, uint16_t{0});
  return read;
}

std::vector<uint32_t> CublasLtProduct::capabilities(const cublasLtMatmulAlgo_t& algorithm,
                                                    cublasLtMatmulAlgoCapAttributes_t which) const {
  size_t bytes = 0;
  if (library_->algo_cap_get(&algorithm, which, nullptr, 0, &bytes) != CUBLAS_STATUS_SUCCESS || bytes == 0) return {};
  std::vector<uint32_t> values(bytes / sizeof(uint32_t));
  const size_t room = values.size() * sizeof(uint32_t);
  if (library_->algo_cap_get(&algorithm, which, values.data(), room, &bytes) != CUBLAS_STATUS_SUCCESS) return {};
  values.resize(bytes / sizeof(uint32_t));
  return values;
}

// ---- Running ----

Result<Done> CublasLtProduct::multiply(double alpha, const Operands& operands, const cublasLtMatmulAlgo_t& algorithm,
                                       void* workspace, size_t workspace_bytes, void* stream) const {
  const void* a = operands.a;
  const void* b = operands.b;
  if (shape_.swapped) std::swap(a, b);
  if (shape_.vector != ColumnVector::none)
    if (Result<Done> set = set_pointer(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.vector); !set) return set;
  if (has_auxiliary_)
    if (Result<Done> set = set_pointer(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.auxiliary); !set) return set;
  // The library's C is the added matrix, and its D the result.
  const double wide_beta = adds_ ? 1 : 0;
  const auto narrow_alpha = static_cast<float>(alpha);
  const float narrow_beta = adds_ ? 1 : 0;
  const bool wide = scale_ == CUDA_R_64F;
  const void* alpha_at = wide ? static_cast<const void*>(&alpha) : &narrow_alpha;
  const void* beta_at = wide ? static_cast<const void*>(&wide_beta) : &narrow_beta;
  return library_->check(library_->matmul(handle_.get(), desc_.get(), alpha_at, a, a_.get(), b, b_.get(), beta_at,
                                          adds_ ? operands.added : operands.c, c_.get(), operands.c, c_.get(),
                                          &algorithm, workspace, workspace_bytes, static_cast<cudaStream_t>(stream)),
                         "multiply");
}

}  // namespace millrace
