# What `cmake --install` copies, in components: `runtime` and `development`, which become Debian packages, and `python`,
# the files of a wheel besides python/millrace (see pyproject.toml), which is installed only if asked for. The target
# `uninstall` removes what `cmake --install` copied. Tests: tests/scripts/install_test.sh, tests/python/wheel_test.py.
set(runtime COMPONENT runtime)
set(development COMPONENT development)
set(python COMPONENT python EXCLUDE_FROM_ALL)

install(TARGETS millrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} ${runtime})
install(TARGETS millrace-guard millrace-worker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/millrace ${runtime})
install(TARGETS millrace_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${runtime})
if(TARGET millrace_cuda)
  install(TARGETS millrace_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${runtime})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/millrace RENAME copyright ${runtime})
if(NOT CMAKE_CROSSCOMPILING)
  install(FILES ${MILLRACE_MADE}/millrace.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 ${runtime})
  install(FILES ${MILLRACE_MADE}/millrace DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions ${runtime})
  install(FILES ${MILLRACE_MADE}/_millrace DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions ${runtime})
  install(FILES ${MILLRACE_MADE}/millrace.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d ${runtime})
endif()

# For embedders: find_package(millrace), then link millrace::millrace.
include(CMakePackageConfigHelpers)
set(MILLRACE_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/millrace)
set_target_properties(millrace_core PROPERTIES EXPORT_NAME millrace)
install(TARGETS millrace_core EXPORT millrace-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} ${development})
install(DIRECTORY include/millrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${development})
install(EXPORT millrace-targets NAMESPACE millrace:: DESTINATION ${MILLRACE_PACKAGE} ${development})
configure_package_config_file(cmake/millrace-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/millrace-config.cmake
                              INSTALL_DESTINATION ${MILLRACE_PACKAGE})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/millrace-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/millrace-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/millrace-config-version.cmake
        DESTINATION ${MILLRACE_PACKAGE} ${development})

# For wheels. Everything is beside libmillrace.so, where the programs and the library look first.
set(MILLRACE_PYTHON_TARGETS millrace millrace-guard millrace-worker millrace_shared)
foreach(optional millrace_cuda millrace_torch)
  if(TARGET ${optional})
    list(APPEND MILLRACE_PYTHON_TARGETS ${optional})
  endif()
endforeach()
add_custom_target(millrace_python DEPENDS ${MILLRACE_PYTHON_TARGETS})
install(TARGETS ${MILLRACE_PYTHON_TARGETS} RUNTIME DESTINATION millrace/lib ${python}
        LIBRARY DESTINATION millrace/lib ${python})
install(FILES bindings/torch/operator.cpp bindings/torch/allocation.h bindings/torch/kept_memory.h
        DESTINATION millrace/torch/csrc ${python})
install(FILES include/millrace/c_api.h include/millrace/version.h DESTINATION millrace/include/millrace ${python})
if(SKBUILD)
  set_target_properties(${MILLRACE_PYTHON_TARGETS} PROPERTIES INSTALL_RPATH "$ORIGIN")
endif()

# A wheel for other machines contains the libraries that they may lack. They keep their names: OpenBLAS and kernels must
# use the same OpenMP as Millrace, which sets the number of their threads.
option(MILLRACE_BUNDLE "put libgomp and SQLite into the wheel, for machines without them" OFF)
foreach(library libgomp.so.1 libsqlite3.so.0)
  if(MILLRACE_BUNDLE)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library} OUTPUT_VARIABLE file
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT IS_ABSOLUTE "${file}")
      message(FATAL_ERROR "${library} not found: install it (apt-get install libgomp1 libsqlite3-0), or set "
                          "MILLRACE_BUNDLE=OFF")
    endif()
    file(REAL_PATH ${file} file)
    install(FILES ${file} DESTINATION millrace/lib RENAME ${library} ${python})
  endif()
endforeach()

configure_file(cmake/uninstall.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/uninstall.cmake @ONLY)
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_BINARY_DIR}/uninstall.cmake USES_TERMINAL)
