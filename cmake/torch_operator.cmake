# libmillrace_torch.so, the operators of millrace.torch, for wheels. It is built if PyTorch is found, and then runs with
# that PyTorch and with all later ones: it uses the stable ABI of the oldest that Millrace supports. Without it,
# millrace.torch compiles the same source when it is first imported (python/millrace/torch/build.py).
set(MILLRACE_TORCH "" CACHE PATH "the folder of the Python package torch; by default that of the Python that builds a wheel")
if(SKBUILD AND NOT MILLRACE_TORCH)
  # pip hides the packages of its environment from a build, but its Python still knows their folder.
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_paths()['platlib'])"
                  OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(EXISTS ${packages}/torch/version.py)
    set(MILLRACE_TORCH ${packages}/torch)
  endif()
endif()
if(NOT SKBUILD AND NOT MILLRACE_TORCH)
  return()
endif()

set(MILLRACE_OLDEST_TORCH 2.10)
set(compiled_later "millrace.torch will compile it when it is first imported")
if(NOT MILLRACE_TORCH)
  message(STATUS "PyTorch operator: not built: no PyTorch in ${packages} (install it, or set MILLRACE_TORCH to its "
                 "folder); ${compiled_later}")
  return()
endif()
file(STRINGS ${MILLRACE_TORCH}/version.py version REGEX "^__version__ = ")
string(REGEX MATCH "[0-9]+[.][0-9]+" version "${version}")
if(version VERSION_LESS MILLRACE_OLDEST_TORCH)
  message(STATUS "PyTorch operator: not built: ${MILLRACE_TORCH} is version ${version}, and ${MILLRACE_OLDEST_TORCH} is "
                 "needed; ${compiled_later}")
  return()
endif()
message(STATUS "PyTorch operator: built with PyTorch ${version} in ${MILLRACE_TORCH}")

add_library(millrace_torch MODULE bindings/torch/operator.cpp)
set_target_properties(millrace_torch PROPERTIES CXX_VISIBILITY_PRESET hidden)
target_compile_definitions(millrace_torch PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)  # 2.10
target_compile_options(millrace_torch PRIVATE -w)  # PyTorch's headers
target_include_directories(millrace_torch PRIVATE include)
target_include_directories(millrace_torch SYSTEM PRIVATE ${MILLRACE_TORCH}/include)
# PyTorch is loaded already when the operator is. The path of this one must not be in the file.
target_link_libraries(millrace_torch PRIVATE millrace_shared ${MILLRACE_TORCH}/lib/libtorch_cpu.so)
