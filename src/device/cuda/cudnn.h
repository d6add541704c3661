// cuDNN 9: the functions and numbers of its C interface for graphs that Millrace uses. cuDNN's headers are not needed.
// Test: tests/device/cuda/cudnn_attention_test.cpp
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "device/cuda/context.h"
#include "device/gpu.h"

struct cudnnContext;  // cuDNN's own name

namespace millrace {

// Values of cuDNN's enumerations, by its names.
namespace cudnn {

enum DescriptorType : int {
  kPointwise = 0,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kOperationPointwise = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kOperationMatmul = 19,
  kReduction = 21,
  kOperationReduction = 22,
  kOperationReshape = 31,
};

enum Attribute : int {
  kPointwiseMode = 0,
  kPointwiseMathPrecision = 1,
  kPointwiseAxis = 9,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanEngineConfig = 401,
  kPlanWorkspaceSize = 402,
  kOperationPointwiseDescriptor = 750,
  kOperationPointwiseX = 751,
  kOperationPointwiseB = 752,
  kOperationPointwiseY = 753,
  kOperationPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNote = 1303,
  kMatmulComputeType = 1500,
  kOperationMatmulA = 1520,
  kOperationMatmulB = 1521,
  kOperationMatmulC = 1522,
  kOperationMatmulDescriptor = 1523,
  kReductionOperator = 1600,
  kReductionComputeType = 1601,
  kOperationReductionX = 1610,
  kOperationReductionY = 1611,
  kOperationReductionDescriptor = 1612,
  kOperationReshapeX = 2200,
  kOperationReshapeY = 2201,
};

enum AttributeType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeVoidPointer = 6,
  kTypeHeuristicsMode = 8,
  kTypeNumericalNote = 11,
  kTypePointwiseMode = 14,
  kTypeDescriptor = 15,
  kTypeReductionOperator = 18,
};

enum DataType : int { kFloat = 0, kHalf = 2, kInt32 = 4, kBfloat16 = 9, kBoolean = 11 };

enum PointwiseMode : int {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExponential = 13,
  kLogarithm = 15,
  kGreaterOrEqual = 303,
  kGenerateIndex = 501,
  kSelect = 601,
};

enum ReductionOperator : int { kSum = 0, kMaximum = 3 };
enum HeuristicsMode : int { kHeuristicsA = 3 };
enum NumericalNote : int { kNondeterministic = 4, kNumericalNotes = 32 };
enum Status : int { kSuccess = 0, kNotSupported = 3000, kInternalError = 4000 };

}  // namespace cudnn

struct Cudnn {
  size_t (*get_version)() = nullptr;
  const char* (*get_error_string)(int status) = nullptr;
  void (*get_last_error_string)(char* message, size_t bytes) = nullptr;
  int (*create)(cudnnContext** handle) = nullptr;
  int (*destroy)(cudnnContext* handle) = nullptr;
  int (*set_stream)(cudnnContext* handle, void* stream) = nullptr;
  int (*create_descriptor)(int type, void** descriptor) = nullptr;
  int (*destroy_descriptor)(void* descriptor) = nullptr;
  int (*finalize)(void* descriptor) = nullptr;
  int (*set_attribute)(void* descriptor, int name, int type, int64_t count, const void* elements) = nullptr;
  int (*get_attribute)(const void* descriptor, int name, int type, int64_t requested, int64_t* count,
                       void* elements) = nullptr;
  int (*execute)(cudnnContext* handle, void* plan, void* pack) = nullptr;

  Result<Done> check(int status, const std::string& what) const;
  std::string version() const;  // "9.19.0"
};

// Loaded once; unavailable if it is missing.
Result<const Cudnn*> cudnn_library();
GpuSoftware inspect_cudnn();

// A library handle that keeps its context alive.
Result<std::shared_ptr<cudnnContext>> open_cudnn(const Cudnn& library, const std::shared_ptr<CudaContext>& context);

}  // namespace millrace
