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

using DescriptorType = int;
inline constexpr DescriptorType kPointwise = 0;
inline constexpr DescriptorType kEngine = 2;
inline constexpr DescriptorType kEngineConfig = 3;
inline constexpr DescriptorType kEngineHeuristics = 4;
inline constexpr DescriptorType kExecutionPlan = 5;
inline constexpr DescriptorType kOperationPointwise = 13;
inline constexpr DescriptorType kOperationGraph = 15;
inline constexpr DescriptorType kVariantPack = 16;
inline constexpr DescriptorType kTensor = 17;
inline constexpr DescriptorType kMatmul = 18;
inline constexpr DescriptorType kOperationMatmul = 19;
inline constexpr DescriptorType kReduction = 21;
inline constexpr DescriptorType kOperationReduction = 22;
inline constexpr DescriptorType kOperationReshape = 31;

using Attribute = int;
inline constexpr Attribute kPointwiseMode = 0;
inline constexpr Attribute kPointwiseMathPrecision = 1;
inline constexpr Attribute kPointwiseAxis = 9;
inline constexpr Attribute kHeuristicsMode = 200;
inline constexpr Attribute kHeuristicsGraph = 201;
inline constexpr Attribute kHeuristicsResults = 202;
inline constexpr Attribute kConfigEngine = 300;
inline constexpr Attribute kPlanHandle = 400;
inline constexpr Attribute kPlanEngineConfig = 401;
inline constexpr Attribute kPlanWorkspaceSize = 402;
inline constexpr Attribute kOperationPointwiseDescriptor = 750;
inline constexpr Attribute kOperationPointwiseX = 751;
inline constexpr Attribute kOperationPointwiseB = 752;
inline constexpr Attribute kOperationPointwiseY = 753;
inline constexpr Attribute kOperationPointwiseT = 758;
inline constexpr Attribute kGraphHandle = 800;
inline constexpr Attribute kGraphOperations = 801;
inline constexpr Attribute kTensorAlignment = 900;
inline constexpr Attribute kTensorDataType = 901;
inline constexpr Attribute kTensorDimensions = 902;
inline constexpr Attribute kTensorStrides = 903;
inline constexpr Attribute kTensorId = 906;
inline constexpr Attribute kTensorIsVirtual = 907;
inline constexpr Attribute kTensorIsByValue = 908;
inline constexpr Attribute kPackIds = 1000;
inline constexpr Attribute kPackPointers = 1001;
inline constexpr Attribute kPackWorkspace = 1003;
inline constexpr Attribute kEngineNumericalNote = 1303;
inline constexpr Attribute kMatmulComputeType = 1500;
inline constexpr Attribute kOperationMatmulA = 1520;
inline constexpr Attribute kOperationMatmulB = 1521;
inline constexpr Attribute kOperationMatmulC = 1522;
inline constexpr Attribute kOperationMatmulDescriptor = 1523;
inline constexpr Attribute kReductionOperator = 1600;
inline constexpr Attribute kReductionComputeType = 1601;
inline constexpr Attribute kOperationReductionX = 1610;
inline constexpr Attribute kOperationReductionY = 1611;
inline constexpr Attribute kOperationReductionDescriptor = 1612;
inline constexpr Attribute kOperationReshapeX = 2200;
inline constexpr Attribute kOperationReshapeY = 2201;

using AttributeType = int;
inline constexpr AttributeType kTypeHandle = 0;
inline constexpr AttributeType kTypeDataType = 1;
inline constexpr AttributeType kTypeBoolean = 2;
inline constexpr AttributeType kTypeInt64 = 3;
inline constexpr AttributeType kTypeVoidPointer = 6;
inline constexpr AttributeType kTypeHeuristicsMode = 8;
inline constexpr AttributeType kTypeNumericalNote = 11;
inline constexpr AttributeType kTypePointwiseMode = 14;
inline constexpr AttributeType kTypeDescriptor = 15;
inline constexpr AttributeType kTypeReductionOperator = 18;

using DataType = int;
inline constexpr DataType kFloat = 0;
inline constexpr DataType kHalf = 2;
inline constexpr DataType kInt32 = 4;
inline constexpr DataType kBfloat16 = 9;
inline constexpr DataType kBoolean = 11;

using PointwiseMode = int;
inline constexpr PointwiseMode kAdd = 0;
inline constexpr PointwiseMode kMultiply = 1;
inline constexpr PointwiseMode kDivide = 6;
inline constexpr PointwiseMode kSubtract = 9;
inline constexpr PointwiseMode kExponential = 13;
inline constexpr PointwiseMode kLogarithm = 15;
inline constexpr PointwiseMode kGreaterOrEqual = 303;
inline constexpr PointwiseMode kGenerateIndex = 501;
inline constexpr PointwiseMode kSelect = 601;

using ReductionOperator = int;
inline constexpr ReductionOperator kSum = 0;
inline constexpr ReductionOperator kMaximum = 3;
using HeuristicsMode = int;
inline constexpr HeuristicsMode kHeuristicsA = 3;
using NumericalNote = int;
inline constexpr NumericalNote kNondeterministic = 4;
inline constexpr NumericalNote kNumericalNotes = 32;
using Status = int;
inline constexpr Status kSuccess = 0;
inline constexpr Status kNotSupported = 3000;
inline constexpr Status kInternalError = 4000;

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
