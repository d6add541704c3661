#include "millrace/c_api.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "millrace/millrace.h"
#include "millrace/plan.h"

// A plan and its lock.
struct millrace_plan {
  millrace::Plan plan;
  std::mutex turn;
};

namespace {

using Json = nlohmann::json;
using millrace::Error;
using millrace::ErrorKind;
using millrace::Result;

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): one per thread, like errno
thread_local std::string last_error;

int code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_input: return MILLRACE_BAD_INPUT;
    case ErrorKind::unavailable: return MILLRACE_UNAVAILABLE;
    case ErrorKind::no_configuration: return MILLRACE_NO_CONFIGURATION;
    case ErrorKind::failed: break;
  }
  return MILLRACE_FAILED;
}

int fail(const Error& error) {
  last_error = millrace::to_string(error);
  return code_of(error.kind);
}

int fail(int code, const std::string& message) {
  last_error = message;
  return code;
}

// Nothing may throw into C. Possible exceptions are an allocation failure and JSON of the wrong type.
template <class Function>
int guarded(Function function) {
  try {
    return function();
  } catch (const Json::exception& wrong) {
    return fail(MILLRACE_BAD_INPUT, std::string("invalid request: ") + wrong.what());
  } catch (const std::exception& wrong) {
    return fail(MILLRACE_FAILED, wrong.what());
  }
}

// --- Commands ---

struct Listeners {
  millrace_listener progress = nullptr;
  millrace_listener notice = nullptr;
  void* data = nullptr;
};

template <class T>
void take(const Json& request, const char* field, T& into) {
  if (const auto found = request.find(field); found != request.end()) found->get_to(into);
}

millrace::Format format_of(const Json& request) {
  const std::string name = request.value("format", "json");
  if (name == "text") return millrace::Format::text;
  if (name == "dot") return millrace::Format::dot;
  if (name == "graph") return millrace::Format::graph;
  return millrace::Format::json;
}

millrace::ProgramSource source_of(const Json& request) {
  millrace::ProgramSource source;
  request.at("program").get_to(source.path);
  take(request, "entry", source.entry);
  take(request, "sizes", source.sizes);
  take(request, "dtype", source.dtype);
  return source;
}

millrace::ExploreOptions explore_options(const Json& request, const Listeners& listeners) {
  millrace::ExploreOptions options;
  options.program = source_of(request);
  take(request, "device", options.device);
  take(request, "layouts", options.layouts);
  take(request, "budget", options.budget);
  take(request, "exhaustive", options.exhaustive);
  take(request, "shard", options.shard);
  take(request, "threads", options.threads);
  take(request, "database", options.database);
  take(request, "explain", options.explain);
  take(request, "width", options.width);
  options.format = format_of(request);
  if (listeners.progress != nullptr) {
    options.progress = [listeners](const millrace::Progress& so_far) {
      const Json json = {{"done", so_far.done},       {"total", so_far.total}, {"bound", so_far.bound},
                         {"seconds", so_far.seconds}, {"left", so_far.left},   {"doing", so_far.doing}};
      listeners.progress(json.dump().c_str(), listeners.data);
    };
  }
  if (listeners.notice != nullptr)
    options.notice = [listeners](const std::string& line) { listeners.notice(line.c_str(), listeners.data); };
  if (listeners.notice != nullptr)
    options.program.warn = [notice = options.notice](const millrace::Diagnostic& warning) {
      notice(millrace::warning_text(warning));
    };
  return options;
}

Result<std::string> analyze(const Json& request, const Listeners&) {
  millrace::AnalyzeOptions options;
  options.program = source_of(request);
  options.format = format_of(request);
  take(request, "fast_memory_bytes", options.fast_memory_bytes);
  take(request, "width", options.width);
  return millrace::analyze_program(options);
}

Result<std::string> fuse(const Json& request, const Listeners&) {
  millrace::FuseOptions options;
  options.program = source_of(request);
  options.format = format_of(request);
  take(request, "explain", options.explain);
  take(request, "width", options.width);
  return millrace::fuse_program(options);
}

Result<std::string> explore(const Json& request, const Listeners& listeners) {
  return millrace::explore_program(explore_options(request, listeners));
}

Result<std::string> select(const Json& request, const Listeners& listeners) {
  millrace::SelectOptions options;
  options.explore = explore_options(request, listeners);
  take(request, "method", options.method);
  take(request, "seconds", options.seconds);
  return millrace::select_program(options);
}

Result<std::string> optimize(const Json& request, const Listeners& listeners) {
  millrace::OptimizeOptions options;
  options.explore = explore_options(request, listeners);
  take(request, "method", options.method);
  take(request, "in", options.in);
  request.at("out").get_to(options.out);
  return request.at("command") == "plan" ? millrace::plan_program(options) : millrace::optimize_program(options);
}

Result<std::string> bench(const Json& request, const Listeners&) {
  millrace::BenchOptions options;
  request.at("program").get_to(options.path);
  take(request, "in", options.in);
  take(request, "seconds", options.seconds);
  take(request, "keep_denormals", options.keep_denormals);
  options.format = format_of(request);
  return millrace::bench_plan(options);
}

Result<std::string> run(const Json& request, const Listeners& listeners) {
  using Command = Result<std::string> (*)(const Json&, const Listeners&);
  const std::map<std::string, Command> commands = {{"analyze", analyze}, {"fuse", fuse},         {"explore", explore},
                                                   {"select", select},   {"optimize", optimize}, {"plan", optimize},
                                                   {"bench", bench}};
  const auto found = commands.find(request.at("command").get<std::string>());
  if (found != commands.end()) return found->second(request, listeners);
  return Error::make(ErrorKind::bad_input, "unknown command",
                     "use analyze, fuse, explore, select, optimize, plan or bench");
}

// --- Plans ---

const std::vector<millrace::TensorInfo>& list_of(const millrace::Plan& plan, int32_t list) {
  switch (list) {
    case MILLRACE_RESULTS: return plan.results();
    case MILLRACE_RESULT_GRADIENTS: return plan.result_gradients();
    case MILLRACE_ARGUMENT_GRADIENTS: return plan.argument_gradients();
    default: return plan.arguments();
  }
}

millrace::Tensors tensors_of(const millrace::Plan& plan, const millrace_call& call) {
  millrace::Tensors tensors;
  tensors.arguments = {call.arguments, plan.arguments().size()};
  tensors.results = {call.results, plan.results().size()};
  if (call.result_gradients != nullptr)
    tensors.result_gradients = {call.result_gradients, plan.result_gradients().size()};
  if (call.argument_gradients != nullptr)
    tensors.argument_gradients = {call.argument_gradients, plan.argument_gradients().size()};
  tensors.saved = call.saved;
  tensors.workspace = call.workspace;
  tensors.random = call.random;
  tensors.stream = call.stream;
  return tensors;
}

using Pass = Result<millrace::Done> (millrace::Plan::*)(const millrace::Tensors&, uint64_t, uint32_t);

int run_pass(millrace_plan* plan, const millrace_call* call, Pass pass) {
  return guarded([&] {
    const std::lock_guard<std::mutex> turn(plan->turn);
    const Result<millrace::Done> done = (plan->plan.*pass)(tensors_of(plan->plan, *call), 0, 0);
    return done ? MILLRACE_DONE : fail(done.error());
  });
}

}  // namespace

extern "C" {

const char* millrace_version(void) {
  static const std::string kVersion = millrace::version();
  return kVersion.c_str();
}

const char* millrace_error(void) { return last_error.c_str(); }

void millrace_free(char* text) { std::free(text); }

int millrace_command(const char* request, millrace_listener progress, millrace_listener notice, void* data,
                     char** text) {
  return guarded([&] {
    const Result<std::string> made = run(Json::parse(request), {progress, notice, data});
    if (!made) return fail(made.error());
    *text = static_cast<char*>(std::malloc(made->size() + 1));
    if (*text == nullptr) return fail(MILLRACE_FAILED, "out of memory for the command's output");
    std::memcpy(*text, made->c_str(), made->size() + 1);
    return static_cast<int>(MILLRACE_DONE);
  });
}

int millrace_plan_load(const char* path, millrace_plan** plan) {
  return guarded([&] {
    Result<millrace::Plan> loaded = millrace::Plan::load(path, millrace::PlanMemory::callers);
    if (!loaded) return fail(loaded.error());
    *plan = new millrace_plan{std::move(*loaded), {}};
    return static_cast<int>(MILLRACE_DONE);
  });
}

void millrace_plan_unload(millrace_plan* plan) { delete plan; }

int32_t millrace_plan_count(const millrace_plan* plan, int32_t list) {
  return static_cast<int32_t>(list_of(plan->plan, list).size());
}

millrace_tensor millrace_plan_tensor(const millrace_plan* plan, int32_t list, int32_t position) {
  const millrace::TensorInfo& info = list_of(plan->plan, list)[static_cast<size_t>(position)];
  return {info.name.c_str(),
          info.dtype.c_str(),
          static_cast<int32_t>(info.shape.size()),
          info.shape.data(),
          info.strides.data(),
          info.bytes,
          info.scalar ? 1 : 0,
          info.read_by_backward ? 1 : 0,
          info.follows};
}

const char* millrace_plan_device(const millrace_plan* plan) { return plan->plan.device().c_str(); }

int64_t millrace_plan_saved_bytes(const millrace_plan* plan) { return plan->plan.saved_bytes(); }

int64_t millrace_plan_workspace_bytes(const millrace_plan* plan) { return plan->plan.workspace_bytes(); }

double millrace_plan_predicted_seconds(const millrace_plan* plan) { return plan->plan.predicted_seconds(); }

int millrace_plan_forward(millrace_plan* plan, const millrace_call* call) {
  return run_pass(plan, call, &millrace::Plan::forward);
}

int millrace_plan_backward(millrace_plan* plan, const millrace_call* call) {
  return run_pass(plan, call, &millrace::Plan::backward);
}

}  // extern "C"
