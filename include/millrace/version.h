/* The version at compile time; millrace::version() and millrace_version() tell that of the library at run time.
 * Test: tests/driver/plan_tensors_test.cpp */
#pragma once

#define MILLRACE_VERSION_MAJOR 0
#define MILLRACE_VERSION_MINOR 1
#define MILLRACE_VERSION_PATCH 0
#define MILLRACE_VERSION_STRING "0.1.0"
/* 100 for 0.1.0, 10203 for 1.2.3: to compare with #if */
#define MILLRACE_VERSION_NUMBER (MILLRACE_VERSION_MAJOR * 10000 + MILLRACE_VERSION_MINOR * 100 + MILLRACE_VERSION_PATCH)
