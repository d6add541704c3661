/* Plans and commands for other languages: the C++ API behind plain functions, for ctypes and for code that another
 * compiler made. A function that fails returns an exit code of the program `millrace`, and millrace_error() says why.
 * Nothing is thrown, and nothing here prints. */
#pragma once

/* It is C, whatever C++ would have in its place. NOLINTBEGIN */

#include <stdint.h>

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
/* Of this thread's last call that failed, for people. */
MILLRACE_EXPORT const char* millrace_error(void);
/* Gives back what millrace_command returned. */
MILLRACE_EXPORT void millrace_free(char* text);

/* --- Commands --- */

/* A progress, as JSON, or a line for the user. */
typedef void (*millrace_listener)(const char* text, void* data);

/* `request`: {"command": "optimize", "program": "layer.py", …}, the fields of millrace.h's options by their names.
 * `*text` is the command's output, to be given back. Listeners may be null. */
MILLRACE_EXPORT int millrace_command(const char* request, millrace_listener progress, millrace_listener notice,
                                     void* data, char** text);

/* --- Plans, of millrace/plan.h --- */

typedef struct millrace_plan millrace_plan;

enum { MILLRACE_ARGUMENTS = 0, MILLRACE_RESULTS = 1, MILLRACE_RESULT_GRADIENTS = 2, MILLRACE_ARGUMENT_GRADIENTS = 3 };

/* Valid for as long as the plan is. */
typedef struct {
  const char* name;
  const char* dtype; /* "" for a gradient that there is not */
  int32_t rank;
  const int64_t* shape;
  const int64_t* strides; /* in elements */
  int64_t bytes;
  int32_t scalar;
  int32_t read_by_backward;
  int32_t behind; /* the position of what it lies right behind, in one array; -1: anywhere */
} millrace_tensor;

typedef struct {
  const void* const* arguments;
  void* const* results;
  const void* const* result_gradients; /* forward: null */
  void* const* argument_gradients;     /* forward: null */
  void* saved;
  void* workspace;
  const void* random; /* seed and step, two 64-bit numbers beside the tensors */
  void* stream;       /* of a plan for a GPU */
} millrace_call;

/* Works in the caller's memory: one plan for several calls under way. */
MILLRACE_EXPORT int millrace_plan_load(const char* path, millrace_plan** plan);
MILLRACE_EXPORT void millrace_plan_unload(millrace_plan* plan);
MILLRACE_EXPORT int32_t millrace_plan_count(const millrace_plan* plan, int32_t list);
MILLRACE_EXPORT millrace_tensor millrace_plan_tensor(const millrace_plan* plan, int32_t list, int32_t position);
MILLRACE_EXPORT const char* millrace_plan_device(const millrace_plan* plan);
MILLRACE_EXPORT int64_t millrace_plan_saved_bytes(const millrace_plan* plan);
MILLRACE_EXPORT int64_t millrace_plan_workspace_bytes(const millrace_plan* plan);
MILLRACE_EXPORT double millrace_plan_predicted_seconds(const millrace_plan* plan);
/* Threads take turns. */
MILLRACE_EXPORT int millrace_plan_forward(millrace_plan* plan, const millrace_call* call);
MILLRACE_EXPORT int millrace_plan_backward(millrace_plan* plan, const millrace_call* call);

#ifdef __cplusplus
}
#endif

/* NOLINTEND */
