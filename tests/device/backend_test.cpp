#include "device/backend.h"

#include <gtest/gtest.h>

#include "device/cpu/blas_library.h"
#include "device/cpu/cpu_info.h"
#include "device/cpu/cpu_launch.h"
#include "device/cpu/onednn.h"
#include "device/gpu_for_tests.h"

namespace millrace {
namespace {

TEST(Backend, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const Result<std::shared_ptr<Backend>> backend = find_backend("tpu");
  ASSERT_FALSE(backend);
  EXPECT_EQ(backend.error().kind, ErrorKind::bad_input);
  ASSERT_EQ(backend.error().diagnostics.size(), 1);
  EXPECT_EQ(backend.error().diagnostics.front().message, "unknown device 'tpu'");
  EXPECT_EQ(backend.error().diagnostics.front().remedy, "use --device cpu or --device cuda");
  EXPECT_FALSE(backend_named(""));
  EXPECT_FALSE(backend_named("cpu "));
}

TEST(Backend, EveryBackendIsFoundByItsNameAndByItsText) {
  for (const BackendKind& kind : backends()) {
    const Result<const BackendKind*> found = backend_named(kind.name);
    ASSERT_TRUE(found) << kind.name;
    EXPECT_EQ(*found, &kind);
    EXPECT_EQ(&backend_of_text(std::string(kind.text_prefix) + "of some model"), &kind);
  }
  EXPECT_EQ(host_backend().name, "cpu");
  EXPECT_EQ(backend_of_text("gpu NVIDIA H200, sm_90").name, "cuda");
  EXPECT_EQ(backend_of_text("").name, "cpu");
  EXPECT_EQ(host_backend().default_budget, "60s");
  EXPECT_EQ(backend_of_text("gpu ").default_budget, "240s");
}

TEST(Backend, ACpuRunsLoopsInHostMemory) {
  const Result<std::shared_ptr<Backend>> found = find_backend("cpu", 3);
  ASSERT_TRUE(found) << to_string(found.error());
  const Backend& cpu = **found;
  EXPECT_EQ(cpu.name(), "cpu");
  const Target& target = cpu.target();
  EXPECT_TRUE(target.gemm_epilogues.of_results);
  EXPECT_TRUE(target.gemm_epilogues.exact_gelu);
  EXPECT_FALSE(target.gemm_epilogues.gradients);
  EXPECT_FALSE(target.reads_while_multiplying);
  EXPECT_FALSE(target.gemm_algorithms);
  EXPECT_TRUE(target.fused_attention);
  EXPECT_FALSE(target.own_memory);
  EXPECT_FALSE(target.gpu);
  EXPECT_EQ(target.tensor_alignment, 1);
  EXPECT_EQ(cpu.gpu(), nullptr);
  EXPECT_FALSE(cpu.gpu_compiler());
  EXPECT_EQ(static_cast<bool>(cpu.can_compile()), static_cast<bool>(cpu.host_compiler()));
  EXPECT_TRUE(cpu.text().starts_with("cpu " + cpu_info().identity() + ", 3 threads of ")) << cpu.text();
  EXPECT_EQ(&backend_of_text(cpu.text()), &host_backend());
}

TEST(Backend, ACpuHasTheLibrariesThatLoadAndSaysWhyOthersAreMissing) {
  const Result<std::shared_ptr<Backend>> cpu = find_backend("cpu");
  ASSERT_TRUE(cpu) << to_string(cpu.error());
  const BackendLibraries& libraries = (*cpu)->libraries();
  EXPECT_EQ(libraries.there.size() + libraries.missing.size(), 4);
  for (const GemmLibrary library : libraries.there) EXPECT_FALSE(libraries.missing.contains(library));
  EXPECT_EQ(libraries.missing.contains(GemmLibrary::openblas), !blas_info(GemmLibrary::openblas).there);
  EXPECT_EQ(libraries.missing.contains(GemmLibrary::blis), !blas_info(GemmLibrary::blis).there);
  EXPECT_EQ(libraries.missing.contains(GemmLibrary::onednn), !onednn_info().there);
  EXPECT_EQ(libraries.missing.contains(GemmLibrary::mkl), !blas_info(GemmLibrary::mkl).there);
  for (const StoredType type : {StoredType::f32, StoredType::f16, StoredType::bf16})
    EXPECT_EQ(libraries.lacking.contains({GemmLibrary::onednn, type}),
              onednn_info().there && onednn_implementation(type).empty());
}

TEST(Backend, ScratchOfACpuIsThatOfItsLaunch) {
  const Result<std::shared_ptr<Backend>> cpu = find_backend("cpu");
  ASSERT_TRUE(cpu) << to_string(cpu.error());
  Launch launch;
  launch.kernel = "kernel";
  launch.scratch_bytes = 4096;
  EXPECT_EQ((*cpu)->scratch_bytes(launch), scratch_bytes(launch));
}

// What a GPU can do is known without one: a plan for it can be read anywhere.
TEST(Backend, CapabilitiesOfAGpuNeedNoGpu) {
  const Result<const BackendKind*> cuda = backend_named("cuda");
  ASSERT_TRUE(cuda) << to_string(cuda.error());
  const Target& target = (*cuda)->target;
  EXPECT_TRUE(target.gemm_epilogues.of_results);
  EXPECT_FALSE(target.gemm_epilogues.exact_gelu);
  EXPECT_TRUE(target.gemm_epilogues.gradients);
  EXPECT_TRUE(target.reads_while_multiplying);
  EXPECT_TRUE(target.gemm_algorithms);
  EXPECT_TRUE(target.fused_attention);
  EXPECT_TRUE(target.own_memory);
  EXPECT_TRUE(target.gpu);
  EXPECT_EQ(target.tensor_alignment, 16);
}

TEST(Backend, WithoutAGpuItFailsAsOpeningTheGpuDoes) {
  const Result<std::unique_ptr<Gpu>> gpu = gpu_for_tests();
  const Result<std::shared_ptr<Backend>> cuda = find_backend("cuda");
  ASSERT_EQ(static_cast<bool>(gpu), static_cast<bool>(cuda));
  if (!gpu) {
    EXPECT_EQ(cuda.error().kind, ErrorKind::unavailable);
    EXPECT_EQ(to_string(cuda.error()), to_string(gpu.error()));
    return;
  }
  const GpuInfo& info = (*gpu)->info();
  const Target& target = (*cuda)->target();
  ASSERT_TRUE(target.gpu);
  EXPECT_EQ(target.gpu->multiprocessors, info.multiprocessors);
  EXPECT_EQ(target.gpu->shared_bytes, info.shared_bytes);
  EXPECT_EQ(target.gpu->wgmma, info.has_wgmma());
  EXPECT_EQ((*cuda)->libraries().there, std::vector{GemmLibrary::cublaslt});
  EXPECT_TRUE((*cuda)->text().starts_with("gpu " + info.name)) << (*cuda)->text();
  EXPECT_FALSE((*cuda)->host_compiler());
}

}  // namespace
}  // namespace millrace
