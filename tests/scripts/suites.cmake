# Run by ctest: one entry for each GoogleTest suite in MILLRACE_TEST_BINARY.
execute_process(COMMAND ${MILLRACE_TEST_BINARY} --gtest_list_tests
                OUTPUT_VARIABLE listing RESULT_VARIABLE failed)
# A suite's line is not indented and ends with its name and a dot, or with a comment after them.
string(REGEX MATCHALL "(^|\n)[A-Za-z_0-9/]+\\." suites "${listing}")
if(failed OR NOT suites)
  message(FATAL_ERROR "${MILLRACE_TEST_BINARY} lists no tests: build it first (./millrace test)")
endif()
# The cases of a list that belong to a suite, as a GoogleTest filter.
function(cases_of suite cases result)
  string(REPLACE "." "\\." name "${suite}.")
  list(FILTER cases INCLUDE REGEX "^${name}")
  list(JOIN cases ":" cases)
  set(${result} "${cases}" PARENT_SCOPE)
endfunction()
function(add_suite name filter cost environment)
  add_test("${name}" "${MILLRACE_TEST_BINARY}" "--gtest_filter=${filter}")
  set_tests_properties("${name}" PROPERTIES TIMEOUT 600 COST ${cost}
                       ENVIRONMENT "${MILLRACE_TEST_ENVIRONMENT};${environment}")
endfunction()

# A name in the lists that matches no test would silently run nothing.
foreach(case IN LISTS MILLRACE_LONG_CASES MILLRACE_SLICED_CASES)
  string(REGEX MATCH "^([^.]+)\\.([A-Za-z_0-9]+)" found "${case}")
  if(NOT "${listing}" MATCHES "(^|\n)${CMAKE_MATCH_1}\\.[^\n]*\n(  [^\n]*\n)*  ${CMAKE_MATCH_2}")
    message(FATAL_ERROR "tests/CMakeLists.txt names ${case}, and ${MILLRACE_TEST_BINARY} has no such test")
  endif()
endforeach()

foreach(suite IN LISTS suites)
  string(REGEX REPLACE "[\n.]" "" suite "${suite}")
  # These call compilers for most of a minute. Started late, they would keep one core busy while the others are idle.
  set(cost 60)
  if(suite MATCHES "^(CpuKernel|CudaKernel|CudaCompile|AttentionCompile|Passes/AttentionKernel|CpuExecutor|EmulatedTrials|AttentionTrials|AttentionRowTrials|CpuAttentions)$")
    set(cost 400)
  endif()
  cases_of("${suite}" "${MILLRACE_LONG_CASES}" long)
  cases_of("${suite}" "${MILLRACE_SLICED_CASES}" sliced)
  set(filter "${suite}.*")
  if(long)
    string(APPEND filter "-${long}")
  endif()
  add_suite("${suite}" "${filter}" ${cost} "")
  if(long OR sliced)
    add_suite("${suite}.long" "${long}:${sliced}" ${cost} "MILLRACE_LONG=1")
    set_tests_properties("${suite}.long" PROPERTIES LABELS long TIMEOUT 1200)
  endif()
endforeach()
