// `millrace doctor`: what Millrace finds on this machine, and how to install what is missing.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/directories.h"
#include "base/quote.h"
#include "base/text.h"
#include "device/cpu/blas.h"
#include "device/cpu/compiler.h"
#include "device/cpu/cpu_info.h"
#include "device/cpu/machine_load.h"
#include "device/gpu.h"
#include "measure/sqlite.h"
#include "millrace/millrace.h"
#include "report/json_text.h"
#include "report/units.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr int kDoctorVersion = 1;
constexpr std::chrono::milliseconds kLoadTime(200);
constexpr const char* kSteadyClock = "performance";

// One line of the report.
struct Finding {
  std::string name;
  std::string what;  // empty: missing
  std::string path;
  std::string missing;  // why, and how to install it
};

std::string one_line(const Error& error) {
  const Diagnostic& why = error.diagnostics.front();
  return why.remedy.empty() ? why.message : concat(why.message, ": ", why.remedy);
}

// ---- CPU ----

Finding processor(const CpuInfo& cpu) {
  return {"processor",
          concat(cpu.model, ", ", cpu.cores, cpu.cores == 1 ? " core, " : " cores, ", shown_bytes(cpu.last_level_cache),
                 " of cache, ", shown_bytes(cpu.memory), " of memory"),
          "", ""};
}

// The processor's instructions for half precision, as the kernel names their sets, and as people do.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kHalfInstructions = {
    {{"f16c", "F16C"},
     {"avx512_bf16", "AVX-512 BF16"},
     {"avx512_fp16", "AVX-512 FP16"},
     {"amx_bf16", "AMX BF16"},
     {"amx_fp16", "AMX FP16"},
     {"asimdhp", "NEON FP16"},
     {"bf16", "NEON BF16"},
     {"svebf16", "SVE BF16"}}};

Finding half_precision(const CpuInfo& cpu) {
  const std::vector<std::string> features = split(cpu.features, ' ');
  std::vector<std::string> found;
  for (const auto& [feature, name] : kHalfInstructions) {
    if (std::find(features.begin(), features.end(), feature) != features.end()) found.emplace_back(name);
  }
  return {"half precision", found.empty() ? "no instructions: computed as float32" : join(found, ", "), "", ""};
}

Finding threads_used() {
  const bool told = std::getenv("OMP_NUM_THREADS") != nullptr;
  const char* const from = threads() == thread_limit() ? " (OMP_THREAD_LIMIT allows no more)"
                           : told                      ? " (from OMP_NUM_THREADS)"
                                                       : " (all available)";
  return {"threads", concat(threads(), from), "", ""};
}

// What may disturb measurements.
Finding load() {
  const LoadMeter meter;
  std::this_thread::sleep_for(kLoadTime);
  const std::string busy = disturbance(meter.others_cores(), threads());
  return {"load", busy.empty() ? concat("quiet (load average ", load_average(), ")") : concat("busy: ", busy), "", ""};
}

Finding governor() {
  const std::string found = clock_governor();
  const std::string what = found.empty()           ? "unknown: this machine does not tell"
                           : found == kSteadyClock ? found
                                                   : concat(found, ": the clock varies; cpupower frequency-set -g ",
                                                            kSteadyClock, " keeps it steady");
  return {"governor", what, "", ""};
}

Finding compiler() {
  const Result<Compiler> found = find_compiler();
  if (!found) return {"compiler", "", "", one_line(found.error())};
  return {"compiler", found->version, found->path, ""};
}

Finding blas(GemmLibrary library) {
  const BlasInfo& info = blas_info(library);
  const std::string what = info.there ? concat(info.version, ": ", abilities_of(library)) : "";
  return {std::string(name_of(library)), what, info.path, info.missing};
}

Finding sqlite() {
  const Result<std::string> found = sqlite_version();
  if (!found) return {"SQLite", "", "", one_line(found.error())};
  return {"SQLite", *found, "", ""};
}

// The size of all files in the folder; other processes may change it meanwhile.
int64_t size_of(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code failed;
  for (fs::recursive_directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    std::error_code gone;
    const bool is_file = entry->is_regular_file(gone) && !entry->is_symlink(gone);
    const auto size = is_file ? entry->file_size(gone) : 0;
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

Finding folder(const std::string& name, const Result<std::string>& found) {
  if (!found) return {name, "", "", one_line(found.error())};
  std::error_code failed;
  if (!fs::exists(*found, failed)) return {name, "not created yet", *found, ""};
  if (const Result<Done> usable = make_private_directory(*found); !usable)
    return {name, "", *found, one_line(usable.error())};
  return {name, shown_bytes(size_of(*found)), *found, ""};
}

// ---- GPU ----

Finding software(const std::string& name, const GpuSoftware& found) {
  // Without the backend, nothing else was searched.
  const std::string missing = found.missing.empty() && found.version.empty() ? "not searched" : found.missing;
  return {name, found.version, found.path, found.version.empty() ? missing : ""};
}

Finding device(const GpuReport& report) {
  if (!report.device) return {"GPU", "", "", report.no_device};
  const GpuInfo& gpu = *report.device;
  constexpr int kKilo = 1000;
  return {"GPU",
          concat(gpu.name, ", ", gpu.architecture(), ", ", gpu.multiprocessors, " multiprocessors, ",
                 shown_bytes(gpu.memory_bytes), " of memory, ", shown_bytes(gpu.l2_bytes), " of L2 cache, ",
                 gpu.clock_khz / kKilo, " MHz, memory ", gpu.memory_clock_khz / kKilo, " MHz"),
          "", ""};
}

// ---- Output ----

// Texts come from libraries and users: replaces control characters and invalid UTF-8.
std::string printable_text(std::string text) {
  constexpr unsigned char kLastAscii = 0x7f;
  const bool readable = valid_utf8_prefix(text) == text.size();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) > kLastAscii && !readable) c = '?';
  }
  return without_controls(text, ' ');
}

std::string as_text(const std::vector<Finding>& findings) {
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size());
  std::string text = concat("Millrace ", version(), "\n");
  for (const Finding& finding : findings) {
    const std::string line = finding.name + std::string(width - finding.name.size() + 2, ' ');
    const bool says_so = finding.missing.find(" is missing") != std::string::npos;
    const std::string missing = says_so ? finding.missing : concat("missing: ", finding.missing);
    std::string what = finding.what.empty() ? missing : finding.what;
    if (!finding.path.empty()) what += concat(" (", finding.path, ")");
    text += printable_text(line + what) + "\n";
  }
  return text;
}

nlohmann::ordered_json gpu_json(const GpuInfo& gpu) {
  return {{"name", printable_text(gpu.name)},
          {"compute_capability", concat(gpu.major, ".", gpu.minor)},
          {"multiprocessors", gpu.multiprocessors},
          {"memory_bytes", gpu.memory_bytes},
          {"l2_bytes", gpu.l2_bytes},
          {"shared_bytes", gpu.shared_bytes},
          {"clock_khz", gpu.clock_khz},
          {"memory_clock_khz", gpu.memory_clock_khz},
          {"driver", gpu.driver},
          {"nvrtc", gpu.nvrtc},
          {"cublaslt", gpu.cublaslt},
          {"cudnn", gpu.cudnn}};
}

std::string as_json(const std::vector<Finding>& findings, const CpuInfo& cpu, const GpuReport& report) {
  JsonText json;
  json.field("schema_version", kDoctorVersion);
  json.field("version", version());
  json.field("processor", {{"model", printable_text(cpu.model)},
                           {"cores", cpu.cores},
                           {"threads", threads()},
                           {"cache_bytes", cpu.last_level_cache},
                           {"memory_bytes", cpu.memory}});
  json.field("gpu", report.device ? gpu_json(*report.device) : nlohmann::ordered_json());
  json.list("findings", findings.size(), [&](size_t k) {
    const Finding& finding = findings[k];
    return nlohmann::ordered_json{{"name", finding.name},
                                  {"there", !finding.what.empty()},
                                  {"what", printable_text(finding.what)},
                                  {"path", printable_text(finding.path)},
                                  {"missing", printable_text(finding.missing)}};
  });
  return std::move(json).finish();
}

}  // namespace

Result<std::string> examine_machine(const DoctorOptions& options) {
  const CpuInfo cpu = cpu_info();
  const GpuReport report = inspect_gpu();
  const std::vector<Finding> findings = {processor(cpu),
                                         half_precision(cpu),
                                         threads_used(),
                                         load(),
                                         governor(),
                                         compiler(),
                                         blas(GemmLibrary::openblas),
                                         blas(GemmLibrary::blis),
                                         blas(GemmLibrary::onednn),
                                         blas(GemmLibrary::mkl),
                                         sqlite(),
                                         folder("cache", find_cache_directory()),
                                         folder("data", find_data_directory()),
                                         device(report),
                                         software("GPU backend", report.backend),
                                         software("CUDA driver", report.driver),
                                         software("NVRTC", report.nvrtc),
                                         software("cuBLASLt", report.cublaslt),
                                         software("cuDNN", report.cudnn)};
  return options.format == Format::json ? as_json(findings, cpu, report) : as_text(findings);
}

}  // namespace millrace
