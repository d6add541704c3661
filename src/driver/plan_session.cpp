#include "driver/plan_session.h"

#include <array>

#include "base/clock.h"
#include "base/text.h"
#include "device/cpu/cpu_info.h"
#include "driver/plan_folder.h"

namespace millrace {
namespace {

Result<double> clocked(const std::function<Result<Done>()>& work) {
  const double begin = now();
  if (Result<Done> done = work(); !done) return done.error();
  return now() - begin;
}

}  // namespace

Result<PlanSession> PlanSession::open(const LoadedPlan& loaded) {
  Result<std::unique_ptr<Executor>> executor = load_plan(loaded);
  if (!executor) return executor.error();
  PlanSession made(loaded);
  made.executor_ = std::move(*executor);
  made.gpu_ = made.executor_->device();
  if (made.gpu_ != nullptr) {
    Result<GpuMemory> flushed = GpuMemory::allocate(*made.gpu_, 2 * made.gpu_->info().l2_bytes);
    if (!flushed) return flushed.error();
    made.flushed_ = std::move(*flushed);
  }
  return made;
}

Result<Done> PlanSession::put(const Values<double>& given) {
  memory_ = std::make_unique<CallersMemory>(*loaded_, given);
  if (gpu_ == nullptr) return Done{};
  Gpu& gpu = *gpu_;
  on_gpu_.clear();
  gpu_pointers_.clear();
  for (const CallersMemory::List& list : memory_->lists()) {
    std::vector<void*>& pointers = gpu_pointers_.emplace_back();
    const CallersBlocks blocks = blocks_of(*list.tensors);
    std::vector<char*> begin_of(blocks.bytes.size(), nullptr);
    for (size_t k = 0; k < list.pointers.size(); ++k) {
      const CallersTensor& tensor = (*list.tensors)[k];
      if (!tensor.tensor.valid() || loaded_->training.graph.tensor(tensor.tensor).role == TensorRole::scalar) {
        pointers.push_back(list.pointers[k]);  // a scalar stays in host memory
        continue;
      }
      const CallersBlocks::Slot& slot = blocks.slots[k];
      char*& begin = begin_of[slot.block];
      if (begin == nullptr) {
        Result<GpuMemory> there = GpuMemory::allocate(gpu, blocks.bytes[slot.block]);
        if (!there) return there.error();
        begin = there->bytes_at(0);
        on_gpu_.push_back(std::move(*there));
      }
      pointers.push_back(begin + slot.offset);
      if (Result<Done> copied = gpu.copy_in(pointers.back(), list.pointers[k], tensor.bytes); !copied) return copied;
    }
  }
  return gpu.wait();
}

Result<Done> PlanSession::take(Values<double>& values) {
  if (gpu_ != nullptr) {
    const std::array<CallersMemory::List, 4> lists = memory_->lists();
    for (size_t list = 0; list < lists.size(); ++list) {
      for (size_t k = 0; lists[list].made && k < lists[list].pointers.size(); ++k) {
        const CallersTensor& tensor = (*lists[list].tensors)[k];
        if (!tensor.tensor.valid()) continue;
        Result<Done> copied = gpu_->copy_out(lists[list].pointers[k], gpu_pointers_[list][k], tensor.bytes);
        if (!copied) return copied;
      }
    }
  }
  memory_->take(values);
  return Done{};
}

CallersTensors PlanSession::pointers() const {
  if (gpu_ == nullptr) return memory_->pointers();
  return {gpu_pointers_[0].data(),
          gpu_pointers_[1].data(),
          gpu_pointers_[2].data(),
          gpu_pointers_[3].data(),
          nullptr,
          nullptr};
}

Result<Done> PlanSession::bind(uint64_t seed, uint32_t step) { return executor_->bind(pointers(), seed, step); }

Result<Done> PlanSession::forward() { return executor_->forward(); }

Result<Done> PlanSession::backward() { return executor_->backward(); }

Result<Done> PlanSession::step() { return executor_->step(); }

Result<Done> PlanSession::launch(size_t number) { return executor_->launch(number); }

Result<double> PlanSession::seconds_of_pass(const std::function<Result<Done>()>& pass, int repeats) {
  if (gpu_ == nullptr) return clocked(pass);
  const auto nothing = [] { return Result<Done>(Done{}); };
  const Result<double> all = gpu_->time(nothing, [&]() -> Result<Done> {
    for (int k = 0; k < repeats; ++k) {
      if (Result<Done> put = pass(); !put) return put;
    }
    return Done{};
  });
  if (!all) return all;
  return *all / repeats;
}

Result<double> PlanSession::seconds_of_launch(size_t number) {
  if (gpu_ == nullptr) return clocked([&] { return launch(number); });
  return gpu_->time([&] { return gpu_->fill(flushed_.data(), 0, flushed_.size()); }, [&] { return launch(number); });
}

std::optional<double> PlanSession::relative_clock() {
  if (gpu_ == nullptr || gpu_->info().clock_khz <= 0) return std::nullopt;
  const Result<double> hertz = gpu_->clock_hertz();
  if (!hertz) return std::nullopt;
  return *hertz / (gpu_->info().clock_khz * 1e3);
}

std::string PlanSession::device() const {
  if (gpu_ != nullptr) return gpu_->info().name;
  const int made_for = threads_of(loaded_->plan);
  const int count = made_for > 0 ? made_for : threads();
  return concat(cpu_info().model, ", ", count, count == 1 ? " thread" : " threads");
}

}  // namespace millrace
