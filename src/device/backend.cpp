#include "device/backend.h"

#include <array>
#include <mutex>
#include <utility>

#include "base/text.h"
#include "device/cpu/blas_library.h"
#include "device/cpu/cpu_info.h"
#include "device/cpu/cpu_launch.h"
#include "device/cpu/onednn.h"

namespace millrace {
namespace {

constexpr std::array kBlasLibraries = {GemmLibrary::openblas, GemmLibrary::blis, GemmLibrary::onednn, GemmLibrary::mkl};

Error no_such_compiler(std::string_view name) {
  return Error::make(ErrorKind::unavailable, concat("the device '", name, "' has no such compiler"),
                     "use another device");
}

class CpuBackend : public Backend {
 public:
  CpuBackend(const BackendKind& kind, int threads)
      : Backend(kind), threads_(threads > 0 ? threads : ::millrace::threads()) {}

  const Target& target() const override { return kind().target; }
  const BackendLibraries& libraries() const override {
    std::call_once(looked_for_libraries_, [&] {
      for (const GemmLibrary library : kBlasLibraries) {
        if (blas_info(library).there) {
          libraries_.there.push_back(library);
        } else {
          libraries_.missing[library] = concat(name_of(library), " is not available; millrace doctor says why");
        }
      }
      for (const StoredType type : {StoredType::f16, StoredType::bf16}) {
        if (blas_info(GemmLibrary::onednn).there && onednn_implementation(type).empty())
          libraries_.lacking.emplace(GemmLibrary::onednn, type);
      }
    });
    return libraries_;
  }

  std::string text() const override {
    const CpuInfo cpu = cpu_info();
    std::string text =
        concat(kind().text_prefix, cpu.identity(), ", ", threads_, " threads of ", cpu.cores, " cores; ");
    const Result<Compiler> compiler = host_compiler();
    text += compiler ? concat(compiler->version, " ", join(compiler->flags, " ")) : "no compiler";
    for (const GemmLibrary library : kBlasLibraries) {
      if (blas_info(library).there) text += concat("; ", name_of(library), " ", blas_info(library).version);
    }
    return text;
  }

  Result<Done> can_compile() const override {
    const Result<Compiler> compiler = host_compiler();
    if (!compiler) return compiler.error();
    return Done{};
  }

  Result<Compiler> host_compiler() const override {
    std::call_once(looked_for_compiler_, [&] { compiler_ = find_compiler(); });
    return compiler_;
  }

  int64_t scratch_bytes(const Launch& launch) const override { return ::millrace::scratch_bytes(launch); }

 private:
  int threads_;
  mutable std::once_flag looked_for_libraries_;
  mutable BackendLibraries libraries_;
  mutable std::once_flag looked_for_compiler_;
  mutable Result<Compiler> compiler_ = Error{};
};

class CudaBackend : public Backend {
 public:
  CudaBackend(const BackendKind& kind, std::shared_ptr<Gpu> gpu)
      : Backend(kind), target_(kind.target), gpu_(std::move(gpu)) {
    const GpuInfo& info = gpu_->info();
    target_.gpu = GpuTarget{info.multiprocessors, info.shared_bytes, info.has_wgmma(), !info.cudnn.empty()};
  }

  const Target& target() const override { return target_; }
  const BackendLibraries& libraries() const override { return libraries_; }

  std::string text() const override {
    const GpuInfo& info = gpu_->info();
    return concat(kind().text_prefix, info.name, ", ", info.architecture(), ", ", info.multiprocessors,
                  " multiprocessors; driver ", info.driver, "; nvrtc ", info.nvrtc, "; cublaslt ", info.cublaslt,
                  info.cudnn.empty() ? "" : concat("; cudnn ", info.cudnn));
  }

  Result<Done> can_compile() const override {
    const Result<std::shared_ptr<GpuCompiler>> compiler = gpu_compiler();
    if (!compiler) return compiler.error();
    return Done{};
  }

  Result<std::shared_ptr<GpuCompiler>> gpu_compiler() const override {
    std::call_once(looked_for_compiler_, [&] {
      Result<std::unique_ptr<GpuCompiler>> opened = open_gpu_compiler();
      if (opened) {
        compiler_ = std::shared_ptr<GpuCompiler>(std::move(*opened));
      } else {
        compiler_ = opened.error();
      }
    });
    return compiler_;
  }

  int64_t scratch_bytes(const Launch& launch) const override {
    if (!launch.kernel.empty() && !launch.is_product()) return launch.scratch_bytes;
    Launch call = launch;  // without its kernel, which is not compiled yet
    call.kernel.clear();
    const Result<std::unique_ptr<GpuLaunch>> prepared = gpu_->prepare(call, "");
    return prepared ? (*prepared)->scratch_bytes() : 0;  // the executor reports the error
  }

  std::shared_ptr<Gpu> gpu() const override { return gpu_; }

 private:
  BackendLibraries libraries_{{GemmLibrary::cublaslt}, {}, {}};
  Target target_;
  std::shared_ptr<Gpu> gpu_;
  mutable std::once_flag looked_for_compiler_;
  mutable Result<std::shared_ptr<GpuCompiler>> compiler_ = Error{};
};

Result<std::shared_ptr<Backend>> open_cpu_backend(const BackendKind& kind, int threads) {
  return std::shared_ptr<Backend>(std::make_shared<CpuBackend>(kind, threads));
}

Result<std::shared_ptr<Backend>> open_cuda_backend(const BackendKind& kind, int /*threads*/) {
  Result<std::unique_ptr<Gpu>> gpu = open_gpu();
  if (!gpu) return gpu.error();
  return std::shared_ptr<Backend>(std::make_shared<CudaBackend>(kind, std::move(*gpu)));
}

}  // namespace

Result<Compiler> Backend::host_compiler() const { return no_such_compiler(name()); }

Result<std::shared_ptr<GpuCompiler>> Backend::gpu_compiler() const { return no_such_compiler(name()); }

const std::vector<BackendKind>& backends() {
  static const std::vector<BackendKind> kKinds = {{"cpu", "cpu ", "60s", cpu_target(), open_cpu_backend},
                                                  {"cuda", "gpu ", "240s", gpu_target(), open_cuda_backend}};
  return kKinds;
}

const BackendKind& host_backend() { return backends().front(); }

Result<const BackendKind*> backend_named(std::string_view name) {
  std::vector<std::string> known;
  for (const BackendKind& kind : backends()) {
    if (kind.name == name) return &kind;
    known.push_back(concat("--device ", kind.name));
  }
  return Error::make(ErrorKind::bad_input, concat("unknown device '", name, "'"), concat("use ", join(known, " or ")));
}

const BackendKind& backend_of_text(std::string_view text) {
  for (const BackendKind& kind : backends()) {
    if (text.starts_with(kind.text_prefix)) return kind;
  }
  return host_backend();
}

Result<std::shared_ptr<Backend>> find_backend(std::string_view name, int threads) {
  const Result<const BackendKind*> kind = backend_named(name);
  if (!kind) return kind.error();
  return (*kind)->open(**kind, threads);
}

}  // namespace millrace
