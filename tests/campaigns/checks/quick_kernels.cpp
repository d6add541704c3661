#include "campaigns/checks/quick_kernels.h"

#include <algorithm>

#include "base/process.h"
#include "base/text.h"
#include "codegen/cpu/generate.h"
#include "device/cpu/compile.h"
#include "device/cpu/compiler.h"
#include "device/cpu/cpu_info.h"
#include "device/test_kernels.h"

namespace millrace::campaigns {
namespace {

constexpr double kCompilerSeconds = 300;
constexpr size_t kBatch = 64;  // kernels
constexpr size_t kTurns = 3;

std::string name_of(size_t source) { return concat("k_", source, "_of_campaign"); }

}  // namespace

QuickKernels::QuickKernels(Compiler compiler, std::string prelude, const std::string& folder)
    : compiler_(std::move(compiler)),
      prelude_(std::move(prelude)),
      cache_(folder, compiler_, prelude_, cpu_info().identity(), {kCompilerSeconds, kBatch}) {}

Result<QuickKernels> QuickKernels::make(TriedOn device) {
  Result<Compiler> compiler = find_compiler();
  if (!compiler) return compiler.error();
  std::replace(compiler->flags.begin(), compiler->flags.end(), std::string("-O3"), std::string("-O1"));
  if (device == TriedOn::gpu) compiler->flags.emplace_back("-U_FORTIFY_SOURCE");  // emulated_hardware.h says why
  return QuickKernels(std::move(*compiler), device == TriedOn::gpu ? emulated_prelude() : std::string(cpu_prelude()),
                      test_kernels(device == TriedOn::gpu ? "quick_cuda_kernels" : "quick_kernels", MILLRACE_BINARY));
}

// Finds the faulty kernels by their names in the compiler's messages, which come from #line directives.
void QuickKernels::leave_out_those_with_errors(const std::vector<std::string>& sources,
                                               std::vector<bool>& left_out) const {
  std::vector<NamedKernel> kernels;
  for (size_t k = 0; k < sources.size(); ++k)
    if (!left_out[k]) kernels.push_back({name_of(k), sources[k]});
  std::vector<std::string> arguments = {compiler_.path};
  arguments.insert(arguments.end(), compiler_.flags.begin(), compiler_.flags.end());
  arguments.insert(arguments.end(), {"-fsyntax-only", "-x", "c++", "-"});
  ProcessOptions options;
  options.timeout_seconds = kCompilerSeconds;
  options.input = translation_unit(prelude_, kernels);
  options.environment["LC_ALL"] = "C";
  const Result<Finished> finished = run_process(arguments, options);
  if (!finished || finished->exit_code == 0) return;
  for (size_t k = 0; k < sources.size(); ++k)
    if (finished->error.find(name_of(k) + ":") != std::string::npos) left_out[k] = true;
}

Result<std::vector<std::optional<CompiledKernel>>> QuickKernels::compile(
    const std::vector<std::string>& sources) const {
  std::vector<bool> broken(sources.size(), false);
  // An error in a template is reported for its first user only. What remains after these turns is found by halving.
  for (size_t before = sources.size() + 1, turn = 0; turn < kTurns; ++turn) {
    leave_out_those_with_errors(sources, broken);
    const auto now = static_cast<size_t>(std::count(broken.begin(), broken.end(), true));
    if (now == before || now == 0) break;
    before = now;
  }
  std::vector<KernelSource> whole;
  for (size_t k = 0; k < sources.size(); ++k)
    if (!broken[k]) whole.push_back({sources[k]});
  const std::vector<Result<CompiledKernel>> compiled = cache_.get(whole, 1);
  std::vector<std::optional<CompiledKernel>> kernels;
  size_t next = 0;
  for (size_t k = 0; k < sources.size(); ++k) {
    kernels.emplace_back();
    if (broken[k]) continue;
    const Result<CompiledKernel>& kernel = compiled[next++];
    if (kernel)
      kernels.back() = *kernel;
    else if (kernel.error().kind != ErrorKind::bad_input)
      return kernel.error();
  }
  return kernels;
}

}  // namespace millrace::campaigns
