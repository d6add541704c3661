# libmillrace_cuda.so: all code that uses CUDA, in a separate library. It is built if CUDA's headers are found. It links
# to no CUDA library and loads them when a GPU is requested.

set(MILLRACE_CUDA_FOLDERS $ENV{CUDA_PATH}/include $ENV{CUDA_HOME}/include /usr/local/cuda/include /opt/cuda/include)
# CUDA's Python packages contain the headers too.
execute_process(COMMAND python3 -c "import sysconfig; print(sysconfig.get_paths()['purelib'])"
                OUTPUT_VARIABLE MILLRACE_PACKAGES OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(GLOB MILLRACE_CUDA_FOLDERS_FOUND /usr/local/cuda/targets/*/include /usr/local/cuda-*/include
     ${MILLRACE_PACKAGES}/nvidia/*/include)
list(APPEND MILLRACE_CUDA_FOLDERS ${MILLRACE_CUDA_FOLDERS_FOUND})
set(MILLRACE_CUDA_MISSING "")
foreach(header cuda.h nvrtc.h cublasLt.h)
  string(MAKE_C_IDENTIFIER ${header} name)
  find_path(MILLRACE_FOLDER_OF_${name} ${header} PATHS ${MILLRACE_CUDA_FOLDERS})
  mark_as_advanced(MILLRACE_FOLDER_OF_${name})
  if(MILLRACE_FOLDER_OF_${name})
    list(APPEND MILLRACE_CUDA_INCLUDES ${MILLRACE_FOLDER_OF_${name}})
  else()
    list(APPEND MILLRACE_CUDA_MISSING ${header})
  endif()
endforeach()

if(MILLRACE_CUDA_MISSING)
  list(JOIN MILLRACE_CUDA_MISSING ", " MILLRACE_CUDA_MISSING)
  message(STATUS "GPU backend: not built: ${MILLRACE_CUDA_MISSING} not found (install CUDA's headers, or set CUDA_HOME)")
  return()
endif()
list(REMOVE_DUPLICATES MILLRACE_CUDA_INCLUDES)
message(STATUS "GPU backend: built with the headers in ${MILLRACE_CUDA_INCLUDES}")

file(GLOB MILLRACE_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.cpp)
# It compiles the files of base/ that it needs and hides their symbols, so that neither library uses the other's copies.
add_library(millrace_cuda MODULE ${MILLRACE_CUDA_SOURCES} src/base/quote.cpp
            src/base/result.cpp src/base/stored_type.cpp src/base/text.cpp)
set_target_properties(millrace_cuda PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                      LINK_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/exports.map)
target_include_directories(millrace_cuda PRIVATE src include)
target_include_directories(millrace_cuda SYSTEM PRIVATE ${MILLRACE_CUDA_INCLUDES})
millrace_unity(millrace_cuda)
target_compile_features(millrace_cuda PRIVATE cxx_std_20)
target_compile_definitions(millrace_cuda PRIVATE MILLRACE_GPU_ABI="${MILLRACE_GPU_ABI}")
target_link_options(millrace_cuda PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/src/device/cuda/exports.map)
# A function that is missing shows here, and not when a user's GPU is opened. A sanitizer's functions are the program's.
if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  target_link_options(millrace_cuda PRIVATE LINKER:-z,defs)
endif()
target_link_libraries(millrace_cuda PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(millrace millrace_cuda)
