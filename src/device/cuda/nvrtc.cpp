#include "device/cuda/nvrtc.h"

#include <dlfcn.h>
#include <glob.h>
#include <nvrtc.h>

#include <array>
#include <string>

#include "base/text.h"
#include "device/cuda/shared_library.h"

namespace millrace {
namespace {

constexpr size_t kLogBytes = 4000;  // of an error message; the rest repeats it

struct Nvrtc {
  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcGetErrorString) get_error_string = nullptr;
  decltype(&nvrtcCreateProgram) create_program = nullptr;
  decltype(&nvrtcDestroyProgram) destroy_program = nullptr;
  decltype(&nvrtcCompileProgram) compile_program = nullptr;
  decltype(&nvrtcGetCUBINSize) get_cubin_size = nullptr;
  decltype(&nvrtcGetCUBIN) get_cubin = nullptr;
  decltype(&nvrtcGetProgramLogSize) get_log_size = nullptr;
  decltype(&nvrtcGetProgramLog) get_log = nullptr;
};

// NVRTC loads its builtins by name when it compiles, and searches only where the loader does; they are beside it.
void load_builtins(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return;
  glob_t found{};
  if (glob((path.substr(0, slash) + "/libnvrtc-builtins.so.*").c_str(), 0, nullptr, &found) == 0)
    for (size_t k = 0; k < found.gl_pathc; ++k) dlopen(found.gl_pathv[k], RTLD_NOW | RTLD_LOCAL);
  globfree(&found);
}

Result<Nvrtc> load_nvrtc() {
  constexpr const char* kRemedy =
      "install CUDA's NVRTC 12 or 13 (on Debian and Ubuntu NVIDIA's cuda-nvrtc-13-0, by pip nvidia-cuda-nvrtc), or set "
      "CUDA_HOME to where CUDA is";
  Result<SharedLibrary> library = SharedLibrary::open({"libnvrtc.so.13", "libnvrtc.so.12"}, toolkit_folders());
  if (!library)
    return Error::make(
        ErrorKind::unavailable,
        concat("NVRTC, which compiles kernels for GPUs, is missing: ", library.error().diagnostics.front().message),
        kRemedy);
  Nvrtc nvrtc;
  library->find("nvrtcVersion", nvrtc.version);
  library->find("nvrtcGetErrorString", nvrtc.get_error_string);
  library->find("nvrtcCreateProgram", nvrtc.create_program);
  library->find("nvrtcDestroyProgram", nvrtc.destroy_program);
  library->find("nvrtcCompileProgram", nvrtc.compile_program);
  library->find("nvrtcGetCUBINSize", nvrtc.get_cubin_size);
  library->find("nvrtcGetCUBIN", nvrtc.get_cubin);
  library->find("nvrtcGetProgramLogSize", nvrtc.get_log_size);
  library->find("nvrtcGetProgramLog", nvrtc.get_log);
  if (!library->missing().empty())
    return Error::make(ErrorKind::unavailable, concat("NVRTC has no function ", library->missing()), kRemedy);
  load_builtins(SharedLibrary::path_of(nvrtc.version));
  return nvrtc;
}

const Result<Nvrtc>& nvrtc_functions() {
  static const Result<Nvrtc> kNvrtc = load_nvrtc();
  return kNvrtc;
}

std::string version_of(const Nvrtc& nvrtc) {
  int major = 0;
  int minor = 0;
  return nvrtc.version(&major, &minor) == NVRTC_SUCCESS ? concat(major, ".", minor) : "unknown";
}

// Owns an NVRTC program.
class Program {
 public:
  explicit Program(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {}
  ~Program() {
    if (program_ != nullptr) nvrtc_.destroy_program(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Result<std::string> compile(const std::string& source, const std::string& architecture) {
    nvrtcResult result = nvrtc_.create_program(&program_, source.c_str(), "kernel.cu", 0, nullptr, nullptr);
    if (result != NVRTC_SUCCESS) return machine_error("take a kernel's source", result);
    // Kernels request the features of this generation alone by name.
    const std::string target = concat("--gpu-architecture=", architecture, architecture == "sm_90" ? "a" : "");
    const std::array options = {target.c_str(), "--std=c++17", "-default-device", "--fmad=true",
                                "--extra-device-vectorization"};
    result = nvrtc_.compile_program(program_, static_cast<int>(options.size()), options.data());
    if (result == NVRTC_ERROR_COMPILATION)
      return Error::make(ErrorKind::bad_input, concat("the kernel does not compile: ", log().substr(0, kLogBytes)));
    if (result != NVRTC_SUCCESS) return machine_error("compile a kernel", result);
    size_t bytes = 0;
    result = nvrtc_.get_cubin_size(program_, &bytes);
    if (result != NVRTC_SUCCESS || bytes == 0) return machine_error("give the compiled kernel's size", result);
    std::string cubin(bytes, '\0');
    result = nvrtc_.get_cubin(program_, cubin.data());
    if (result != NVRTC_SUCCESS) return machine_error("give the compiled kernel", result);
    return cubin;
  }

 private:
  std::string log() const {
    size_t bytes = 0;
    if (nvrtc_.get_log_size(program_, &bytes) != NVRTC_SUCCESS || bytes == 0) return "it gives no reason";
    std::string text(bytes, '\0');
    if (nvrtc_.get_log(program_, text.data()) != NVRTC_SUCCESS) return "it gives no reason";
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
    return text;
  }

  Error machine_error(const std::string& what, nvrtcResult result) const {
    std::string message = concat("NVRTC cannot ", what, ": ", nvrtc_.get_error_string(result));
    if (program_ != nullptr) message += concat(" (", log().substr(0, kLogBytes), ")");
    return Error::make(ErrorKind::failed, message);
  }

  const Nvrtc& nvrtc_;
  nvrtcProgram program_ = nullptr;
};

class NvrtcCompiler final : public GpuCompiler {
 public:
  explicit NvrtcCompiler(const Nvrtc& nvrtc) : nvrtc_(nvrtc), version_("NVRTC " + version_of(nvrtc)) {}

  const std::string& version() const override { return version_; }

  Result<std::string> compile(const std::string& source, const std::string& architecture) const override {
    return Program(nvrtc_).compile(source, architecture);
  }

 private:
  const Nvrtc& nvrtc_;
  std::string version_;
};

}  // namespace

Result<std::unique_ptr<GpuCompiler>> open_nvrtc() {
  const Result<Nvrtc>& nvrtc = nvrtc_functions();
  if (!nvrtc) return nvrtc.error();
  return std::unique_ptr<GpuCompiler>(std::make_unique<NvrtcCompiler>(*nvrtc));
}

GpuSoftware inspect_nvrtc() {
  const Result<Nvrtc>& nvrtc = nvrtc_functions();
  if (!nvrtc) return missing_software(nvrtc.error());
  return {version_of(*nvrtc), SharedLibrary::path_of(nvrtc->version), ""};
}

}  // namespace millrace
