// Runs plans of whole training steps on a GPU and compares them with the reference.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/scratch.h"
#include "codegen/cuda/generate.h"
#include "device/gpu_memory.h"
#include "driver/plan_folder.h"
#include "exec/gpu_executor.h"
#include "exec/run_plan.h"
#include "measure/reference_data.h"
#include "measure/tensor_memory.h"
#include "plan/launched_partition.h"

namespace millrace {

// The caller's tensors on the device, in one block of memory each.
class OnDevice {
 public:
  OnDevice(Gpu& gpu, const MadePlan& made, const Values<double>& given) : gpu_(gpu), made_(made) {
    const Graph& graph = made.training.graph;
    arguments_.resize(graph.arguments.size());
    results_.resize(graph.results.size());
    result_gradients_.resize(graph.results.size());
    argument_gradients_.resize(graph.arguments.size());
    for (size_t k = 0; k < graph.arguments.size(); ++k) {
      if (graph.tensor(graph.arguments[k]).role == TensorRole::scalar)
        arguments_[k] = given[graph.arguments[k].at()].data();
    }
    const CallersPlaces locations = callers_places(made);
    for (const int64_t bytes : locations.bytes) {
      Result<GpuMemory> memory = GpuMemory::allocate(gpu, bytes);
      EXPECT_TRUE(memory) << to_string(memory.error());
      blocks_.push_back(std::move(*memory));
    }
    for (size_t k = 0; k < made.plan.buffers.size(); ++k) {
      const CallersPlace& location = locations.locations[k];
      if (made.plan.buffers[k].location != BufferLocation::arena)
        add(made.plan.buffers[k], given, blocks_[location.block].bytes_at(location.offset));
    }
    EXPECT_TRUE(gpu.wait());
  }

  CallersTensors pointers() const {
    return {arguments_.data(), results_.data(), result_gradients_.data(), argument_gradients_.data()};
  }
  CallersTensors forward_only() const { return {arguments_.data(), results_.data(), nullptr, nullptr}; }

  // Takes all outputs of the plan, one per tensor of the graph, and poisons them with NaN.
  Values<double> take() {
    Values<double> found(made_.training.graph.tensors.size());
    for (const auto& [buffer, data] : memories_) {
      const TensorId tensor = callers_tensor(made_.training, *buffer);
      std::vector<char> bytes(static_cast<size_t>(buffer->bytes));
      EXPECT_TRUE(gpu_.copy_out(bytes.data(), data, buffer->bytes));
      found[tensor.at()] = take_values(made_.training.graph, tensor, layout_of(made_, *buffer, tensor), bytes.data());
      const bool made =
          buffer->location == BufferLocation::result || buffer->location == BufferLocation::argument_gradient;
      EXPECT_TRUE(gpu_.fill(data, 0xff, made ? buffer->bytes : 0));
    }
    return found;
  }

 private:
  void add(const PlanBuffer& buffer, const Values<double>& given, char* data) {
    const TensorId tensor = callers_tensor(made_.training, buffer);
    if (!given[tensor.at()].empty()) {
      std::vector<char> bytes(static_cast<size_t>(buffer.bytes), '\xff');
      put_values(made_.training.graph, tensor, layout_of(made_, buffer, tensor), given[tensor.at()], bytes.data());
      EXPECT_TRUE(gpu_.copy_in(data, bytes.data(), buffer.bytes));
    }
    const auto position = static_cast<size_t>(buffer.position);
    switch (buffer.location) {
      case BufferLocation::arena: break;
      case BufferLocation::argument: arguments_[position] = data; break;
      case BufferLocation::result: results_[position] = data; break;
      case BufferLocation::result_gradient: result_gradients_[position] = data; break;
      case BufferLocation::argument_gradient: argument_gradients_[position] = data; break;
    }
    memories_.emplace_back(&buffer, data);
  }

  Gpu& gpu_;
  const MadePlan& made_;
  std::vector<GpuMemory> blocks_;
  std::vector<std::pair<const PlanBuffer*, char*>> memories_;
  std::vector<const void*> arguments_;
  std::vector<void*> results_;
  std::vector<const void*> result_gradients_;
  std::vector<void*> argument_gradients_;
};

// Makes and runs plans on a GPU, which a derived class opens.
class GpuPlanTest : public ScratchTest {
 protected:
  MadePlan plan_of(const std::string& text, PlanChoice choice) {
    choice.gpu = gpu_.get();
    MadePlan made = make_plan(text, choice);
    const Result<std::vector<Launch>> launches = lower_plan(made.plan, made.training, made.candidates);
    EXPECT_TRUE(launches) << to_string(launches.error());
    if (launches) {
      const Result<Done> written = write_gpu_plan(
          made.plan, *launches, {path("cache"), *compiler_, gpu_prelude(), gpu_->info().architecture()}, path("plan"));
      EXPECT_TRUE(written) << to_string(written.error());
    }
    return made;
  }

  // The cubins of the plan that was written last.
  CubinBundle cubins() {
    const Result<std::string> text = read_file(path("plan/kernels.cubins"), int64_t{1} << 30);
    Result<CubinBundle> bundle = read_bundle(text ? *text : "");
    EXPECT_TRUE(bundle) << to_string(bundle.error());
    return std::move(*bundle);
  }

  GpuExecutor executor_of(const MadePlan& made, ExecutorMemory memory = ExecutorMemory::own) {
    const Result<std::vector<Launch>> launches = lower_plan(made.plan, made.training, made.candidates);
    Result<GpuExecutor> executor = GpuExecutor::load(gpu_, made.plan, *launches, cubins(), memory);
    EXPECT_TRUE(executor) << to_string(executor.error());
    return std::move(*executor);
  }

  static void expect_done(const Result<Done>& done) { EXPECT_TRUE(done) << to_string(done.error()); }

  // Compares the outputs of this step with the reference.
  static void expect_step(const MadePlan& made, const Values<double>& given, RandomState random, OnDevice& tensors) {
    EXPECT_EQ(difference_from_reference(made, given, random, tensors.take()), "") << "step " << random.step;
  }

  // The outputs of the third step with this seed.
  Values<double> made_by_a_step(const MadePlan& made, const Values<double>& given) {
    GpuExecutor executor = executor_of(made);
    OnDevice tensors(*gpu_, made, given);
    expect_done(executor.bind(tensors.pointers(), 5, 3));
    expect_done(executor.step());
    return tensors.take();
  }

  void expect_one_step(const std::string& text, const PlanChoice& choice) {
    const MadePlan made = plan_of(text, choice);
    ASSERT_FALSE(HasFailure());
    const Values<double> given = drawn_values(made.training, 5);
    EXPECT_EQ(difference_from_reference(made, given, {5, 3}, made_by_a_step(made, given)), "");
  }

  std::shared_ptr<Gpu> gpu_;
  std::unique_ptr<GpuCompiler> compiler_;
};

}  // namespace millrace
