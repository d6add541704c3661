// Fused attention, warp specialization (S::kSpecialized): the last warpgroup of a block, the producers, copies the
// block's rows and its tiles to smem; the other warpgroups, the consumers, multiply. Warpgroups wait for each other at
// mbarriers only, so that one multiplies while another computes exponentials. The kernels are in
// cuda_attention_specialized*.h.
// Test: tests/codegen/attention_kernel_test.cpp
//
// Each of the two tiles of a stage has two mbarriers. `full` completes when the tile is there: every producer arrives
// when its copies are done. `empty` completes when every consumer warp has released the tile.
#pragma once

namespace mr {

// Registers of a thread: together those of a multiprocessor, which has one such block. Wide accumulators need all.
template <class S, int kAccumulated>
constexpr int kConsumerRegisters = S::kWarps != 8       ? 160
                                   : kAccumulated > 128 ? 240
                                                        : 224;
template <class S, int kAccumulated>
constexpr int kProducerRegisters = S::kWarps != 8       ? 32
                                   : kAccumulated > 128 ? 24
                                                        : 56;

enum class Half { first, second };  // of a stage: its tiles

template <class S>
MR_DEVICE SmemAddress rows_barrier() {
  return smem_base() + kBarriersOffset<S>;
}
template <class S, Half kHalf>
MR_DEVICE SmemAddress full_barrier(int stage) {
  return rows_barrier<S>() + (1 + 4 * stage + (kHalf == Half::second ? 2 : 0)) * kMbarrierBytes;
}
template <class S, Half kHalf>
MR_DEVICE SmemAddress empty_barrier(int stage) {
  return full_barrier<S, kHalf>(stage) + kMbarrierBytes;
}
template <class S>
MR_DEVICE SmemAddress stage_address(int stage) {
  return smem_base() + stage * kStageBytes<S>;
}

// To be called before anything else in a kernel.
template <class S>
MR_DEVICE void make_barriers() {
  static_assert(S::kSpecialized && S::kWgmma && S::kRowsInSmem && S::kRowTiles == 1);
  static_assert(kSmemBytes<S> == S::kLaunchSmemBytes);
  if (thread_id() == 0) {
    mbarrier_init(rows_barrier<S>(), kProducers);
    MR_UNROLL
    for (int stage = 0; stage < S::kStages; ++stage) {
      mbarrier_init(full_barrier<S, Half::first>(stage), kProducers);
      mbarrier_init(full_barrier<S, Half::second>(stage), kProducers);
      mbarrier_init(empty_barrier<S, Half::first>(stage), S::kWarps);
      mbarrier_init(empty_barrier<S, Half::second>(stage), S::kWarps);
    }
  }
  barrier();
}

template <class S>
MR_DEVICE bool is_producer() {
  return warp_uniform(warp_id()) >= S::kWarps;
}

// The stage of the next tile, and the parity of the phase in which it is full.
template <class S>
struct StageCursor {
  int stage = 0;
  u32 parity = 0;

  MR_DEVICE void advance() {
    stage = stage == S::kStages - 1 ? 0 : stage + 1;
    parity ^= stage == 0 ? 1 : 0;
  }
};

// The producers' part: copy_rows(), then fetch_first(tile, stage) and fetch_second(tile, stage) for tiles [first, end).
template <class S, int kAccumulated, class CopyRows, class FetchFirst, class FetchSecond>
MR_DEVICE void produce(int first, int end, const CopyRows& copy_rows, const FetchFirst& fetch_first,
                       const FetchSecond& fetch_second) {
  reduce_registers<kProducerRegisters<S, kAccumulated>>();
  copy_rows();
  cp_async_mbarrier_arrive(rows_barrier<S>());
  StageCursor<S> next;
  MR_NO_UNROLL
  for (int tile = first; tile < end; ++tile) {
    mbarrier_wait(empty_barrier<S, Half::first>(next.stage), next.parity ^ 1);
    fetch_first(tile, stage_address<S>(next.stage));
    cp_async_mbarrier_arrive(full_barrier<S, Half::first>(next.stage));
    mbarrier_wait(empty_barrier<S, Half::second>(next.stage), next.parity ^ 1);
    fetch_second(tile, stage_address<S>(next.stage));
    cp_async_mbarrier_arrive(full_barrier<S, Half::second>(next.stage));
    next.advance();
  }
  cp_async_commit();
  cp_async_wait<0>();
}

// Uniform in a warp.
MR_DEVICE int warpgroup() { return warp_uniform(warp_id() / 4); }

// What consumers do with tiles. Every warp waits for every tile and releases it.
template <class S>
struct TileConsumer {
  StageCursor<S> next;  // after the current stage
  u32 parity = 0;       // of the current stage

  MR_DEVICE static void wait_for_rows() {
    mbarrier_wait(rows_barrier<S>(), 0);
    fence_async_proxy();
  }
  // The next stage, once its first tile is full; then wait_for_second.
  MR_DEVICE int wait() {
    const int stage = next.stage;
    parity = next.parity;
    mbarrier_wait(full_barrier<S, Half::first>(stage), parity);
    fence_async_proxy();
    next.advance();
    return stage;
  }
  MR_DEVICE void wait_for_second(int stage) const {
    mbarrier_wait(full_barrier<S, Half::second>(stage), parity);
    fence_async_proxy();
  }
  template <Half kHalf>
  MR_DEVICE static void release(int stage) {
    warp_barrier();
    if (lane_id() == 0) mbarrier_arrive(empty_barrier<S, kHalf>(stage));
  }
  // Tiles that are hidden from this warpgroup, but not from the whole block.
  MR_DEVICE void skip(int count) {
    MR_NO_UNROLL
    for (int n = 0; n < count; ++n) {
      const int stage = wait();
      release<Half::first>(stage);
      wait_for_second(stage);
      release<Half::second>(stage);
    }
  }
};

// Row of the score matrix where the warpgroup's 64 begin.
template <class S>
MR_DEVICE int warpgroup_first_row(int block) {
  return block * kBlockRows<S> + warpgroup() * 64;
}

// What a thread has of a tile of scores: accumulators, the A fragments of the next product, mask bits, terms.
template <class S>
using TileScores = float[1][S::kTileColumns / 8][4];
template <class S>
using TileFragments = u32[1][S::kTileColumns / 16][4];
template <class S>
using TileMaskBits = u32[S::kTileColumns / 32][1][2];
template <class S, class X>
using TileTerms = typename X::template Terms<KeyPlaces<S>>[S::kTileColumns / 32][1][2];

// Rounds all scores: the A operand of the next product.
template <class S, int kCount>
MR_DEVICE void pack_scores(u32 (&to)[1][kCount / 2][4], const float (&scores)[1][kCount][4]) {
  MR_UNROLL
  for (int step = 0; step < kCount / 2; ++step) {
    pack_a_fragment<typename S::T>(to[0][step], scores[0], 2 * step);
    MR_UNROLL
    for (int n = 0; n < 4; ++n) fence_operand(to[0][step][n]);
  }
}

}  // namespace mr
