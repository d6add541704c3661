/* Plans and commands for other languages: the C++ API as plain functions, for ctypes and for code from another
 * compiler. A function that fails returns an exit code of the program `millrace`, and millrace_error() gives the
 * reason. Nothing throws and nothing prints. Test: tests/bindings/c_api_test.cpp */
#pragma once

/* This is C: checks for C++ do not apply. NOLINTBEGIN */

#include <stdint.h>

#include "millrace/version.h"

#define MILLRACE_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

enum {
  MILLRACE_DONE = 0,
  MILLRACE_FAILED = 1,
  MILLRACE_BAD_INPUT = 2,
  MILLRACE_UNAVAILABLE = 3,
  MILLRACE_NO_CONFIGURATION = 4,
};

/* "0.1.0" */
MILLRACE_EXPORT const char* millrace_version(void);
/* The message of this thread's last failed call. */
MILLRACE_EXPORT const char* millrace_error(void);
/* Frees the text that millrace_command returned. */
MILLRACE_EXPORT void millrace_free(char* text);

/* --- Commands --- */

/* Receives the progress as JSON, or a line for the user. */
typedef void (*millrace_listener)(const char* text, void* data);

/* `request`: {"command": "optimize", "program": "layer.py", …}, the fields of millrace.h's options by their names.
 * `*text` is the command's output; free it with millrace_free. Listeners may be null. */
MILLRACE_EXPORT int millrace_command(const char* request, millrace_listener progress, millrace_listener notice,
                                     void* data, char** text);

/* --- Plans: see millrace/plan.h --- */

typedef struct millrace_plan millrace_plan;

enum { MILLRACE_ARGUMENTS = 0, MILLRACE_RESULTS = 1, MILLRACE_RESULT_GRADIENTS = 2, MILLRACE_ARGUMENT_GRADIENTS = 3 };

/* Valid as long as the plan. */
typedef struct {
  const char* name;
  const char* dtype; /* "" for the gradient of an argument without one */
  int32_t rank;
  const int64_t* shape;
  const int64_t* strides; /* in elements */
  int64_t bytes;
  int32_t scalar;
  int32_t read_by_backward;
  int32_t follows; /* the position of the tensor that it directly follows in memory; -1: none */
} millrace_tensor;

typedef struct {
  const void* const* arguments;
  void* const* results;
  const void* const* result_gradients; /* forward: null */
  void* const* argument_gradients;     /* forward: null */
  void* saved;
  void* workspace;
  const void* random; /* seed and step, two 64-bit numbers in the tensors' memory */
  void* stream;       /* for a plan on a GPU */
} millrace_call;

/* The plan works in the caller's memory, so that several calls can be in flight. */
MILLRACE_EXPORT int millrace_plan_load(const char* path, millrace_plan** plan);
MILLRACE_EXPORT void millrace_plan_unload(millrace_plan* plan);
MILLRACE_EXPORT int32_t millrace_plan_count(const millrace_plan* plan, int32_t list);
MILLRACE_EXPORT millrace_tensor millrace_plan_tensor(const millrace_plan* plan, int32_t list, int32_t position);
MILLRACE_EXPORT const char* millrace_plan_device(const millrace_plan* plan);
MILLRACE_EXPORT int64_t millrace_plan_saved_bytes(const millrace_plan* plan);
MILLRACE_EXPORT int64_t millrace_plan_workspace_bytes(const millrace_plan* plan);
MILLRACE_EXPORT double millrace_plan_predicted_seconds(const millrace_plan* plan);
/* Calls from several threads run one at a time. */
MILLRACE_EXPORT int millrace_plan_forward(millrace_plan* plan, const millrace_call* call);
MILLRACE_EXPORT int millrace_plan_backward(millrace_plan* plan, const millrace_call* call);

#ifdef __cplusplus
}
#endif

/* NOLINTEND */
