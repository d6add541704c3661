// Kernels that write values into tensors, read them, and compare them. Compiled after cuda_hardware.h and
// cuda_prelude.h. They describe layouts by strides and share no code with the kernels that they check. Test:
// tests/measure/gpu_check_kernels_test.cpp
//
// Arguments: number of elements, rank, extents, strides, storage type, for bits the length of a run, and one number
// more.
#pragma once

namespace mr {

constexpr int kMostRank = 12;
constexpr int kNumbers = 2 + 2 * kMostRank + 3;
using CheckArguments = Arguments<4, kNumbers, 1>;

enum Stored { kF64, kF32, kF16, kBf16, kBoolean, kBits, kI32, kI64 };

MR_DEVICE u64 elements_of(const CheckArguments& args) { return static_cast<u64>(args.values[0]); }
MR_DEVICE int stored_as(const CheckArguments& args) { return static_cast<int>(args.values[2 + 2 * kMostRank]); }
MR_DEVICE u64 run_of(const CheckArguments& args) { return static_cast<u64>(args.values[3 + 2 * kMostRank]); }
MR_DEVICE double extra_of(const CheckArguments& args) { return args.values[4 + 2 * kMostRank]; }

// An element's offset, in elements.
MR_DEVICE u64 offset_of(const CheckArguments& args, u64 element) {
  const int rank = static_cast<int>(args.values[1]);
  u64 offset = 0;
  for (int axis = rank - 1; axis >= 0; --axis) {
    const u64 extent = static_cast<u64>(args.values[2 + axis]);
    offset += element % extent * static_cast<u64>(args.values[2 + kMostRank + axis]);
    element /= extent;
  }
  return offset;
}

MR_DEVICE double taken(const CheckArguments& args, const void* from, u64 element) {
  if (stored_as(args) == kBits) {
    const u64 run = run_of(args);
    const u8* const bytes = static_cast<const u8*>(from);
    return (bytes[element / run * ((run + 7) / 8) + element % run / 8] >> (element % run % 8)) & 1;
  }
  const u64 offset = offset_of(args, element);
  switch (stored_as(args)) {
    case kF64: return static_cast<const double*>(from)[offset];
    case kF32: return static_cast<double>(static_cast<const float*>(from)[offset]);
    case kF16: return static_cast<double>(widened(static_cast<const f16*>(from)[offset]));
    case kBf16: return static_cast<double>(widened(static_cast<const bf16*>(from)[offset]));
    case kI32: return static_cast<double>(static_cast<const i32*>(from)[offset]);
    case kI64: return static_cast<double>(static_cast<const i64*>(from)[offset]);
    default: return static_cast<double>(static_cast<const u8*>(from)[offset]);
  }
}

}  // namespace mr

// tensors: the values, row-major; the tensor. If extra is not 0, writes magnitudes with the sign of extra.
MR_KERNEL(256) MILLRACE_KERNEL_put(MR_PARAMETER mr::CheckArguments args) {
  using namespace mr;
  begin();
  const double* const from = static_cast<const double*>(args.tensors[0]);
  void* const to = args.tensors[1];
  const double sign = extra_of(args);
  const u64 run = run_of(args);
  const u64 bytes_of_run = (run + 7) / 8;
  const u64 count = stored_as(args) == kBits ? elements_of(args) / run * bytes_of_run : elements_of(args);
  for (u64 k = static_cast<u64>(block_number()) * 256 + static_cast<u64>(thread_number()); k < count;
       k += static_cast<u64>(grid_size()) * 256) {
    if (stored_as(args) == kBits) {
      u32 bits = 0;
      for (u64 bit = 0; bit < 8 && k % bytes_of_run * 8 + bit < run; ++bit)
        bits |= (from[k / bytes_of_run * run + k % bytes_of_run * 8 + bit] != 0 ? 1u : 0u) << bit;
      static_cast<u8*>(to)[k] = static_cast<u8>(bits);
      continue;
    }
    double value = from[k];
    if (value * sign < 0) value = -value;
    const u64 offset = offset_of(args, k);
    switch (stored_as(args)) {
      case kF64: static_cast<double*>(to)[offset] = value; break;
      case kF32: static_cast<float*>(to)[offset] = static_cast<float>(value); break;
      case kF16: narrow(static_cast<float>(value), static_cast<f16*>(to)[offset]); break;
      case kBf16: narrow(static_cast<float>(value), static_cast<bf16*>(to)[offset]); break;
      case kI32: static_cast<i32*>(to)[offset] = static_cast<i32>(value); break;
      case kI64: static_cast<i64*>(to)[offset] = static_cast<i64>(value); break;
      default: static_cast<u8*>(to)[offset] = value != 0 ? 1 : 0; break;
    }
  }
}

// tensors: the tensor; its values, row-major.
MR_KERNEL(256) MILLRACE_KERNEL_take(MR_PARAMETER mr::CheckArguments args) {
  using namespace mr;
  begin();
  double* const to = static_cast<double*>(args.tensors[1]);
  for (u64 k = static_cast<u64>(block_number()) * 256 + static_cast<u64>(thread_number()); k < elements_of(args);
       k += static_cast<u64>(grid_size()) * 256)
    to[k] = taken(args, args.tensors[0], k);
}

// tensors: the tensor; the expected values, row-major; the tolerances; the number of the first wrong element.
MR_KERNEL(256) MILLRACE_KERNEL_compare(MR_PARAMETER mr::CheckArguments args) {
  using namespace mr;
  begin();
  const double* const expected = static_cast<const double*>(args.tensors[1]);
  const double* const tolerances = static_cast<const double*>(args.tensors[2]);
  for (u64 k = static_cast<u64>(block_number()) * 256 + static_cast<u64>(thread_number()); k < elements_of(args);
       k += static_cast<u64>(grid_size()) * 256) {
    const double found = taken(args, args.tensors[0], k);
    double wanted = expected[k];
    if (stored_as(args) == kBits) wanted = wanted != 0 ? 1 : 0;
    double distance = found - wanted;
    if (distance < 0) distance = -distance;
    const bool both_nan = found != found && wanted != wanted;
    if (!(distance <= tolerances[k] || found == wanted || both_nan)) lower_to(static_cast<u64*>(args.tensors[3]), k);
  }
}

// tensors: two blocks of bytes; the number of the first byte that differs. Arguments: the number of bytes, a multiple
// of 8; the number of ranges in which they may differ; the ranges' first bytes; their ends.
MR_KERNEL(256) MILLRACE_KERNEL_change(MR_PARAMETER mr::CheckArguments args) {
  using namespace mr;
  begin();
  const u64* const found = static_cast<const u64*>(args.tensors[0]);
  const u64* const before = static_cast<const u64*>(args.tensors[1]);
  const int ranges = static_cast<int>(args.values[1]);
  const u64 count = elements_of(args) / 8;
  for (u64 k = static_cast<u64>(block_number()) * 256 + static_cast<u64>(thread_number()); k < count;
       k += static_cast<u64>(grid_size()) * 256) {
    u64 bits = found[k] ^ before[k];
    for (u64 byte = 8 * k; bits != 0; ++byte, bits >>= 8) {
      bool allowed = (bits & 0xff) == 0;
      for (int range = 0; range < ranges && !allowed; ++range)
        allowed = static_cast<u64>(args.values[2 + range]) <= byte &&
                  byte < static_cast<u64>(args.values[2 + kMostRank + range]);
      if (!allowed) lower_to(static_cast<u64*>(args.tensors[3]), byte);
    }
  }
}

// tensors: the peer's values, only read; the magnitudes of its sums, replaced by tolerances: extra · magnitude for the
// rounding of the sum, and relative · |value| + absolute for rounding to the storage type.
MR_KERNEL(256) MILLRACE_KERNEL_allow(MR_PARAMETER mr::CheckArguments args) {
  using namespace mr;
  begin();
  const double* const values = static_cast<const double*>(args.tensors[0]);
  double* const magnitudes = static_cast<double*>(args.tensors[1]);
  const double relative = args.values[2];
  const double absolute = args.values[3];
  for (u64 k = static_cast<u64>(block_number()) * 256 + static_cast<u64>(thread_number()); k < elements_of(args);
       k += static_cast<u64>(grid_size()) * 256) {
    const double value = values[k] < 0 ? -values[k] : values[k];
    const double magnitude = magnitudes[k] < 0 ? -magnitudes[k] : magnitudes[k];
    magnitudes[k] = extra_of(args) * magnitude + relative * value + absolute;
  }
}
