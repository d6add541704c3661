// Generated kernels: the host's compiler makes a shared object of the text, whose functions run as on a GPU.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/file.h"
#include "base/process.h"
#include "base/sha256.h"
#include "base/temporary_directory.h"
#include "base/text.h"
#include "codegen/cuda/attention.h"
#include "codegen/cuda/generate.h"
#include "device/cuda/kernel_parameters.h"
#include "device/emulated/emulated_gpu.h"
#include "device/emulated/emulated_launch.h"
#include "device/emulated/emulated_memory.h"
#include "device/emulated/emulated_text.h"
#include "device/test_kernels.h"

namespace millrace::emulated {
namespace {

constexpr double kPatience = 300;  // seconds for the compiler
constexpr int64_t kLargest = int64_t{256} << 20;

// --- Compiling ---

// A kernel's head, as generators write it: MR_KERNEL(256) name(MR_PARAMETER
struct Head {
  std::string name;
  std::string threads;
  size_t at = 0;
};

std::vector<Head> heads_in(const std::string& text, size_t from) {
  const std::string first = "MR_KERNEL(";
  std::vector<Head> heads;
  for (size_t at = text.find(first, from); at != std::string::npos; at = text.find(first, at + 1)) {
    const size_t threads = at + first.size();
    const size_t close = text.find(") ", threads);
    const size_t open = text.find('(', close);
    if (close == std::string::npos || open == std::string::npos) break;
    heads.push_back({text.substr(close + 2, open - close - 2), text.substr(threads, close - threads), at});
  }
  return heads;
}

// The object's interface: the size of a kernel's parameter, its maximum number of threads, and its launch.
std::string entries(const std::string& text, const std::vector<Head>& heads) {
  std::string made;
  for (size_t k = 0; k < heads.size(); ++k) {
    const std::string body =
        text.substr(heads[k].at, (k + 1 < heads.size() ? heads[k + 1].at : text.size()) - heads[k].at);
    const bool together = body.find("reduce") != std::string::npos || body.find("barrier") != std::string::npos ||
                          body.find("mr::attention_") != std::string::npos;
    const std::string& name = heads[k].name;
    const std::string visible = "extern \"C\" __attribute__((visibility(\"default\"))) void ";
    made += concat(visible, name, "_allows(unsigned long* bytes, int* threads) {\n  *bytes = mr::parameter_bytes(&",
                   name, ");\n  *threads = ", heads[k].threads, ";\n}\n", visible, name,
                   "_launch(const void* parameter, long blocks, int threads, long shared_bytes) {\n  mr::launch(&",
                   name, ", parameter, blocks, threads, ", together ? "true" : "false", ", shared_bytes);\n}\n");
  }
  return made;
}

// The text with the emulated hardware in place of the real one.
Result<std::string> translated(std::string text) {
  const std::string_view real = cuda_hardware();
  const size_t at = text.find(real);
  if (at == std::string::npos)
    return Error::make(ErrorKind::bad_input, "the kernel does not compile: it does not contain cuda_hardware.h");
  text.replace(at, real.size(), emulated_hardware());
  text = with_emulated_matrices(std::move(text));
  return text + entries(text, heads_in(text, at + emulated_hardware().size()));
}

Result<std::string> find_host_compiler() {
  const char* const told = std::getenv("MILLRACE_CXX");
  for (const std::string& name :
       {std::string(told == nullptr ? "" : told), std::string("g++"), std::string("clang++")}) {
    if (name.empty()) continue;
    if (const std::optional<std::string> path = find_program(name)) return *path;
  }
  return Error::make(ErrorKind::unavailable, "no C++ compiler found to replace NVRTC", "install g++");
}

std::string temporary_folder() {
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(failed);
  return failed ? "/tmp" : folder.string();
}

// Kernel names depend on this version.
std::string pretended_version() {
  const char* const version = std::getenv("MILLRACE_EMULATED_COMPILER");
  return version != nullptr
             ? version
             : concat("emulated ", sha256(concat(emulated_hardware(), emulated_matrices())).substr(0, 12));
}

// Misaligned wide accesses trap, as on a GPU. emulated_hardware.h says why nothing is fortified.
const std::vector<std::string> kFlags = {"-std=c++20",
                                         "-Og",
                                         "-fPIC",
                                         "-shared",
                                         "-fvisibility=hidden",
                                         "-ffp-contract=fast",
                                         "-w",
                                         "-U_FORTIFY_SOURCE",
                                         "-fsanitize=alignment",
                                         "-fsanitize-undefined-trap-on-error"};

// The file in which tests keep the compiled text; empty if they keep nothing.
std::string kept_object(const std::string& compiler, const std::string& text) {
  const std::string folder = test_kernels_folder();
  if (folder.empty()) return "";
  std::error_code failed;
  std::filesystem::create_directories(folder + "/emulated", failed);
  return concat(folder, "/emulated/", sha256(concat(compiler, " ", join(kFlags, " "), "\n", text)), ".so");
}

class EmulatedCompiler final : public GpuCompiler {
 public:
  const std::string& version() const override { return version_; }

  Result<std::string> compile(const std::string& source, const std::string& architecture) const override {
    if (!architecture.starts_with("sm_"))
      return Error::make(ErrorKind::failed, concat("no such architecture: ", architecture));
    const Result<std::string> text = translated(source);
    if (!text) return text.error();
    const Result<std::string> compiler = find_host_compiler();
    if (!compiler) return compiler.error();
    const std::string kept = kept_object(*compiler, *text);
    if (!kept.empty() && std::filesystem::exists(kept)) return read_file(kept, kLargest);
    const Result<TemporaryDirectory> folder = TemporaryDirectory::make(temporary_folder());
    if (!folder) return folder.error();
    const std::string made = folder->path() + "/kernels.so";
    const std::string from = folder->path() + "/kernels.cpp";
    if (Result<Done> written = write_file(from, *text); !written) return written.error();
    ProcessOptions options;
    options.timeout_seconds = kPatience;
    options.environment = {{"TMPDIR", folder->path()}, {"LC_ALL", "C"}};
    std::vector<std::string> command = {*compiler};
    command.insert(command.end(), kFlags.begin(), kFlags.end());
    command.insert(command.end(), {from, "-o", made});
    const Result<Finished> finished = run_process(command, options);
    if (!finished) return finished.error();
    if (finished->exit_code != 0)
      return Error::make(ErrorKind::bad_input,
                         concat("the kernel does not compile: ", finished->error.substr(0, 4000)));
    Result<std::string> object = read_file(made, kLargest);
    if (object && !kept.empty())
      static_cast<void>(write_file(kept, *object));  // if this fails, the next test compiles it again
    return object;
  }

 private:
  std::string version_ = pretended_version();
};

// --- Loading ---

struct Function {
  void (*launch)(const void* parameter, long blocks, int threads, long shared_bytes) = nullptr;
  unsigned long parameter_bytes = 0;
  int most_threads = 0;
};

class Module {
 public:
  static Result<std::shared_ptr<Module>> load(const std::string& bytes) {
    // Several launches of a plan share one object, which is loaded once.
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<Module>> known;
    const std::lock_guard lock(mutex);
    std::weak_ptr<Module>& here = known[sha256(bytes)];
    if (std::shared_ptr<Module> module = here.lock()) return module;
    const Result<TemporaryDirectory> folder = TemporaryDirectory::make(temporary_folder());
    if (!folder) return folder.error();
    const std::string path = folder->path() + "/kernels.so";
    if (Result<Done> written = write_file(path, bytes); !written) return written.error();
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr)
      return Error::make(ErrorKind::failed,
                         concat("cannot load a compiled kernel: CUDA_ERROR_INVALID_IMAGE: ", dlerror()));
    std::shared_ptr<Module> module(new Module(handle));
    here = module;
    return module;
  }
  ~Module() { dlclose(handle_); }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  Result<Function> function(const std::string& name) const {
    using Allows = void (*)(unsigned long*, int*);
    Function found;
    const auto allows = reinterpret_cast<Allows>(dlsym(handle_, (name + "_allows").c_str()));
    found.launch = reinterpret_cast<decltype(found.launch)>(dlsym(handle_, (name + "_launch").c_str()));
    if (allows == nullptr || found.launch == nullptr)
      return Error::make(ErrorKind::failed, concat("cannot find the kernel ", name, ": CUDA_ERROR_NOT_FOUND"));
    allows(&found.parameter_bytes, &found.most_threads);
    return found;
  }

 private:
  explicit Module(void* handle) : handle_(handle) {}

  void* handle_;
};

// --- Launching ---

struct Grid {
  std::string name;
  Function function;
  int64_t blocks = 1;
  int threads = 1;
  int64_t shared_bytes = 0;
};

// A time that is equal for equal kernels, and different for different ones.
double pretended_seconds(const std::vector<Grid>& grids) {
  double seconds = 0;
  for (const Grid& grid : grids) {
    const auto hash = std::stoul(sha256(grid.name).substr(0, 4), nullptr, 16);
    seconds += 5e-5 + 1e-9 * static_cast<double>(grid.blocks * grid.threads) + 1e-9 * static_cast<double>(hash % 9973);
  }
  return seconds;
}

class KernelLaunch final : public GpuLaunch {
 public:
  KernelLaunch(std::shared_ptr<Stream> stream, std::shared_ptr<Module> module, std::vector<Grid> grids,
               KernelParameters parameters, const Launch& launch)
      : work_(std::move(stream)),
        module_(std::move(module)),
        grids_(std::move(grids)),
        parameters_(std::move(parameters)),
        tensor_count_(static_cast<size_t>(launch.tensor_count)),
        scratch_bytes_(launch.scratch_bytes),
        reads_state_(!launch.subsequences.empty()) {}

  Result<Done> run(void* const* tensors, const double* arguments, const void* state, void* scratch) override {
    parameters_.set(tensors, arguments, state, scratch);
    const auto* const first = static_cast<const std::byte*>(parameters_.data());
    std::vector<std::byte> parameters(first, first + parameters_.size());
    std::vector<void*> pointers(tensors, tensors + tensor_count_);
    const auto execute = [module = module_, grids = grids_, parameters = std::move(parameters),
                          pointers = std::move(pointers), state, scratch, needs_state = reads_state_,
                          scratch_bytes = scratch_bytes_]() -> Result<Done> {
      const Memory& memory = Memory::of_process();
      const auto illegal = [&](const std::string& what) {
        return Error::make(ErrorKind::failed, concat("cannot run what is on the GPU's stream: ",
                                                     "CUDA_ERROR_ILLEGAL_ADDRESS: ", grids.front().name, ": ", what));
      };
      for (size_t k = 0; k < pointers.size(); ++k) {
        if (pointers[k] != nullptr && !memory.has(pointers[k], 1))
          return illegal(concat("tensor ", k, " is not in the device's memory"));
      }
      if ((needs_state || state != nullptr) && !memory.has(state, sizeof(GpuState)))
        return illegal("seed and step are not in the device's memory");
      if (scratch_bytes > 0 && !memory.has(scratch, scratch_bytes))
        return illegal("its scratch memory is not in the device's memory");
      if (scratch_bytes > 0 && reinterpret_cast<uintptr_t>(scratch) % 256 != 0)
        return illegal("its scratch is not aligned to 256");
      for (const Grid& grid : grids)
        grid.function.launch(parameters.data(), grid.blocks, grid.threads, grid.shared_bytes);
      if (!memory.is_intact()) return illegal("it writes beside an allocation");
      return Done{};
    };
    return work_.put(grids_.front().name, pretended_seconds(grids_), execute);
  }

  int64_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  LaunchedWork work_;
  std::shared_ptr<Module> module_;
  std::vector<Grid> grids_;
  KernelParameters parameters_;
  size_t tensor_count_;
  int64_t scratch_bytes_;
  bool reads_state_;
};

Error refused(const std::string& name, const std::string& why) {
  return Error::make(ErrorKind::failed, concat("the kernel ", name, " cannot be launched: ", why));
}

Result<Grid> find_grid(const Module& module, const GpuGrid& asked, size_t parameter_bytes) {
  if (asked.blocks < 1 || asked.blocks > INT32_MAX || asked.threads < 1)
    return refused(asked.function, concat(asked.blocks, " blocks of ", asked.threads, " threads"));
  if (asked.shared_bytes < 0 || asked.shared_bytes > kSharedBytes)
    return refused(asked.function, concat(asked.shared_bytes, " bytes of shared memory per block"));
  const Result<Function> function = module.function(asked.function);
  if (!function) return function.error();
  if (asked.threads > function->most_threads)
    return refused(asked.function, concat(asked.threads, " threads per block, but it allows ", function->most_threads));
  if (parameter_bytes != function->parameter_bytes)
    return refused(asked.function,
                   concat("its parameter has ", function->parameter_bytes, " bytes, but is given ", parameter_bytes));
  return Grid{asked.function, *function, asked.blocks, asked.threads, asked.shared_bytes};
}

}  // namespace

std::string with_emulated_matrices(std::string text) {
  const std::string_view real = cuda_matrices();
  const std::string_view emulated = emulated_matrices();
  for (size_t at = text.find(real); at != std::string::npos; at = text.find(real, at + emulated.size()))
    text.replace(at, real.size(), emulated);
  return text;
}

std::unique_ptr<GpuCompiler> make_compiler() { return std::make_unique<EmulatedCompiler>(); }

Result<Done> LaunchedWork::put(const std::string& name, double seconds, std::function<Result<Done>()> work) {
  if (stream_->is_recorded() && !ran_)
    return Error::make(ErrorKind::failed, concat(name, " is recorded, but was never run before"));
  ran_ = true;
  return stream_->put({std::move(work), seconds, token_, true});
}

Result<std::unique_ptr<GpuLaunch>> prepare_kernels(std::shared_ptr<Stream> stream, const Launch& launch,
                                                   const std::string& cubin) {
  if (launch.grids.empty()) return Error::make(ErrorKind::failed, "a launch of generated kernels has no grid");
  KernelParameters parameters(static_cast<size_t>(launch.tensor_count), launch.numbers, launch.subsequences);
  Result<std::shared_ptr<Module>> module = Module::load(cubin);
  if (!module) return module.error();
  std::vector<Grid> grids;
  for (const GpuGrid& asked : launch.grids) {
    Result<Grid> grid = find_grid(**module, asked, parameters.size());
    if (!grid) return grid.error();
    grids.push_back(std::move(*grid));
  }
  return std::unique_ptr<GpuLaunch>(std::make_unique<KernelLaunch>(std::move(stream), std::move(*module),
                                                                   std::move(grids), std::move(parameters), launch));
}

}  // namespace millrace::emulated
