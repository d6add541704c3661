# Run by ctest: one entry for each GoogleTest suite in MILLRACE_TEST_BINARY.
execute_process(COMMAND ${MILLRACE_TEST_BINARY} --gtest_list_tests
                OUTPUT_VARIABLE listing RESULT_VARIABLE failed)
# A suite's line is not indented and ends with its name and a dot, or with a comment behind them.
string(REGEX MATCHALL "(^|\n)[A-Za-z_0-9/]+\\." suites "${listing}")
if(failed OR NOT suites)
  message(FATAL_ERROR "${MILLRACE_TEST_BINARY} lists no tests: build it first (./millrace test)")
endif()
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "[\n.]" "" suite "${suite}")
  # These call compilers for most of a minute: begun late, they keep one core busy while the others have nothing to do.
  set(cost 60)
  if(suite MATCHES "^(CpuKernel|CudaKernel|CudaCompile|Passes/AttentionKernel|CpuExecutor)$")
    set(cost 400)
  endif()
  add_test("${suite}" "${MILLRACE_TEST_BINARY}" "--gtest_filter=${suite}.*")
  set_tests_properties("${suite}" PROPERTIES TIMEOUT 600 COST ${cost}
                       ENVIRONMENT "${MILLRACE_TEST_ENVIRONMENT}")
endforeach()
