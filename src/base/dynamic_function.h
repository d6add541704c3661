// Functions of a library that was loaded at run time. Tests: tests/device/blas_test.cpp,
// tests/measure/database_test.cpp
#pragma once

#include <dlfcn.h>

namespace millrace {

// Looks a function up by its name. `function` is null, and the result false, if the library lacks it.
template <class Function>
bool find_function(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace millrace
