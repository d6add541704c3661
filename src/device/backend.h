// Backends: what Millrace compiles for and runs on. backend.cpp alone knows their names. What they can do is in their
// Target; measure/trial_runner.h tries candidates on one, and driver/plan_folder.h writes and loads its plans. The
// emulated GPU of the tests is the backend "cuda" with another library (device/gpu_backend.h). Test:
// tests/device/backend_test.cpp
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/gemm_library.h"
#include "base/stored_type.h"
#include "base/target.h"
#include "device/cpu/compiler.h"
#include "device/gpu.h"
#include "device/launch.h"
#include "millrace/result.h"

namespace millrace {

class Backend;

// What is known of a backend before it is opened.
struct BackendKind {
  std::string_view name;            // as --device takes it
  std::string_view text_prefix;     // of Backend::text()
  std::string_view default_budget;  // of an exploration
  Target target;                    // enough to find partitions; an open backend's target has the device's own numbers
  Result<std::shared_ptr<Backend>> (*open)(const BackendKind& kind, int threads);
};

struct BackendLibraries {
  std::vector<GemmLibrary> there;
  std::map<GemmLibrary, std::string> missing;            // why
  std::set<std::pair<GemmLibrary, StoredType>> lacking;  // types that a library does not multiply on this device
};

class Backend {
 public:
  explicit Backend(const BackendKind& kind) : kind_(&kind) {}
  virtual ~Backend() = default;

  std::string_view name() const { return kind_->name; }
  virtual const Target& target() const = 0;
  virtual const BackendLibraries& libraries() const = 0;  // loaded on the first call
  // Everything that affects times, as one text.
  virtual std::string text() const = 0;

  // Whether kernels can be compiled, and why not. Finds the compiler on the first call.
  virtual Result<Done> can_compile() const = 0;
  // The compiler of kernels that run on the host, and that of all other kernels. Each fails for a backend of the other
  // kind, and unless can_compile().
  virtual Result<Compiler> host_compiler() const;
  virtual Result<std::shared_ptr<GpuCompiler>> gpu_compiler() const;

  // Scratch memory of a launch, in bytes.
  virtual int64_t scratch_bytes(const Launch& launch) const = 0;

  // The device that has its own memory; null if target() has none.
  virtual std::shared_ptr<Gpu> gpu() const { return nullptr; }

 protected:
  const BackendKind& kind() const { return *kind_; }

 private:
  const BackendKind* kind_;
};

// All backends that --device can name. The first is the host's CPU.
const std::vector<BackendKind>& backends();
const BackendKind& host_backend();

// Fails with `unavailable` for an unknown name.
Result<const BackendKind*> backend_named(std::string_view name);

// The backend that wrote a Backend::text(); the host's if none did.
const BackendKind& backend_of_text(std::string_view text);

// Opens a backend. `threads`: of CPU kernels; 0: all that we may use. Fails with `unavailable` if the name is unknown,
// or if the device or its driver is missing. Looks for no compiler.
Result<std::shared_ptr<Backend>> find_backend(std::string_view name, int threads = 0);

}  // namespace millrace
