// oneDNN, loaded on first use, version 2 or 3 of its C API. Its headers are not needed: the functions and numbers that
// are used are declared here. Test: tests/device/onednn_test.cpp
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/blas_library.h"

namespace millrace {

// An argument of a primitive (dnnl_exec_arg_t).
struct OneDnnArgument {
  int number = 0;
  void* memory = nullptr;
};

// Objects of the library are void*; a function makes one in its first argument. All but those that return a size or a
// descriptor return a status, 0 if all is well.
struct OneDnn {
  int major = 0;           // version 2 or 3
  void* engine = nullptr;  // the CPU

  // The number of the second operand of a binary post-op (DNNL_ARG_ATTR_MULTIPLE_POST_OP | DNNL_ARG_SRC_1).
  int post_op(int position) const { return ((major == 2 ? 16384 : 32768) * (position + 1)) | 2; }

  int (*engine_create)(void** engine, int kind, size_t index) = nullptr;
  int (*stream_create)(void** stream, void* engine, unsigned flags) = nullptr;
  int (*stream_wait)(void* stream) = nullptr;
  int (*stream_destroy)(void* stream) = nullptr;
  int (*memory_create)(void** memory, const void* descriptor, void* engine, void* data) = nullptr;
  int (*memory_set_data_handle)(void* memory, void* data) = nullptr;
  int (*memory_destroy)(void* memory) = nullptr;
  size_t (*memory_desc_get_size)(const void* descriptor) = nullptr;
  int (*primitive_attr_create)(void** attributes) = nullptr;
  int (*primitive_attr_destroy)(void* attributes) = nullptr;
  int (*primitive_attr_set_scratchpad_mode)(void* attributes, int mode) = nullptr;
  int (*primitive_attr_set_fpmath_mode)(void* attributes, int mode) = nullptr;
  int (*primitive_attr_set_post_ops)(void* attributes, const void* post_ops) = nullptr;
  int (*post_ops_create)(void** post_ops) = nullptr;
  int (*post_ops_destroy)(void* post_ops) = nullptr;
  int (*post_ops_append_binary)(void* post_ops, int algorithm, const void* descriptor) = nullptr;
  int (*primitive_desc_query)(const void* primitive_descriptor, int what, int index, void* result) = nullptr;
  const void* (*primitive_desc_query_md)(const void* primitive_descriptor, int what, int index) = nullptr;
  int (*primitive_desc_destroy)(void* primitive_descriptor) = nullptr;
  int (*primitive_create)(void** primitive, const void* primitive_descriptor) = nullptr;
  int (*primitive_execute)(const void* primitive, void* stream, int count, const OneDnnArgument* arguments) = nullptr;
  int (*primitive_destroy)(void* primitive) = nullptr;

  // Version 2 only: descriptors of memory and of products are structs, which the caller owns.
  int (*memory_desc_init_by_strides)(void* descriptor, int axes, const int64_t* extents, int type,
                                     const int64_t* strides) = nullptr;
  int (*post_ops_append_scaled_eltwise)(void* post_ops, float scale, int function, float alpha, float beta) = nullptr;
  int (*matmul_desc_init)(void* product, const void* a, const void* b, const void* bias, const void* c) = nullptr;
  int (*primitive_desc_create)(void** primitive_descriptor, const void* product, const void* attributes, void* engine,
                               const void* hint) = nullptr;

  // Version 3 only.
  int (*memory_desc_create_with_strides)(void** descriptor, int axes, const int64_t* extents, int type,
                                         const int64_t* strides) = nullptr;
  int (*memory_desc_destroy)(void* descriptor) = nullptr;
  int (*post_ops_append_eltwise)(void* post_ops, int function, float alpha, float beta) = nullptr;
  int (*matmul_primitive_desc_create)(void** primitive_descriptor, void* engine, const void* a, const void* b,
                                      const void* bias, const void* c, const void* attributes) = nullptr;
  int (*primitive_attr_set_deterministic)(void* attributes, int value) = nullptr;  // null before 3.5
};

// An elementwise function's numbers in the two versions.
struct OneDnnFunction {
  int in_version_2 = 0;
  int in_version_3 = 0;
};
inline constexpr OneDnnFunction kOneDnnRelu = {0x1f, 0x20};
inline constexpr OneDnnFunction kOneDnnGeluByTanh = {0xcf, 0x2b};
inline constexpr OneDnnFunction kOneDnnGeluByErf = {0x30, 0x31};

// The numbers of dnnl_types.h that versions 2 and 3 share.
inline constexpr int kOneDnnFloat16 = 1;
inline constexpr int kOneDnnBfloat16 = 2;
inline constexpr int kOneDnnFloat32 = 3;
inline constexpr int kOneDnnUserScratchpad = 1;
inline constexpr int kOneDnnStrictMath = 0;
inline constexpr unsigned kOneDnnInOrder = 1;
inline constexpr int kOneDnnBinaryAdd = 0x1fff0;
inline constexpr int kOneDnnBinaryMultiply = 0x1fff1;
inline constexpr int kOneDnnQueryImplementation = 8;
inline constexpr int kOneDnnQueryScratchpad = 136;
inline constexpr int kOneDnnA = 1;   // DNNL_ARG_SRC
inline constexpr int kOneDnnB = 33;  // DNNL_ARG_WEIGHTS
inline constexpr int kOneDnnC = 17;  // DNNL_ARG_DST
inline constexpr int kOneDnnScratchpad = 80;

// The variable that names the file to load instead of the installed one.
inline constexpr const char* kOneDnnVariable = "MILLRACE_ONEDNN";

// Contains null pointers unless onednn_info reports the library as present.
const OneDnn& onednn();
const BlasInfo& onednn_info();

}  // namespace millrace
